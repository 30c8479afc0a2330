r"""How far attention has moved from uniform along a run, and what moved it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.theory.walk import Walk, follow
from manyheads.training.loop import Observer, View


class Shift(NamedTuple):
    r"""What was measured at steps $0..K$ of a run.

    `moved` is the largest share of a query's attention that is no longer where it started, over
    queries and heads; `travel` is $G_k=\eta\sum_{j<k}\frac1n\sum_i|\ell'_i|$; `key_query` and
    `readout` are the largest distances of a head's $W_h$ and $U_h$ from their start,
    `total_readout` that of all readouts together.
    """

    moved: np.ndarray
    travel: np.ndarray
    key_query: np.ndarray
    readout: np.ndarray
    total_readout: np.ndarray
    walk: Walk


def attention_shift(
    start: MultiHead, dataset: Dataset, *, step_size: float, num_steps: int
) -> Shift:
    """Plain descent from a start with uniform attention (W = 0), measured at every step."""
    watch = Observer(_look, None, (dataset.tokens.astype(float), dataset.labels.astype(float)))
    walk = follow(
        start, dataset, step_size=step_size, num_steps=num_steps, observe={"shift": watch}
    )
    moved, slope, W, U, total = walk.observed["shift"]
    travel = step_size * np.concatenate([[0.0], np.cumsum(slope[:-1])])
    return Shift(moved, travel, W, U, total, walk)


def from_uniform(W: jax.Array, tokens: jax.Array) -> jax.Array:
    """The largest total variation distance of a query's attention from uniform, over classes of heads."""
    logits = jnp.einsum("ntd,gde,nse->gnts", tokens, W, tokens, precision=jax.lax.Precision.HIGHEST)
    weights = jax.nn.softmax(logits, axis=-1)
    return jnp.max(jnp.sum(jnp.abs(weights - 1 / tokens.shape[1]), axis=-1)) / 2


def _look(view: View, tokens: jax.Array, labels: jax.Array) -> tuple[jax.Array, ...]:
    squares = [jnp.sum(jnp.square(leaf), axis=(1, 2)) for leaf in view.displacement]
    total = jnp.sum(view.objective.copies * squares[1])
    slope = jnp.mean(jax.nn.sigmoid(-labels * view.scores))
    return (
        from_uniform(view.point.key_query, tokens),
        slope,
        *(jnp.sqrt(jnp.max(s)) for s in squares),
        jnp.sqrt(total),
    )
