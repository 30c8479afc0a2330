"""Certificates of a run: which statements of the theory speak about it, and what they say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from manyheads.certificates.examination import Examination
from manyheads.certificates.ledger import entry
from manyheads.certificates.verdict import OURS, Bound, Certificate, Verdict
from manyheads.data.dataset import Dataset
from manyheads.training.trajectory import Trajectory

STATEMENTS = (
    "def1.p1",
    "def1.p2",
    "def1.p3",
    "prop7",
    "cor1.1",
    "cor1.2",
    "cor1.3",
    "descent",
    "iterates",
    "thm1",
    "cor2",
    "thm2",
    "identity",
    "lemma3",
    "loo",
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
        """Those about one statement."""
        return tuple(c for c in self.items if c.statement == entry(statement).id)

    @property
    def verdict(self) -> Verdict:
        """VIOLATED if any is; HOLDS if at least one holds; SILENT if the theory says nothing at all."""
        verdicts = {c.verdict for c in self.items}
        for answer in (Verdict.VIOLATED, Verdict.HOLDS):
            if answer in verdicts:
                return answer
        return Verdict.SILENT

    def to_dict(self) -> dict:
        return {"title": self.title, "verdict": self.verdict.name, "certificates": [c.to_dict() for c in self.items]}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def brief(self) -> str:
        """One line for each."""
        return "\n".join(([self.title] if self.title else []) + [c.line() for c in self.items])

    def __str__(self) -> str:
        return "\n\n".join(([self.title] if self.title else []) + [str(c) for c in self.items])


def certify(
    run: Trajectory,
    dataset: Dataset,
    statements: Sequence[str] = (),
    *,
    test: Dataset | None = None,
    mixture=None,
    token_radius: float | None = None,
    independent: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Certificates:
    """What the theory says about a stored run on its training data.

    The run is repeated in float64 (and compared with its records); every number comes from the repetition. `statements`
    chooses among `STATEMENTS` (default: all that need no leave-one-out runs). `test` adds the generalization gap,
    `mixture` the paper's own targets, `token_radius` R where it is known (else the largest norm seen is assumed).
    `independent` states that start, step size, heads and number of steps were chosen without this sample; the
    generalization statements are SILENT otherwise. "lemma3" and "loo" train once per sequence.
    """
    wanted = [entry(name).id for name in statements] or [s for s in STATEMENTS if s not in ("lemma3", "loo")]
    unknown = [s for s in wanted if s not in STATEMENTS]
    if unknown:
        raise ValueError(
            f"{unknown[0]} is not a statement about one run; `manyheads verify {unknown[0]}` checks it on many inputs. "
            f"About a run there are: {', '.join(STATEMENTS)}."
        )
    work = Examination(run, dataset, test, mixture, token_radius, independent, progress or (lambda text: None))
    outside = work.scope()
    items: list[Certificate] = []
    for statement in wanted:
        if any(not h.holds for h in outside):
            items.append(Certificate(statement, entry(statement).title, math.nan, (Bound(OURS, math.nan, outside),)))
        else:
            items.extend(work.certificates(statement))
    return Certificates(
        tuple(items),
        f"{run.start}\n{dataset}\nR {'given' if token_radius else 'assumed, largest seen'}: {work.radius:.6g}",
    )
