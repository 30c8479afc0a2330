"""One run of plain descent in float64, watched from the start and from any number of targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.certificates.targets import Target, readout_repeat
from manyheads.data.dataset import Dataset
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare
from manyheads.model.loss import Loss, get_loss

STRETCH = 4096  # steps per compiled call; longer runs are cut into pieces of this length


@dataclass(frozen=True, eq=False)
class Walk:
    r"""What `follow` saw at steps $0..K$, all norms those of the full $H$-head model.

    `loss` $\hat L_k$, `gradient_norm` $\|\nabla\hat L_k\|$, `distance` $\|\theta_k-\theta_0\|$, `readout_norm`
    $\|U_k\|_{2,\infty}$; and for each target, one row per target: `slope` $\langle\nabla\hat
    L_k,\theta-\theta_k\rangle$,
    `target_distance` $\|\theta-\theta_k\|$. `displacement` is where it ended.
    """

    start: MultiHead
    step_size: float
    targets: tuple[Target, ...]
    loss: np.ndarray
    gradient_norm: np.ndarray
    distance: np.ndarray
    readout_norm: np.ndarray
    slope: np.ndarray
    target_distance: np.ndarray
    displacement: Heads

    @property
    def num_steps(self) -> int:
        return len(self.loss) - 1

    @property
    def mean_loss(self) -> float:
        r"""$\frac1K\sum_{k=1}^K\hat L_k$."""
        return float(np.mean(self.loss[1:]))

    @property
    def final(self) -> MultiHead:
        return self.start.displaced(self.displacement)


def follow(
    start: MultiHead,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    targets: Sequence[Target] = (),
    loss: str | Loss = "logistic",
    sample_weight: np.ndarray | None = None,
) -> Walk:
    """Run `num_steps` of plain gradient descent in float64 and record every step, without keeping the iterates."""
    if not num_steps >= 1:
        raise ValueError(f"num_steps={num_steps} must be a whole number >= 1.")
    if not (step_size > 0 and np.isfinite(step_size)):
        raise ValueError(f"step_size={step_size} must be a finite number > 0.")
    n = dataset.num_examples
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start.heads)
        weights, batch, watched = head_weights(start), prepare(dataset, start), _stack(targets, heads)
        sample = np.full(n, 1 / n) if sample_weight is None else np.asarray(sample_weight, np.float64)
        state = jax.tree.map(jnp.zeros_like, heads)
        pieces, done = [], 0
        while done <= num_steps:
            length = min(STRETCH, num_steps + 1 - done)
            last = done + length == num_steps + 1
            state, piece = _stretch(
                state, heads, weights, start.multiplicity, batch, sample, watched, np.float64(step_size),
                length=length, last=last, loss=get_loss(loss), repeat=readout_repeat(start, dataset),
            )  # fmt: skip
            pieces.append(jax.tree.map(np.asarray, piece))
            done += length
        seen = [np.concatenate(column) for column in zip(*pieces, strict=True)]
        value, gradient, distance, readout, slope, gap = seen
        return Walk(
            start, float(step_size), tuple(targets), value, np.sqrt(gradient), np.sqrt(distance), readout,
            slope.T, np.sqrt(gap.T), jax.tree.map(np.asarray, state),
        )  # fmt: skip


def _stack(targets: Sequence[Target], like: Heads) -> Heads:
    if not targets:
        return jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape)), like)
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(a) for a in leaves]), *(t.displacement for t in targets))


def _inner(counts, a: Heads, b: Heads):
    """Inner product of the full model: every class counts with its multiplicity."""
    total = 0.0
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        total = total + jnp.sum(counts * jnp.sum((x * y).reshape(x.shape[0], -1), axis=1))
    return total


@partial(jax.jit, static_argnames=("length", "last", "loss", "repeat"))
def _stretch(state, heads, weights, counts, batch, sample_weight, targets, eta, *, length, last, loss, repeat):
    def step(displacement, k):
        point = jax.tree.map(jnp.add, heads, displacement)
        value, _, gradient = loss_and_gradient(point, weights, batch, sample_weight, loss=loss)
        readout = jnp.sqrt(repeat * jnp.max(jnp.sum(point.readout.reshape(point.readout.shape[0], -1) ** 2, axis=1)))

        def look(target):
            away = jax.tree.map(jnp.subtract, target, displacement)
            return _inner(counts, gradient, away), _inner(counts, away, away)

        slope, gap = jax.vmap(look)(targets)
        seen = (
            value,
            _inner(counts, gradient, gradient),
            _inner(counts, displacement, displacement),
            readout,
            slope,
            gap,
        )
        moved = jax.tree.map(lambda d, g: d - eta * g, displacement, gradient)
        stay = last & (k == length - 1)  # the last record is of the last iterate, which takes no further step
        return jax.tree.map(lambda a, b: jnp.where(stay, a, b), displacement, moved), seen

    return jax.lax.scan(step, state, jnp.arange(length))
