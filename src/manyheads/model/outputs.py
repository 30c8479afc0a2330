r"""The softmax loss of a model with one score per label, in closed form.

With $P = A X$ the pooled tokens of every head and query, the score of output $o$ is $\langle U_o,
P\rangle$. The slopes $g_o$ of a sequence's loss fold its readouts into one, $\sum_o g_o U_o$; from
there on the gradient by the key-query weights is that of `model.gradient`, so the cost of an output
is that of its readout alone.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import (
    EACH_KEY,
    HIGHEST,
    Factored,
    Heads,
    MultiHead,
    full_key_query,
)
from manyheads.model.gradient import (
    Batch,
    Folded,
    Weights,
    attention_and_queries,
    head_weights,
    mean_and_rest,
    prepare,
)
from manyheads.model.loss import softmax


def _rows(readout: Any, decoder: str) -> jax.Array:
    """Readouts as (outputs, g, rows, d), with one row unless the decoder is full."""
    U = jnp.moveaxis(jnp.asarray(readout), 1, 0)
    return U if decoder == "full" else U[:, :, None, :]


def _pooled(folded: Folded, X, mask, last, rows: int, precision):
    """Attention, its top keys, the tokens that look, and P as (c, g, rows, d): summed over the queries that share a readout."""
    A, top, Xq = attention_and_queries(folded, X, mask, last, precision)
    P = jax.lax.dot_general(A, X, EACH_KEY, precision=precision)
    P = P.reshape(X.shape[0], folded.num_classes, Xq.shape[1], X.shape[2])
    return A, top, Xq, P if P.shape[2] == rows else P.sum(axis=2, keepdims=True)


def loss_and_gradient(
    heads: Heads,
    weights: Weights,
    batch: Batch,
    sample_weight: Any,
    *,
    decoder: str,
    precision: Any = HIGHEST,
) -> tuple[jax.Array, jax.Array, Heads]:
    r"""Loss $\sum_i w_i \ell_{y_i}(\Phi(X_i))$, the scores (n, outputs), and the gradient of one head of each class.

    `batch.labels` are the numbers of the labels, 0, 1, ... Pure: jit, vmap and jvp go through it.
    """
    U = _rows(heads.readout, decoder)
    folded = Folded.of(full_key_query(heads.key_query, precision), U, batch.last is not None)
    chunks, size = batch.labels.shape
    n = sample_weight.shape[0]
    padded = jnp.zeros(chunks * size, sample_weight.dtype).at[:n].set(sample_weight)
    by_class = U * weights.of_class[None, :, None, None]

    def one_chunk(carry, piece):
        total, dW, dU = carry
        (X, codes, mask, last), w = piece
        A, top, Xq, P = _pooled(folded, X, mask, last, U.shape[2], precision)
        scores = jnp.einsum("cgrd,ogrd->co", P, by_class, precision=precision)
        values, slopes = softmax(scores, codes)
        slopes = slopes * (w * weights.of_head)[:, None]
        dU = dU + jnp.einsum("co,cgrd->ogrd", slopes, P, precision=precision)
        folding = jnp.einsum("co,ogrd->cgrd", slopes, U, precision=precision)
        B = jnp.einsum("csd,cgrd->csgr", X, folding, precision=precision)
        B = jnp.broadcast_to(B, (*B.shape[:3], Xq.shape[1])).reshape(A.shape)
        D = A * mean_and_rest(A, top, B)[1]
        dW = dW + folded.key_query_sum(D, 1.0, X, Xq, precision)
        return (total + jnp.sum(w * values), dW, dU), scores

    zero = jnp.zeros((), batch.tokens.dtype)
    start = (zero, jnp.zeros_like(folded.key_query), jnp.zeros_like(U))
    pieces = (batch, padded.reshape(chunks, size))
    if chunks == 1:
        (total, dW, dU), scores = one_chunk(start, jax.tree.map(lambda a: a[0], pieces))
    else:
        (total, dW, dU), scores = jax.lax.scan(one_chunk, start, pieces)
    sums = Folded(dW, folded.readout, folded.num_classes, folded.by_query, folded.learned)
    by_key_query = sums.heads(U).key_query
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        by_key_query = Factored(
            jnp.einsum("gde,ger->gdr", by_key_query, key, precision=precision),
            jnp.einsum("gde,gdr->ger", by_key_query, query, precision=precision),
        )
    dU = jnp.moveaxis(dU, 0, 1).reshape(np.shape(heads.readout))
    return total, scores.reshape(chunks * size, -1)[:n], Heads(by_key_query, dU)


def batch_scores(
    heads: Heads, weights: Weights, batch: Batch, *, decoder: str, precision: Any = HIGHEST
) -> jax.Array:
    """Scores alone, (chunks * size, outputs), chunk by chunk."""
    U = _rows(heads.readout, decoder)
    folded = Folded.of(full_key_query(heads.key_query, precision), U, batch.last is not None)
    by_class = U * weights.of_class[None, :, None, None]

    def one_chunk(piece):
        P = _pooled(folded, piece.tokens, piece.mask, piece.last, U.shape[2], precision)[3]
        return jnp.einsum("cgrd,ogrd->co", P, by_class, precision=precision)

    return jax.lax.map(one_chunk, batch).reshape(-1, U.shape[0])


def scores(model: MultiHead, dataset: Dataset) -> np.ndarray:
    """The scores of every sequence by every output, in float64."""
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.heads)
        batch, weights = prepare(dataset, model), head_weights(model)
        found = _scores(heads, weights, batch, decoder=model.decoder)
        return np.asarray(found)[: dataset.num_examples]


_scores = jax.jit(batch_scores, static_argnames="decoder")
