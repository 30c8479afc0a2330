"""The forecast during a run: `train(..., forecast=True)` shows it, `until="certified"` ends the run with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from manyheads.theory.manyheads2026.forecast import (
    HOPELESS,
    MOST_PIECES,
    REASONS,
    checked,
    followed,
)
from manyheads.theory.manyheads2026.region import Center
from manyheads.training.until import CONDITIONS

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead

REDUCE = 2.0


@CONDITIONS.register("certified")
class Certified:
    """Checks whether the loss is certified to halve from a step on; steps with a hopeless indicator are skipped.

    `numbers` holds the indicator, and the steps within which the loss is proved to halve (infinite if not proved).
    """

    def __init__(self, model: MultiHead, dataset: Dataset, settings: dict):
        if settings.get("weighted"):
            raise ValueError(
                "the forecast is proved for sequences of equal weight; leave out sample_weight."
            )
        _, self.step_size, self.loss = checked(model, settings.get("step_size"), REDUCE, settings)
        self.dataset, self.note = dataset, ""
        self.numbers = {"indicator": math.nan, "steps_to_half": math.nan}

    def __call__(self, step: int, model: MultiHead) -> str:
        center = Center.at(model, self.dataset, self.loss)
        self.numbers = {"indicator": center.indicator, "steps_to_half": math.inf}
        if center.trouble:
            self.note = f"no forecast: {REASONS[center.trouble]}"
            return ""
        if center.indicator < HOPELESS:
            self.note = f"no forecast yet (indicator {center.indicator:.2g})"
            return ""
        found = followed(center, self.step_size, REDUCE, MOST_PIECES, math.log(REDUCE))
        steps = found.steps_to_reduce
        if steps is None:
            reached = (
                f"falls to {found.certified_loss[-1]:.3g} (proved)"
                if found.pieces
                else "nothing is proved"
            )
            self.note = f"{reached} (indicator {center.indicator:.2g})"
            return ""
        self.numbers["steps_to_half"] = float(steps)
        self.note = f"halves within {steps:,} steps (proved)"
        return f"from step {step} on the loss, {found.loss:.4g}, is proved to halve within {steps:,} more steps"
