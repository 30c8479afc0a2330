"""A run under examination: what its statements are evaluated on. Values that several of them need are computed once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from manyheads.model import loss as losses
from manyheads.theory import provenance

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.loss import Loss
    from manyheads.training.trajectory import Trajectory

Value = TypeVar("Value")


class Examination:
    """A run with the data it was trained on and what else is known about it.

    `radius` bounds the token norms: those of the whole distribution if `bounded`, else it is only
    the largest seen. `independent` states that start, step size, heads and steps were chosen
    without this sample. `from_step` is the step at which the forecast is evaluated, None for the
    first that is not silent. `progress` is called with each long task.
    """

    def __init__(
        self,
        run: Trajectory,
        dataset: Dataset,
        *,
        test: Dataset | None = None,
        mixture=None,
        token_radius: float | None = None,
        independent: bool = False,
        from_step: int | None = None,
        progress: Callable[[str], None] | None = None,
    ):
        whole, dataset = dataset, provenance.trained_on(run, dataset)
        if test is None and whole is not dataset:
            test = provenance.tested_on(run, whole)
        provenance.check_records(run, dataset, test)
        self.run, self.dataset, self.test, self.mixture = run, dataset, test, mixture
        bound = distribution_radius(token_radius, dataset)
        self.radius, self.bounded = known_radius(bound, dataset, test), bound is not None
        self.independent = (
            independent and run.status != "stopped"
        )  # a stopping condition looks at the sample
        self.progress = progress or (lambda text: None)
        self.step_size: float = run.settings.get("step_size", math.nan)
        self.num_steps = int(run.last_step)
        if self.num_steps < 1:
            raise ValueError("the run has no finite step; there is nothing to certify")
        if from_step is not None and from_step > self.num_steps:
            raise ValueError(
                f"from_step={from_step} is beyond the last step, {self.num_steps}; pass an earlier "
                "one."
            )
        self.from_step = from_step
        self._shared: dict[Callable, object] = {}

    @property
    def known_loss(self) -> Loss | None:
        """The loss of the run; None where no loss of that name is registered."""
        name = self.run.settings.get("loss")
        return losses.get_loss(name) if name in losses.LOSSES else None

    @property
    def loss(self) -> Loss:
        """The loss of the run; an error where no loss of that name is registered."""
        return losses.get_loss(str(self.run.settings.get("loss")))

    def shared(self, function: Callable[[Examination], Value]) -> Value:
        """`function(self)`, computed once."""
        if function not in self._shared:
            self._shared[function] = function(self)
        return self._shared[function]  # ty: ignore[invalid-return-type]


def distribution_radius(token_radius: float | None, dataset: Dataset) -> float | None:
    """R of Assumption 1 for sequences not yet seen: the one given, or the one stored with the data."""
    carried = None if dataset.norm_bound is None else max(1.0, dataset.norm_bound)
    return carried if token_radius is None else token_radius


def known_radius(token_radius: float | None, *datasets: Dataset | None) -> float:
    """R of Assumption 1: the one given, which must not be below a token's norm, or the largest norm seen."""
    seen = max(data.token_radius for data in datasets if data is not None)
    if token_radius is not None and not token_radius >= seen * (1 - 1e-12):
        raise ValueError(
            f"token_radius={token_radius:g} is below the largest token norm seen, {seen:g}; pass "
            "at least that."
        )
    return seen if token_radius is None else float(token_radius)
