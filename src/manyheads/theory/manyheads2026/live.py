"""The forecast during a run: `train(..., stop=Certified())` ends the run with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manyheads.theory.manyheads2026.forecast import (
    HOPELESS,
    MOST_PIECES,
    REASONS,
    checked,
    followed,
)
from manyheads.theory.manyheads2026.region import Center

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead

REDUCE = 2.0


@dataclass(frozen=True)
class Certified:
    """Ends a run where its loss is proved to halve: `train(..., stop=Certified())`.

    The run records `observed["indicator"]`, and `observed["steps_to_half"]`, the steps within which
    the loss is proved to halve (infinite if not proved). With `ends=False` it only records them.
    """

    ends: bool = True

    def begin(self, start: MultiHead, data: Dataset, settings: dict) -> Halving:
        """The question that a run with these settings is asked."""
        return Halving(self.ends, start, data, settings)


class Halving:
    """Checks whether the loss is certified to halve from a step on; steps with a hopeless indicator are skipped."""

    def __init__(self, ends: bool, model: MultiHead, dataset: Dataset, settings: dict):
        if settings.get("weighted"):
            raise ValueError(
                "the forecast is proved for sequences of equal weight; train without Weighted(...)."
            )
        _, self.step_size, self.loss = checked(model, settings.get("step_size"), REDUCE, settings)
        self.ends, self.dataset, self.note = ends, dataset, ""
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
        if not self.ends:
            return ""
        return f"from step {step} on the loss, {found.loss:.4g}, is proved to halve within {steps:,} more steps"
