"""A question asked while a run goes on: whether it may end.

It is asked at fixed steps, 0, 1, 2, 3, 5, 8, ..., so that nothing of a run depends on how fast it
goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from manyheads._check import REFUSED, Constraint
from manyheads.data.dataset import Dataset

is_stop = Constraint(
    "a function of the step and the model, or mh.Certified()",
    lambda value: value if callable(value) or hasattr(value, "begin") else REFUSED,
)


def asked_steps(num_steps: int) -> np.ndarray:
    """The steps 0, 1, 2, 3, 5, 8, ... below `num_steps`."""
    steps = [0, 1, 2]
    while steps[-1] < num_steps:
        steps.append(steps[-1] + steps[-2])
    return np.array([step for step in steps if step < num_steps], np.int64)


class Watch:
    """What a run is asked, and what was answered: `note` for the progress line, `kept` numbers by name and step.

    `stop(step, model)` returns a false value to let the run go on; a true one ends it, and a
    sentence says why. An object with `begin(start, data, settings)` makes such a function when the
    run begins, and one with attributes `note` and `numbers` shows and records them.
    """

    def __init__(self, stop: Any, model: Any, dataset: Dataset, settings: dict):
        begins = hasattr(stop, "begin")
        self.condition = stop.begin(model, dataset, settings) if begins else stop
        none = np.zeros(0, np.int64)
        self.steps = none if stop is None else asked_steps(settings["num_steps"])
        self.note, self.kept = "", {}

    def ask(self, step: int, model: Any) -> str:
        """Why the run ends here; an empty string where it goes on."""
        answer = self.condition(step, model)
        self.note = getattr(self.condition, "note", "")
        for name, value in self._numbers.items():
            self.kept.setdefault(name, {})[step] = float(value)
        if not answer:
            return ""
        return answer if isinstance(answer, str) else f"the condition of stop= holds at step {step}"

    def remember(self, steps: np.ndarray, observed: dict[str, np.ndarray]) -> None:
        """Take over what a run that is resumed was told before."""
        for name in self._numbers:
            known = observed.get(name, np.full(len(steps), np.nan))
            told = zip(steps.tolist(), known.tolist(), strict=True)
            self.kept[name] = {step: value for step, value in told if not np.isnan(value)}

    def records(self, steps: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers at these steps; NaN where none was asked for."""
        return {
            name: np.array([kept.get(step, np.nan) for step in steps.tolist()])
            for name, kept in self.kept.items()
        }

    @property
    def _numbers(self) -> dict[str, float]:
        return getattr(self.condition, "numbers", {})
