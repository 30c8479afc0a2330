"""Questions asked while a run goes on: whether it may end, and what is proved about the rest.

They are asked at fixed steps, 0, 1, 2, 3, 5, 8, ..., so that nothing of a run depends on how fast it goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manyheads._registry import Registry
from manyheads.data.dataset import Dataset

# A condition is made from the start, the data and the settings of a run: `CONDITIONS[name](model, dataset, settings)`.
CONDITIONS: Registry[Any] = Registry(
    "condition to end a run", {"certified": "manyheads.theory.manyheads2026.live"}
)
FORECAST = "certified"


def asked_steps(num_steps: int) -> np.ndarray:
    """The steps 0, 1, 2, 3, 5, 8, ... below `num_steps`."""
    steps = [0, 1, 2]
    while steps[-1] < num_steps:
        steps.append(steps[-1] + steps[-2])
    return np.array([step for step in steps if step < num_steps], np.int64)


class Questions:
    """What a run is asked, and what was answered: `note` for the progress line, `kept` numbers by name and step.

    A condition returns a false value to let the run go on; a true one ends it, and a sentence says why. One with
    attributes `note` and `numbers` shows and records them.
    """

    def __init__(
        self,
        until: str | Callable | None,
        forecast: bool,
        model: Any,
        dataset: Dataset,
        settings: dict,
    ):
        names = dict.fromkeys(
            [*([until] if isinstance(until, str) else []), *([FORECAST] if forecast else [])]
        )
        made = {name: CONDITIONS[name](model, dataset, settings) for name in names}
        self.until = made[until] if isinstance(until, str) else until
        self.asked = [*made.values(), *([until] if callable(until) else [])]
        self.steps = asked_steps(settings["num_steps"]) if self.asked else np.zeros(0, np.int64)
        self.note, self.kept = "", {}

    def ask(self, step: int, model: Any) -> str:
        """Why the run ends here; an empty string where it goes on."""
        why = ""
        for condition in self.asked:
            answer = condition(step, model)
            self.note = getattr(condition, "note", self.note)
            for name, value in getattr(condition, "numbers", {}).items():
                self.kept.setdefault(name, {})[step] = float(value)
            if answer and condition is self.until:
                why = (
                    answer
                    if isinstance(answer, str)
                    else f"the condition of until= holds at step {step}"
                )
        return why

    def remember(self, steps: np.ndarray, observed: dict[str, np.ndarray]) -> None:
        """Take over what a run that is resumed was told before."""
        for condition in self.asked:
            for name in getattr(condition, "numbers", {}):
                known = observed.get(name, np.full(len(steps), np.nan))
                self.kept[name] = {
                    int(k): float(v) for k, v in zip(steps, known, strict=True) if not np.isnan(v)
                }

    def records(self, steps: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers at these steps; NaN where none was asked for."""
        return {
            name: np.array([kept.get(int(k), np.nan) for k in steps])
            for name, kept in self.kept.items()
        }
