"""Run the ledger: every statement and every erratum on random, adversarial and extremal inputs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from manyheads import _check
from manyheads._check import RUNS_CALLERS_CODE, check, flag, none
from manyheads.theory.finding import Effort, Finding
from manyheads.theory.ledger import entry, ledger
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import Verdict


@dataclass(frozen=True)
class Verification:
    """The findings of one pass over the ledger."""

    findings: tuple[Finding, ...]
    seconds: tuple[float, ...]
    quick: bool
    seed: int

    @property
    def violated(self) -> tuple[Finding, ...]:
        """Statements whose corrected form failed, and errata that could not be reproduced."""
        return tuple(f for f in self.findings if f.verdict is Verdict.VIOLATED)

    def rows(self) -> list[tuple[str, str, str, str, str, str, str]]:
        """Cells of the printed table: statement, title, trials, printed, ours, verdict, detail."""
        titles = {name: item.title for name, item in ledger().items()}
        return [
            (
                f.statement,
                titles[f.statement],
                f"{f.trials:,}",
                share(f.printed),
                share(f.ours),
                _word(f),
                f.detail,
            )
            for f in self.findings
        ]

    def summary(self) -> str:
        statements = [f for f in self.findings if not ledger()[f.statement].is_erratum]
        errata = [f for f in self.findings if ledger()[f.statement].is_erratum]
        held = sum(f.verdict is Verdict.HOLDS for f in statements)
        shown = sum(f.verdict is Verdict.HOLDS for f in errata)
        parts = []
        if statements:
            parts.append(f"{held} of {len(statements)} statements hold as corrected")
        if errata:
            parts.append(f"{shown} of {len(errata)} errata reproduced")
        return f"{', '.join(parts)}; {sum(f.trials for f in self.findings):,} trials in {sum(self.seconds):.0f} s"

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
        rows = [
            ("statement", "", "trials", "printed", "ours", "verdict", "what was found"),
            *self.rows(),
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        padded = [
            [*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[6]] for row in rows
        ]
        return "\n".join([*("  ".join(row).rstrip() for row in padded), "", self.summary()])


def _word(finding: Finding) -> str:
    if ledger()[finding.statement].is_erratum and finding.verdict is Verdict.HOLDS:
        return "REPRODUCED"
    return finding.verdict.name


def share(value: float | None) -> str:
    """A share of a bound as printed in tables."""
    if value is None:
        return "-"
    if value == 0 or 1e-3 <= abs(value) < 1000:
        return f"{value:.3f}"
    return f"{value:.1e}"


@check(RUNS_CALLERS_CODE, quick=flag, seed=_check.seed, report=_check.function | none)
def verify(
    statements: Sequence[str] = (),
    *,
    quick: bool = False,
    seed: int = 0,
    report: Callable[[Statement, Finding, float], None] | None = None,
) -> Verification:
    """Check the named statements (the whole ledger by default); `report` is called after each."""
    chosen = [entry(name) for name in statements] if statements else list(ledger().values())
    findings, seconds = [], []
    for item in chosen:
        began = time.perf_counter()
        findings.append(replace(item.check(Effort(quick, seed)), statement=item.name))
        seconds.append(time.perf_counter() - began)
        if report is not None:
            report(item, findings[-1], seconds[-1])
    return Verification(tuple(findings), tuple(seconds), quick, seed)
