r"""Many probes at once: loss and gradient of every candidate and fold, as columns of the same matrix products.

A column is one probe: queries $q_h$ and values $v_{ho}$ for heads $h$ and outputs $o$, with the scores

    $$z_o(X) = \sum_h \langle v_{ho}, X^\top \operatorname{softmax}(X q_h)\rangle.$$

A fold is a weight per sequence and column, so folds and candidates share every read of the tokens. The formulas are
written once, with `xp` either NumPy (L-BFGS on data that fit: nothing to compile) or `jax.numpy` (mini-batches).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

CHUNK_BYTES = (
    2**18
)  # of the attention of one chunk; above, arrays leave the cache and memory is mapped anew


class Chunk(NamedTuple):
    """Sequences of similar length, padded to the longest of them."""

    where: np.ndarray  # their numbers in the data
    tokens: np.ndarray  # (sequences, tokens, features)
    mask: np.ndarray | None  # (sequences, tokens)
    targets: np.ndarray  # (sequences,) codes of the labels


@dataclass(frozen=True)
class Shape:
    """Sizes of a column; its parameters are one vector, queries first."""

    heads: int
    features: int
    outputs: int  # one for two labels, else one per label

    @property
    def queries(self) -> int:
        return self.heads * self.features

    @property
    def size(self) -> int:
        return self.queries * (1 + self.outputs)

    def split(self, theta: Any) -> tuple[Any, Any]:
        """Queries (columns, heads, features) and values (columns, heads * features, outputs)."""
        columns = theta.shape[0]
        queries = theta[:, : self.queries].reshape(columns, self.heads, self.features)
        return queries, theta[:, self.queries :].reshape(columns, self.queries, self.outputs)


def cut(tokens: np.ndarray, mask: np.ndarray, targets: np.ndarray, columns: int) -> list[Chunk]:
    """The data as chunks, for that many columns of attention; shorter sequences come first."""
    lengths = mask.shape[1] - np.argmax(mask[:, ::-1], axis=1)
    order = np.argsort(lengths, kind="stable")
    chunks = []
    first = 0
    while first < len(order):
        entries = columns * lengths[order[first]]
        count = max(1, CHUNK_BYTES // (tokens.itemsize * max(1, int(entries))))
        where = order[first : first + count]
        longest = lengths[where[-1]]
        real = mask[where, :longest]
        piece = np.ascontiguousarray(tokens[where, :longest])
        chunks.append(Chunk(where, piece, None if real.all() else real, targets[where]))
        first += count
    return chunks


def pooled(queries: Any, tokens: Any, mask: Any, xp: Any) -> tuple[Any, Any]:
    """Attention (sequences, tokens, columns * heads) and what it pools (sequences, columns * heads, features)."""
    count, length, features = tokens.shape
    flat = queries.reshape(-1, features)
    S = (tokens.reshape(-1, features) @ flat.T).reshape(count, length, -1)
    E = xp.exp(S - xp.max(S, axis=1, keepdims=True))
    if mask is not None:
        # Masked after the maximum, which only has to keep the exponential finite.
        E = E * mask[:, :, None]
    A = E / xp.sum(E, axis=1, keepdims=True)
    return A, xp.swapaxes(A, 1, 2) @ tokens


def losses_and_slopes(scores: Any, targets: Any, xp: Any) -> tuple[Any, Any]:
    """Loss of each sequence and its slope by each score; `scores` is (..., sequences, outputs)."""
    if scores.shape[-1] == 1:
        sign = xp.where(targets == 1, 1.0, -1.0).astype(scores.dtype)
        sign = sign.reshape((1,) * (scores.ndim - 2) + (-1, 1))
        small = xp.exp(-xp.abs(scores))
        loss = xp.log1p(small) + xp.maximum(-sign * scores, 0.0)
        up = xp.where(sign * scores > 0, small, 1.0) / (1.0 + small)
        return loss[..., 0], -sign * up
    top = xp.max(scores, axis=-1, keepdims=True)
    E = xp.exp(scores - top)
    total = xp.sum(E, axis=-1, keepdims=True)
    hot = (targets[:, None] == xp.arange(scores.shape[-1])[None, :]).astype(scores.dtype)
    hot = hot.reshape((1,) * (scores.ndim - 2) + hot.shape)  # JAX's tests allow no promotion
    loss = xp.log(total[..., 0]) + top[..., 0] - xp.sum(hot * scores, axis=-1)
    return loss, E / total - hot


def chunk_terms(
    theta: Any, shape: Shape, chunk: Chunk, weight: Any, xp: Any
) -> tuple[Any, Any, Any]:
    """Weighted loss of every column, its gradient, and the scores (columns, sequences, outputs).

    `weight` is (columns, sequences).
    """
    queries, values = shape.split(theta)
    columns, heads, features = queries.shape
    _, X, mask, targets = chunk
    count, length = X.shape[:2]
    A, P = pooled(queries, X, mask, xp)
    P = xp.swapaxes(P.reshape(count, columns, heads * features), 0, 1)
    scores = P @ values
    losses, slopes = losses_and_slopes(scores, targets, xp)
    slopes = slopes * weight[:, :, None]
    by_values = xp.swapaxes(P, 1, 2) @ slopes
    G = slopes @ xp.swapaxes(values, 1, 2)
    G = xp.swapaxes(G, 0, 1).reshape(count, columns * heads, features)
    B = X @ xp.swapaxes(G, 1, 2)
    D = A * (B - xp.sum(A * B, axis=1, keepdims=True))
    by_queries = D.reshape(count * length, -1).T @ X.reshape(count * length, -1)
    gradient = xp.concatenate(
        [by_queries.reshape(columns, -1), by_values.reshape(columns, -1)], axis=1
    )
    return xp.sum(weight * losses, axis=1), gradient, scores


def evaluate(
    theta: np.ndarray,
    shape: Shape,
    chunks: Sequence[Chunk],
    weight: np.ndarray,
    penalty: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Penalized loss (columns,) and gradient (columns, parameters) of every column."""
    weight = weight.astype(theta.dtype)
    value = penalty * np.sum(theta**2, axis=1, dtype=np.float64)
    gradient = (2.0 * penalty[:, None] * theta).astype(theta.dtype)
    for chunk in chunks:
        loss, slope, _ = chunk_terms(theta, shape, chunk, weight[:, chunk.where], np)
        value += loss  # in float64, whatever the precision of the rest
        gradient += slope
    return value, gradient


def scores(theta: np.ndarray, shape: Shape, chunks: Sequence[Chunk]) -> np.ndarray:
    """Scores (columns, sequences, outputs) of every column."""
    queries, values = shape.split(theta)
    total = sum(len(chunk.where) for chunk in chunks)
    found = np.empty((len(theta), total, shape.outputs))
    for chunk in chunks:
        _, P = pooled(queries, chunk.tokens, chunk.mask, np)
        P = np.swapaxes(P.reshape(len(chunk.where), len(theta), -1), 0, 1)
        found[:, chunk.where] = P @ values
    return found
