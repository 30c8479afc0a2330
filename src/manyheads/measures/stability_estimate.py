r"""A fast estimate of leave-one-out stability: descent in function space, with its error measured on a few exact runs.

The scores of the run without example i differ from those of the reference run by $\Delta_k$, which
moves by $\Delta_{k+1} = \Delta_k - \eta K_k (g^{-i}(f_k + \Delta_k) - g(f_k))$, where $f_k$ are the
exact scores of the reference run, $g$ the weighted slopes of the loss and $K_k$ its tangent kernel.
The kernel is computed at a few points of the run and taken constant between them, and the runs
without an example see the same kernel as the reference: exact where the kernel stands still (many
heads), otherwise an estimate whose error is measured. All examples are handled together, by one
matrix product a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads import _check
from manyheads._check import check, positive, real, whole
from manyheads.data.budget import FEWER, fits_memory
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures.kernel import MEMORY, tangent_kernel
from manyheads.measures.stability import Stability, choose_examples, leave_one_out
from manyheads.model.autodiff import is_model
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.training.loop import Observer, View, descend, displacement
from manyheads.training.problem import check_descent, make_problem
from manyheads.training.rules import GD


@dataclass(frozen=True, eq=False)
class StabilityEstimate:
    """Estimated distances and left-out losses at the last step, beside exact values for a few examples.

    `exact` holds the runs done again; `relative_error` is |estimate/exact − 1| for those, 0 where
    both are zero and infinite where only the exact one is. `correlation` is that between their
    estimated and exact distances; NaN where one of them does not vary.
    """

    distance: np.ndarray  # (n,)
    left_out_loss: np.ndarray  # (n,)
    num_steps: int
    num_kernels: int
    exact: Stability
    relative_error: np.ndarray
    correlation: float

    @property
    def average(self) -> float:
        """Estimated average stability over all examples."""
        return float(self.distance.mean())

    def __str__(self) -> str:
        n, m = len(self.distance), len(self.relative_error)
        text = (
            f"estimated leave-one-out at step {self.num_steps} from {self.num_kernels} kernels: "
            "average stability "
            f"{self.average:.6g}, times n {n * self.average:.4g}, left-out loss "
            f"{self.left_out_loss.mean():.6g}\n"
        )
        if m == 0:
            return f"{text}  error not measured: no exact run was finished"
        return (
            f"{text}  on {m} examples done exactly: relative error of the distance "
            f"{np.median(self.relative_error):.1%} (median), {self.relative_error.max():.1%} "
            "(largest), "
            + (
                f"correlation {self.correlation:.4f}"
                if np.isfinite(self.correlation)
                else "no spread to correlate"
            )
        )


@check(
    model=is_model,
    dataset=is_dataset,
    step_size=positive,
    num_steps=whole(),
    num_kernels=whole(),
    num_exact=whole(2),
    key=_check.key,
    loss=is_loss,
    memory=real(low=1e5),
)
def estimate_leave_one_out(
    model: Any,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    num_kernels: int = 8,
    num_exact: int = 5,
    key: jax.Array,
    loss: str | Loss = "logistic",
    memory: float = MEMORY,
) -> StabilityEstimate:
    """Estimate all n leave-one-out distances and losses at step `num_steps`; check `num_exact` of them by training."""
    n = dataset.num_examples
    if not 1 <= num_kernels <= num_steps:
        raise ValueError(f"num_kernels={num_kernels} must be between 1 and num_steps={num_steps}.")
    if not 2 <= num_exact <= n:
        raise ValueError(f"num_exact={num_exact} must be between 2 and the {n} examples there are.")
    loss = get_loss(loss)
    numbers = (2.0 * num_kernels + 6) * n * n + float(num_steps) * n
    fits_memory(
        f"{num_kernels:,} kernels of {n:,} examples and {num_steps:,} steps", 8 * numbers, FEWER
    )
    check_descent(model, dataset, num_steps, 1 + num_exact)
    distance, losses = screen(model, dataset, step_size, num_steps, num_kernels, loss, memory)
    chosen = choose_examples(n, num_exact, None, key)
    exact = leave_one_out(
        model,
        dataset,
        step_size=step_size,
        num_steps=num_steps,
        indices=chosen.tolist(),
        loss=loss,
    )
    # fewer than asked for after an interruption
    true, guess = (
        exact.distance[:, -1],
        distance[exact.indices],
    )
    vary = len(true) >= 2 and np.ptp(guess) > 0 and np.ptp(true) > 0
    correlation = float(np.corrcoef(guess, true)[0, 1]) if vary else np.nan
    ratio = np.where(guess == true, 1.0, np.inf)
    error = np.abs(np.divide(guess, true, out=ratio, where=true > 0) - 1)
    return StabilityEstimate(distance, losses, num_steps, num_kernels, exact, error, correlation)


def screen(
    model: Any,
    dataset: Dataset,
    step_size: float,
    num_steps: int,
    num_kernels: int,
    loss: Loss,
    memory=MEMORY,
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and left-out losses at the last step for all n examples, by the dynamics in function space alone."""
    ends, middles = _segments(num_steps, num_kernels)
    problem = make_problem(model, dataset, GD(step_size), loss)
    _, seen = descend(
        problem, {"scores": Observer(_scores), "moved": Observer(displacement, middles)}, num_steps
    )
    points = [jax.tree.map(lambda leaf, k=k: leaf[k], seen["moved"]) for k in range(len(middles))]
    kernels = np.stack(
        [tangent_kernel(model.displaced(p), dataset, memory=memory).matrix for p in points]
    )
    segment = np.searchsorted(ends, np.arange(num_steps), side="right")
    with jax.enable_x64(True):
        squares, last = _difference(
            kernels, seen["scores"], dataset.labels, float(step_size), segment, loss
        )
        losses = np.asarray(loss.value(jnp.asarray(dataset.labels * np.asarray(last))))
    return np.sqrt(np.maximum(np.asarray(squares), 0.0)), losses


def _scores(view: View) -> jax.Array:
    return view.scores


def _segments(num_steps: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends of `count` stretches of the run, shorter at the beginning where the kernel moves most, and their middles."""
    k = np.arange(count + 1)
    squares = np.round(num_steps * (k / count) ** 2).astype(int)
    # at least one step each
    bounds = np.maximum.accumulate(squares - k) + k
    return bounds[1:], ((bounds[:-1] + bounds[1:]) // 2).astype(np.int32)


@partial(jax.jit, static_argnums=5)
def _difference(kernels, scores, labels, step_size, segment, loss):
    r"""Squared distances, and the scores of the left-out examples at the last step, for all examples at once.

    Column i is the run without example i. The squared distance is $\eta^2 C^\top \sum_s K_s C_s$
    with $C_s$ the slopes added up in stretch s: inner products of gradients of two stretches are
    the mean of those within each.
    """
    n = labels.shape[0]
    y = labels[:, None]

    def step(state, now):
        delta, sums, total = state
        f, s = scores[now][:, None], segment[now]
        slopes = loss.slope(y * (f + delta)) * y / n
        change = slopes * (1 - jnp.eye(n)) - loss.slope(y * f) * y / n
        kernel = kernels[s]
        moved = kernel @ change
        return (delta - step_size * moved, sums + change, total + moved), None

    zero = jnp.zeros((n, n))
    (delta, sums, total), _ = jax.lax.scan(step, (zero, zero, zero), jnp.arange(len(segment)))
    squares = step_size**2 * jnp.sum(sums * total, axis=0)
    return squares, scores[-1] + jnp.diagonal(delta)
