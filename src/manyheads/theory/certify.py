"""Certificates of a run: which statements of the theory apply to it, and what they conclude."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from manyheads import _check
from manyheads._card import card
from manyheads._check import RUNS_CALLERS_CODE, check, flag, none, positive, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import is_mixture
from manyheads.theory.deora2023 import initialization, regime, setting
from manyheads.theory.examination import Examination
from manyheads.theory.finding import half_width
from manyheads.theory.kinds import Point
from manyheads.theory.ledger import about_runs, entry, papers
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis, Verdict, plain
from manyheads.training.trajectory import Trajectory, is_trajectory

# the mean train loss for which the numbers of heads and steps are given
LEVEL = 0.5
BEYOND = Hypothesis(
    "its constants are within the range of float64", False, "rescale tokens, weights or step size"
)


@dataclass(frozen=True)
class Certificates:
    """Several certificates about one run."""

    items: tuple[Certificate, ...]
    title: str = ""
    needed: str = (
        # by how much the run misses the training theorem: heads and steps, with target and loss
        ""
    )

    def __iter__(self) -> Iterator[Certificate]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def about(self, statement: str | Statement) -> tuple[Certificate, ...]:
        """The certificates of one statement."""
        name = statement.name if isinstance(statement, Statement) else entry(statement).name
        return tuple(c for c in self.items if c.statement == name)

    @property
    def verdict(self) -> Verdict:
        return Verdict.of(c.verdict for c in self.items)

    def to_dict(self) -> dict:
        return {
            "title": self.title,
            "verdict": plain(self.verdict),
            "needed": self.needed,
            "certificates": [c.to_dict() for c in self.items],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def brief(self) -> str:
        """One line for each; a reason shared by several silent ones is given once."""
        first: dict[str, str] = {}  # reason -> the first statement silent for that reason
        lines = [part for part in (self.title, self.needed) if part]
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
        return "\n\n".join(filter(None, [self.title, self.needed, *map(str, self.items)]))


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
    statements: Statement | str | Sequence[Statement | str] = (),
    *,
    samples: Sequence[tuple[Trajectory, Dataset]] = (),
    test: Dataset | None = None,
    mixture=None,
    token_radius: float | None = None,
    independent: bool = False,
    from_step: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Certificates:
    """What the theory says about a stored run on its training data, and what your own statements say.

    The run is repeated and compared with all its records, whatever the statement; numbers come from
    a repetition in float64. First comes what the training theorem would need, for a named target
    and loss.

    Args:
        run: the run.
        dataset: what it was trained on, or the whole of which that is a part: the run knows which
            sequences it saw.
        statements: names, or statements of your own that have `on=`; by default all of the ledger
            that need no
            leave-one-out runs. "lemma3" and "loo" train once per sequence.
        samples: other pairs (run, data) for your own statements, which are then about the
            expectation: the mean of the
            measured value against the mean of the bound, with half of a 95% interval.
        test: adds the generalization gap; by default the run's own test sequences, where `dataset`
            holds them.
        mixture: the source of the data, for the paper's own targets.
        token_radius: R if it is known; otherwise the bound stored with the data, or the largest
            norm seen.
        independent: start, step size, heads and number of steps were chosen without this sample;
            otherwise, and if R
            is only the largest norm seen, the generalization statements are SILENT.
        from_step: where the forecast is evaluated; by default at the first step where it is not
            silent.
        progress: called with each long task.
    """
    statements = [statements] if isinstance(statements, str | Statement) else statements
    wanted = [s if isinstance(s, Statement) else entry(s) for s in statements] or [
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
        if statement.on is not None:
            items.append(on_run(statement, [(work.run, work.dataset), *samples]))
            continue
        if statement.about is None:
            raise ValueError(
                f"{statement.name} is not a statement about one run; `manyheads verify "
                f"{statement.name}` checks it on "
                "many inputs. Give one of your own on=lambda run, data: (measured, bound); in the "
                "ledger there are "
                f"{', '.join(about_runs())}."
            )
        paper = papers().get(statement.paper)
        scope = None if paper is None else paper.scope
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
    title = f"{run.start}\n{work.dataset}\nR {known}: {work.radius:.6g}"
    return Certificates(tuple(items), title, "" if statements else what_is_needed(work, items))


def on_run(statement: Statement, pairs: Sequence[tuple[Trajectory, Dataset]]) -> Certificate:
    """A statement of one's own on a run; of several, their means, with half of a 95% interval of the difference."""
    assert statement.on is not None
    sides = np.array([[float(side) for side in statement.on(run, data)] for run, data in pairs])
    hypotheses = [_hypotheses(statement, Point(run=run, data=data)) for run, data in pairs]
    # of several runs the one that misses a hypothesis most
    worst = [max(column, key=lambda h: h.factor) for column in zip(*hypotheses, strict=True)]
    measured, bound = sides.mean(axis=0)
    claim, noise, source = statement.title, 0.0, ""
    if len(pairs) > 1:
        claim = f"in expectation, {len(pairs)} samples: {claim}"
        noise = half_width(sides[:, 0] - sides[:, 1])
        source = "half of a 95% interval"
        enough = Hypothesis.at_least("several samples", len(pairs), 3, "pass ten or more samples=")
        worst = [enough, *worst]
    bounds = (Bound("own", float(bound), tuple(worst)),)
    where = statement.name, claim, float(measured), bounds, statement.sense
    return Certificate(*where, noise, source)


def _hypotheses(statement: Statement, point: Point) -> list[Hypothesis]:
    """The hypotheses of a statement of one's own: a truth value, (have, need) or (have, need, remedy)."""
    found = []
    for words, condition in statement.hypotheses.items():
        value = condition(point)
        if isinstance(value, tuple):
            have, need, *remedy = value
            found.append(Hypothesis.at_least(words, have, need, *remedy))
        else:
            found.append(Hypothesis(words, bool(np.all(value))))
    return found


def what_is_needed(work: Examination, items: Sequence[Certificate]) -> str:
    """The one answer to "by how much does it miss?": the smallest heads and steps for a named target and loss."""
    if not any(c.statement == "thm1" and c.verdict is Verdict.SILENT for c in items):
        return ""
    if work.known_loss is None or any(not h.holds for h in work.shared(setting.scope)):
        return ""
    try:
        direction = work.shared(initialization.start_of).theta_star()
        least = regime.smallest_heads(
            work.run.start, work.dataset, [direction], certified=LEVEL, loss=work.loss
        )
    except (ValueError, OverflowError):
        return ""
    plan = f"{least.num_heads:,.0f} heads and {least.case.num_steps:,} steps of {least.case.step_size:.3g}"
    have = f"{work.run.start.num_heads:,.0f} heads and {work.num_steps:,} steps of {work.step_size:.3g}"
    target = f"a mean train loss of {LEVEL:g} with a target along {direction.name}"
    return f"Theorem 1′ would promise {target} from {plan} on; this run has {have}."
