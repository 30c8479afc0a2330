"""Certificates of a run: which statements of the theory apply to it, and what they conclude."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from manyheads import _check
from manyheads._card import card
from manyheads._check import RUNS_CALLERS_CODE, check, flag, none, positive, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import is_mixture
from manyheads.theory.examination import Examination
from manyheads.theory.ledger import about_runs, entry, papers
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis, Verdict, plain
from manyheads.training.trajectory import Trajectory, is_trajectory

BEYOND = Hypothesis(
    "its constants are within the range of float64", False, "rescale tokens, weights or step size"
)


@dataclass(frozen=True)
class Certificates:
    """Several certificates about one run."""

    items: tuple[Certificate, ...]
    title: str = ""

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def about(self, statement: str) -> tuple[Certificate, ...]:
        """The certificates of one statement."""
        return tuple(c for c in self.items if c.statement == entry(statement).name)

    @property
    def verdict(self) -> Verdict:
        return Verdict.of(c.verdict for c in self.items)

    def to_dict(self) -> dict:
        return {
            "title": self.title,
            "verdict": plain(self.verdict),
            "certificates": [c.to_dict() for c in self.items],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def brief(self) -> str:
        """One line for each; a reason shared by several silent ones is given once."""
        first: dict[str, str] = {}  # reason -> the first statement silent for that reason
        lines = [self.title] if self.title else []
        for c in self.items:
            silent = c.verdict is Verdict.SILENT
            before = first.get(c.reason) if silent else None
            lines.append(c.line(f"for the same reason as {before}" if before else ""))
            if silent:
                first.setdefault(c.reason, c.statement)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = {f"{c.verdict.name} {c.statement}": f"{c.claim}: {c.reason}" for c in self.items}
        return card(self.title.partition("\n")[0] or "certificates", rows)

    def __str__(self) -> str:
        return "\n\n".join(([self.title] if self.title else []) + [str(c) for c in self.items])


@check(
    RUNS_CALLERS_CODE,
    run=is_trajectory,
    dataset=is_dataset,
    test=is_dataset | none,
    mixture=is_mixture | none,
    token_radius=positive | none,
    independent=flag,
    from_step=whole(0) | none,
    progress=_check.function | none,
)
def certify(
    run: Trajectory,
    dataset: Dataset,
    statements: str | Sequence[str] = (),
    *,
    test: Dataset | None = None,
    mixture=None,
    token_radius: float | None = None,
    independent: bool = False,
    from_step: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Certificates:
    """What the theory says about a stored run on its training data.

    `dataset` is what the run was trained on, or the whole of which that is a part: the run knows which sequences it saw.
    The run is repeated and compared with all its records, whatever the statement; numbers come from a repetition in
    float64. `statements` names one or more statements about a run (default: all that need no leave-one-out runs).
    `test` adds the generalization gap (by default the run's own test sequences, where `dataset` holds them), `mixture`
    the paper's own targets, `token_radius` R if it is known (otherwise the bound stored with the data, or else the
    largest norm seen, is assumed). `independent` states that start, step size, heads and number of steps were chosen
    without this sample; otherwise, and if R is only the largest norm seen, the generalization statements are SILENT.
    "lemma3" and "loo" train once per sequence. "forecast" is evaluated at `from_step` of the run, by default at the
    first step where it is not silent.
    """
    statements = [statements] if isinstance(statements, str) else statements
    wanted = [entry(name) for name in statements] or [
        s for s in about_runs().values() if not s.on_request
    ]
    work = Examination(
        run,
        dataset,
        test=test,
        mixture=mixture,
        token_radius=token_radius,
        independent=independent,
        from_step=from_step,
        progress=progress,
    )
    items: list[Certificate] = []
    first = next(iter(papers()))
    for statement in wanted:
        if statement.about is None:
            raise ValueError(
                f"{statement.name} is not a statement about one run; `manyheads verify {statement.name}` checks it on "
                f"many inputs. Statements about a run: {', '.join(about_runs())}."
            )
        scope = papers()[statement.paper].scope
        outside = () if scope is None else tuple(work.shared(scope))
        if all(h.holds for h in outside):
            try:
                items.extend(replace(c, statement=statement.name) for c in statement.about(work))
                continue
            except OverflowError:
                outside = (BEYOND,)
        elif (
            not statements and statement.paper != first
        ):  # other papers are skipped outside their scope, unless named
            continue
        items.append(
            Certificate(
                statement.name, statement.title, math.nan, (Bound(OURS, math.nan, outside),)
            )
        )
    known = "assumed, largest seen"
    if work.bounded:
        known = "of the data source" if token_radius is None else "given"
    return Certificates(tuple(items), f"{run.start}\n{work.dataset}\nR {known}: {work.radius:.6g}")
