"""One run of plain descent in float64, with its distances from the start and from any number of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.loss import Loss, get_loss
from manyheads.model.protocol import inner
from manyheads.theory.targets import Target
from manyheads.training.loop import Observer, View, descend
from manyheads.training.problem import check_descent, make_problem
from manyheads.training.rules import GD


@dataclass(frozen=True, eq=False)
class Walk:
    r"""What `follow` recorded at steps $0..K$; all norms are those of the full $H$-head model.

    `loss` $\hat L_k$, `gradient_norm` $\|\nabla\hat L_k\|$, `distance` $\|\theta_k-\theta_0\|$,
    `readout_norm` $\|U_k\|_{2,\infty}$ (NaN where there is no readout); and for each target, one
    row per target: `slope` $\langle\nabla\hat L_k,\theta-\theta_k\rangle$, `target_distance`
    $\|\theta-\theta_k\|$. `displacement` is the final one, `observed` what further observers
    returned. After a divergence everything is NaN.
    """

    start: Any
    step_size: float
    targets: tuple[Target, ...]
    loss: np.ndarray
    gradient_norm: np.ndarray
    distance: np.ndarray
    readout_norm: np.ndarray
    slope: np.ndarray
    target_distance: np.ndarray
    displacement: Any
    observed: dict[str, Any] = field(default_factory=dict)

    @property
    def num_steps(self) -> int:
        return len(self.loss) - 1

    @property
    def mean_loss(self) -> float:
        r"""$\frac1K\sum_{k=1}^K\hat L_k$."""
        return float(np.mean(self.loss[1:]))

    @property
    def final(self) -> Any:
        return self.start.displaced(self.displacement)


def follow(
    start: Any,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    targets: Sequence[Target] = (),
    loss: str | Loss = "logistic",
    sample_weight: np.ndarray | None = None,
    observe: Mapping[str, Observer] | None = None,
) -> Walk:
    """Run `num_steps` of plain gradient descent in float64 and record every step, without keeping the iterates.

    The results of further observers are in `Walk.observed`.
    """
    check_descent(start, dataset, num_steps, records=(8 + 2 * len(targets)) * num_steps)
    rule = GD(step_size)
    problem = make_problem(start, dataset, rule, get_loss(loss), sample_weight=sample_weight)
    watched = jax.tree.map(
        lambda leaf, *others: np.array([*others], np.float64).reshape(-1, *leaf.shape),
        problem.start,
        *(target.displacement for target in targets),
    )
    run, seen = descend(
        problem, {"walk": Observer(_look, None, (watched,)), **(observe or {})}, num_steps
    )
    value, gradient, distance, readout, slope, gap = seen.pop("walk")
    return Walk(
        start,
        step_size,
        tuple(targets),
        value,
        np.sqrt(gradient),
        np.sqrt(distance),
        readout,
        slope.T,
        np.sqrt(gap.T),
        run.displacement,
        seen,
    )


def _look(view: View, targets: Any) -> tuple[jax.Array, ...]:
    product = partial(inner, view.objective.copies)
    moved, gradient = view.displacement, view.gradient

    def toward(target):
        away = jax.tree.map(jnp.subtract, target, moved)
        return product(gradient, away), product(away, away)

    squares = product(gradient, gradient), product(moved, moved)
    return view.loss, *squares, view.readout_norm, *jax.vmap(toward)(targets)
