"""`verify`: one statement under attack, or the whole ledger on random, adversarial and extremal inputs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from manyheads import _check
from manyheads._check import RUNS_CALLERS_CODE, check, flag, none
from manyheads.theory.finding import Effort, Finding
from manyheads.theory.ledger import entry, ledger
from manyheads.theory.own import attack
from manyheads.theory.result import Result
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import Verdict


@dataclass(frozen=True)
class Verification:
    """The findings of one pass over several statements."""

    findings: tuple[Finding, ...]
    seconds: tuple[float, ...]
    quick: bool
    seed: int
    statements: tuple[Statement, ...] = ()
    results: tuple[Result, ...] = ()  # of the statements that were attacked

    @property
    def violated(self) -> tuple[Finding, ...]:
        """Statements whose corrected form failed, and errata that could not be reproduced."""
        return tuple(f for f in self.findings if f.verdict is Verdict.VIOLATED)

    def rows(self) -> list[tuple[str, str, str, str, str, str, str]]:
        """Cells of the printed table: statement, title, trials, printed, ours, verdict, detail."""
        rows = []
        for item, f in self._pairs():
            reproduced = item.is_erratum and f.verdict is Verdict.HOLDS
            word = "REPRODUCED" if reproduced else f.verdict.name
            shares = share(f.printed), share(f.ours)
            rows.append((f.statement, item.title, f"{f.trials:,}", *shares, word, f.detail))
        return rows

    def summary(self) -> str:
        parts = []
        for errata, words in ((False, "statements hold as corrected"), (True, "errata reproduced")):
            part = [f for item, f in self._pairs() if item.is_erratum == errata]
            held = sum(f.verdict is Verdict.HOLDS for f in part)
            if part:
                parts.append(f"{held} of {len(part)} {words}")
        trials, seconds = sum(f.trials for f in self.findings), sum(self.seconds)
        return f"{', '.join(parts)}; {trials:,} trials in {seconds:.0f} s"

    def _pairs(self) -> list[tuple[Statement, Finding]]:
        items = self.statements or tuple(entry(f.statement) for f in self.findings)
        return list(zip(items, self.findings, strict=True))

    def to_dict(self) -> dict:
        return {
            "quick": self.quick,
            "seed": self.seed,
            "violated": [f.statement for f in self.violated],
            "findings": [
                f.to_dict() | {"seconds": round(s, 3)}
                for f, s in zip(self.findings, self.seconds, strict=True)
            ],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)

    def __str__(self) -> str:
        attacked = {result.statement.name for result in self.results}
        rows = [
            ("statement", "", "trials", "printed", "ours", "verdict", "what was found"),
            *(row for row in self.rows() if row[0] not in attacked),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        padded = [
            [*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[6]] for row in rows
        ]
        table = ["  ".join(row).rstrip() for row in padded] if len(rows) > 1 else []
        return "\n".join([*map(str, self.results), *table, "", self.summary()])


def share(value: float | None) -> str:
    """A share of a bound as printed in tables."""
    if value is None:
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:.1e}"


@check(
    RUNS_CALLERS_CODE,
    quick=flag,
    seed=_check.seed,
    constant=_check.text | none,
    rigorous=flag,
    store=_check.path | none,
    report=_check.function | none,
    progress=_check.function | none,
)
def verify(
    statements: Statement | str | Sequence[Statement | str] = (),
    *,
    quick: bool = False,
    seed: int = 0,
    constant: str | None = None,
    rigorous: bool = False,
    store: str | Path | None = None,
    report: Callable[[Statement, Finding, float], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result | Verification:
    """Attack one statement of your own, or check several: their findings, or those of the whole ledger.

    Args:
        statements: a `Statement`, which is attacked and gives a `Result`; or names and statements
            in a list, the whole
            ledger by default, which give a `Verification`.
        quick: fewer trials.
        seed: of every random draw.
        constant: the name of a free constant, `p.c` in the bound for "c": the smallest that
            survives is looked for.
        rigorous: prove the tightest inputs in interval arithmetic (needs python-flint).
        store: the folder where the inputs that were found are kept, to be tried first the next
            time.
        report: called after each statement with its finding and the seconds that it took.
        progress: called with what is being tried; by default it is shown on a terminal.
    """
    tell, folder = progress or _terminal(), None if store is None else Path(store)
    if isinstance(statements, Statement) and statements.check is None:
        _attackable(statements)
        settings = Effort(quick, seed)
        result = attack(
            statements, settings, constant=constant, rigorous=rigorous, store=folder, tell=tell
        )
        tell("")
        return result
    if isinstance(statements, Statement | str):
        statements = [statements]
    items = [s if isinstance(s, Statement) else entry(s) for s in statements]
    items = items or list(ledger().values())
    findings, seconds, results = [], [], []
    for item in items:
        began = time.perf_counter()
        if item.check is None:
            _attackable(item)
            results.append(attack(item, Effort(quick, seed), store=folder, tell=tell))
            found = results[-1].finding()
        else:
            found = item.check(Effort(quick, seed))
        findings.append(replace(found, statement=item.name))
        seconds.append(time.perf_counter() - began)
        if report is not None:
            report(item, findings[-1], seconds[-1])
    everything = tuple(findings), tuple(seconds), quick, seed, tuple(items), tuple(results)
    return Verification(*everything)


def _attackable(item: Statement) -> None:
    if item.inputs is None:
        remedy = "give it inputs=, measured= and bound=, or call certify(run, data, [statement])"
        raise ValueError(f"{item.title!r} speaks about a run alone; {remedy}.")


def _terminal() -> Callable[[str], None]:
    """One line that is written anew; nothing where nobody watches."""
    if not sys.stderr.isatty():
        return lambda words: None
    return lambda words: print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)
