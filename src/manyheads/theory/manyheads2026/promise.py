"""A promise of the forecast compared with the actual descent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from manyheads.theory import walk as follower
from manyheads.theory.manyheads2026.region import ENLARGE
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis

if TYPE_CHECKING:
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination

# steps run to check a promise, if the run itself is shorter
AFFORDABLE = 20_000


def affordable(work: Examination) -> int:
    """How many steps are run to check a promise about a run."""
    return max(work.num_steps, AFFORDABLE)


def measured_against(
    work: Examination,
    statement: str,
    claim: str,
    start: MultiHead,
    level: float,
    steps: int,
    step_size: float,
) -> Certificate:
    """Steps of descent to a loss, measured against promised; silent if they are too many to run."""
    most = max(min(steps, affordable(work)), 1)
    walk = follower.follow(start, work.dataset, step_size=step_size, num_steps=most, loss=work.loss)
    reached = np.flatnonzero(walk.loss <= level * (1 + ENLARGE))
    measured, silent = (float(reached[0]) if len(reached) else math.inf), ()
    if not len(reached) and most < steps:
        told = f"the loss {level:.4g} is reached within the {most:,} steps that are run to check it"
        measured, silent = math.nan, (Hypothesis(told, False, "use a larger step size"),)
    return Certificate(statement, claim, measured, (Bound(OURS, float(steps), silent),))
