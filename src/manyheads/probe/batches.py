"""Adam on mini-batches, for data on which L-BFGS would take minutes; tokens may stay in a file.

One compiled loop runs over a block of batches with all columns at once (`columns.chunk_terms`), so that several
probes can share every read. Batches have a fixed order: the same data give the same probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.probe.columns import Chunk, Shape, chunk_terms, losses_and_slopes, pooled
from manyheads.probe.problem import Kind
from manyheads.probe.sequences import Layout, Sequences
from manyheads.probe.start import far_tokens

BATCH = 256  # sequences
BLOCK = 64  # batches that are read, standardized and moved to the device together
HELD = 10_000  # sequences at most that are held out, a tenth of few
EPOCHS = 30  # at most
RATES = (
    0.02,
    0.006,
    0.002,
)  # of Adam; each is used until the held-out loss has not fallen for an epoch
EVERY = 400_000  # sequences after which the held-out loss is asked for, within long epochs
DECAYS = (0.9, 0.999)
LEAST_FALL = 1e-3  # share of the held-out loss that counts as falling


def fit(
    kind: Kind,
    penalty: float,
    layout: Layout,
    sequences: Sequences,
    codes: np.ndarray,
    weight: np.ndarray,
    num_classes: int,
    tell: Callable[[str], None],
) -> tuple[np.ndarray, float, float, int, bool, str]:
    """Parameters of one column, loss, slope, steps, whether the held-out loss had stopped falling, and the method."""
    count = len(codes)
    shape = Shape(kind.heads, layout.features, 1 if num_classes == 2 else num_classes)
    order = np.random.default_rng(0).permutation(count)  # a fixed order, mixed
    held = np.sort(order[: min(HELD, count // 10)])
    order = order[len(held) :]
    reads = partial(_blocks, sequences, codes, weight * count, layout)
    some = np.sort(order[: max(BATCH, 2_000)])
    queries = np.zeros((kind.heads, layout.features))
    if kind.spread:
        features = layout.read(sequences.take(some))
        queries = kind.spread * far_tokens(features, sequences.mask[some], kind.heads)
    theta = np.zeros((1, shape.size), np.float32)
    theta[0, : queries.size] = queries.ravel()
    state = (jnp.asarray(theta), jnp.zeros_like(theta), jnp.zeros_like(theta), 0)
    best, best_loss, level, since = state[0], np.inf, 0, 0
    loss = np.inf
    steps = 0
    for epoch in range(EPOCHS):
        for block in reads(order):
            state = _run(state, block, shape, penalty, RATES[level])
            steps += len(block[0])
            since += block[0].shape[0] * BATCH
            if since < min(EVERY, len(order)):
                continue
            since = 0
            loss = _held_loss(state[0], reads(held), shape)
            tell(f"epoch {epoch + 1}: held-out loss {loss:.4f}")
            if loss < best_loss * (1 - LEAST_FALL):
                best, best_loss = state[0], loss
            else:  # from the best point on, with smaller steps
                level += 1
                if level == len(RATES):
                    break
                state = (best, *state[1:])
        if level == len(RATES):
            break
    final = np.asarray(best, np.float64)[0]
    return final, float(best_loss), np.nan, steps, level == len(RATES), "Adam"


def _blocks(sequences, codes, weight, layout, order) -> Iterator[tuple[np.ndarray, ...]]:
    """Features, mask, codes and weights as (batches, sequences, ...), the last batch filled up with weight zero."""
    size = BATCH * BLOCK
    for first in range(0, len(order), size):
        where = order[first : first + size]
        batches = -(-len(where) // BATCH)
        if first:  # one shape for all blocks but a single one: nothing is compiled anew
            batches = BLOCK
        fill = batches * BATCH - len(where)
        block = layout.read(sequences.take(where), np.float32)
        parts = (block, sequences.mask[where], codes[where], weight[where].astype(np.float32))
        cut = []
        for k, part in enumerate(parts):
            padded = np.concatenate([part, np.repeat(part[:1], fill, axis=0)])
            if k == 3 and fill:
                padded[-fill:] = 0.0
            cut.append(padded.reshape(batches, BATCH, *part.shape[1:]))
        yield tuple(cut)


@partial(jax.jit, static_argnames="shape")
def _run(state, block, shape: Shape, penalty, rate):
    """Adam over the batches of a block."""

    def step(state, batch):
        theta, first, second, count = state
        features, mask, codes, weight = batch
        chunk = Chunk(None, features, mask, codes)  # ty: ignore[invalid-argument-type]
        used = jnp.broadcast_to(weight[None] / BATCH, (theta.shape[0], BATCH))
        _, gradient, _ = chunk_terms(theta, shape, chunk, used, jnp)
        gradient = gradient + 2.0 * penalty * theta
        first = DECAYS[0] * first + (1 - DECAYS[0]) * gradient
        second = DECAYS[1] * second + (1 - DECAYS[1]) * gradient**2
        count = count + 1
        size = rate * jnp.sqrt(1 - DECAYS[1] ** count) / (1 - DECAYS[0] ** count)
        theta = theta - size * first / (jnp.sqrt(second) + 1e-8)
        return (theta, first, second, count), None

    return jax.lax.scan(step, state, block)[0]


def _held_loss(theta, blocks, shape: Shape) -> float:
    total, mass = 0.0, 0.0
    for block in blocks:
        found = _losses(theta, block, shape)
        total, mass = total + float(found[0]), mass + float(found[1])
    return total / mass


@partial(jax.jit, static_argnames="shape")
def _losses(theta, block, shape: Shape):
    """Weighted sum of the losses of a block, and of the weights."""

    def one(batch):
        features, mask, codes, weight = batch
        queries, values = shape.split(theta)
        _, P = pooled(queries, features, mask, jnp)
        scores = P.reshape(len(codes), -1) @ values[0]
        return jnp.sum(losses_and_slopes(scores, codes, jnp)[0] * weight), jnp.sum(weight)

    total, mass = jax.lax.map(one, block)
    return jnp.sum(total), jnp.sum(mass)
