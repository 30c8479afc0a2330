"""The fast loss and gradient: closed form, laid out for the machine, in chunks that stay in cache.

For one sequence X and one head (W, U), with S = X W Xᵀ, A = softmax of the rows of S and B = U Xᵀ,

    Φ = Σ_ts A_ts B_ts,   ∂Φ/∂U = A X,   ∂Φ/∂W = Xᵀ D X,   D_ts = A_ts (B_ts − Σ_s' A_ts' B_ts').

Where one key holds nearly all attention, both terms of its D cancel down to what the other keys
hold. So B is taken less its value at that key: no term is then larger than the result, and D has
the accuracy of A however small it becomes.

Arrays are [sequence, key s, (class g, query t)]: the softmax runs over an axis that is not the
last, so that the long last axis vectorizes. The products with W and with U, and both sums over
sequences, are one large matrix product each; only S and the product with D are made one sequence at
a time. W meets the keys and D the queries: with K = X Wᵀ, S is the product of K as [(s g), d] and
X, and Xᵀ D X that of X and D as [(s g), t] X, so that no factor and no result is moved in memory.

Precision: every product asks for `jax.lax.Precision.HIGHEST`. On a CPU that changes nothing; on a
GPU JAX's default would round the factors of a float32 product to tf32 (a mantissa of 10 bits),
which `train(..., dtype="tf32")` asks for.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from manyheads._check import checked, whole
from manyheads._types import AnyArray
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mapped import Mapped
from manyheads.model.attention import (
    EACH_KEY,
    EACH_PAIR,
    EACH_QUERY,
    EACH_ROW,
    EACH_TOKEN,
    HIGHEST,
    Factored,
    Heads,
    MultiHead,
    full_key_query,
)
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.model.streamed import Feed, Streamed
from manyheads.model.streamed import scan as streamed_scan

# intermediates of one chunk
CHUNK_BYTES = {"cpu": 4 * 2**20, "gpu": 512 * 2**20}


class Batch(NamedTuple):
    """A dataset on the device, cut into chunks of equal size (the last one padded with zeros)."""

    tokens: Any  # (chunks, size, T, d), an array or Streamed
    labels: AnyArray  # (chunks, size)
    mask: AnyArray | None  # (chunks, size, T)
    last: AnyArray | None  # (chunks, size): index of the last real token, for a last-token readout


class Weights(NamedTuple):
    """How many heads enter: N_g/H^c for the score of a class, H^-c for the gradient of one head."""

    of_class: AnyArray  # (classes,)
    of_head: AnyArray  # ()


def head_weights(model: MultiHead, dtype=np.float64) -> Weights:
    """N_g/H^c and H^-c, computed in float64 whatever the dtype they are used in."""
    scale = model.num_heads**-model.exponent
    return Weights(np.asarray(model.multiplicity * scale, dtype), np.asarray(scale, dtype))


def chunk_size(
    num_examples: int, num_tokens: int, dim: int, num_classes: int, itemsize: int, platform: str
) -> int:
    """Sequences per chunk: chunks of nearly equal size, whose intermediates fill the cache and no more."""
    per_sequence = num_tokens * num_classes * (3 * num_tokens + 2 * dim) * itemsize
    chunks = -(-num_examples * per_sequence // CHUNK_BYTES["cpu" if platform == "cpu" else "gpu"])
    return -(-num_examples // max(1, min(chunks, num_examples)))


def prepare(
    dataset: Dataset,
    model: MultiHead,
    dtype=np.float64,
    chunk: int | None = None,
    platform: str = "cpu",
    stream: bool = False,
) -> Batch:
    """Check that the model fits the data, pad and cut into chunks (NumPy; JAX places it where it runs).

    With `stream`, tokens that were left in place stay there (`model.streamed`).
    """
    n, T, d = checked("dataset", dataset, is_dataset).tokens.shape
    if model.dim != d or model.num_tokens not in (None, T):
        raise ValueError(
            f"the model is made for {model.num_tokens or 'any number of'} tokens in dimension "
            f"{model.dim}, "
            f"the data have {T} tokens in dimension {d}; make the model with num_tokens={T}, "
            f"dim={d}."
        )
    if chunk is not None:
        checked("chunk", chunk, whole())
    size = chunk or chunk_size(n, T, d, model.num_classes, np.dtype(dtype).itemsize, platform)
    size = min(size, n)
    tokens = (
        Streamed(Feed(dataset.tokens, size, dtype))
        if stream and isinstance(dataset.tokens, Mapped)
        else None
    )
    chunks = -(-n // size) if tokens is None else tokens.shape[0]

    def cut(array, fill):
        padded = np.full((chunks * size, *array.shape[1:]), fill, array.dtype)
        padded[:n] = array
        return padded.reshape(chunks, size, *array.shape[1:])

    mask = dataset.mask
    last = None
    if model.decoder == "last":
        last = np.full(n, T - 1) if mask is None else T - 1 - np.argmax(mask[:, ::-1], axis=1)
        last = cut(last.astype(np.int32), 0)
    return Batch(
        cut(dataset.tokens.astype(dtype), 0) if tokens is None else tokens,
        cut(dataset.labels.astype(dtype), 1),
        None if mask is None else cut(mask, True),
        last,
    )


class Folded(eqx.Module):
    """The parameters, or sums over sequences that become their gradient, as the large products take and leave them.

    Fold outside of a loop over chunks: inside, the compiler does it again for every chunk. W meets
    the keys first, or the queries, which is less work where one query is read.
    """

    key_query: (
        jax.Array
    )  # d of the key, (g, d of the query); `by_query`: d of the query, (g, d of the key)
    readout: jax.Array  # d, (g t), or d, g
    num_classes: int = eqx.field(static=True)
    by_query: bool = eqx.field(static=True)
    learned: bool = eqx.field(static=True, default=False)  # a query per class: key_query is d, g

    @classmethod
    def of(cls, W, U, by_query: bool) -> Folded:
        g, d = W.shape[0], W.shape[-1]
        if W.ndim == 2:
            return cls(W.T, U.reshape(-1, d).T, g, False, True)
        by_token = W.transpose((1, 0, 2) if by_query else (2, 0, 1)).reshape(d, g * d)
        return cls(by_token, U.reshape(-1, d).T, g, by_query)

    def queries(self, X, last):
        """The tokens that look: all, the last one of each sequence, or one that is the same in all."""
        if self.learned:
            return jnp.ones((X.shape[0], 1, 1), X.dtype)
        return X if last is None else jnp.take_along_axis(X, last[:, None, None], axis=1)

    def heads(self, like) -> Heads:
        """Unfolded; `like` is a readout."""
        d = len(self.readout)
        if self.learned:
            return Heads(self.key_query.T, self.readout.T.reshape(like.shape))
        dW = self.key_query.reshape(d, -1, d).transpose((1, 0, 2) if self.by_query else (1, 2, 0))
        return Heads(dW, self.readout.T.reshape(like.shape))

    def logits(self, X, Xq, precision):
        """x_t W x_s of the queries t and the keys s, as [c, s, (g t)]."""
        (c, T, d), q, g = X.shape, Xq.shape[1], self.num_classes
        dot = partial(jax.lax.dot_general, precision=precision)
        if self.learned:
            return dot(X, self.key_query, EACH_TOKEN)
        if self.by_query:
            Q = dot(Xq, self.key_query, EACH_TOKEN).reshape(c, q * g, d)
            return swapped(dot(X, Q, EACH_PAIR), g)
        K = dot(X, self.key_query, EACH_TOKEN).reshape(c, T * g, d)
        return dot(K, Xq, EACH_PAIR).reshape(c, T, g * q)

    def readouts(self, X, num_queries: int, precision):
        """u_t x_s as [c, s, (g t)]; a pooled readout u is that of every query."""
        (c, T, _), q, g = X.shape, num_queries, self.num_classes
        B = jax.lax.dot_general(X, self.readout, EACH_TOKEN, precision=precision)
        return (
            B
            if B.shape[2] == g * q
            else jnp.broadcast_to(B[..., None], (c, T, g, q)).reshape(c, T, g * q)
        )

    def key_query_sum(self, D, weight, X, Xq, precision):
        """The sum over sequences of x_t D_ts x_sᵀ, laid out as `key_query`."""
        (c, T, d), q, g = X.shape, Xq.shape[1], self.num_classes
        dot = partial(jax.lax.dot_general, precision=precision)
        if self.learned:
            return dot(weight * X, D, EACH_ROW)
        if self.by_query:
            by_key = dot(swapped(D, q), X, EACH_KEY).reshape(c, q, g * d)
            return dot(weight * Xq, by_key, EACH_ROW)
        by_query = dot(D.reshape(c, T * g, q), Xq, EACH_QUERY).reshape(c, T, g * d)
        return dot(weight * X, by_query, EACH_ROW)

    def plus(self, D, A, weight, X, Xq, precision) -> Folded:
        """With the terms x_t D_ts x_sᵀ and A_ts x_s of one chunk, D and A as [c, s, (g t)], weighted by sequence."""
        (c, T, d), q, g = X.shape, Xq.shape[1], self.num_classes
        dot = partial(jax.lax.dot_general, precision=precision)
        # one row for all queries
        if self.readout.shape[1] < g * q:
            A = A.reshape(c, T, g, q).sum(axis=3)
        dW = self.key_query_sum(D, weight, X, Xq, precision)
        if (
            self.by_query and A.shape[2] < d
        ):  # the left factor is transposed: the narrower one, behind a barrier
            dU = jax.lax.optimization_barrier(dot(A, weight * X, EACH_ROW)).T
        else:
            # the tokens are transposed for dW already
            dU = dot(weight * X, A, EACH_ROW)
        return Folded(self.key_query + dW, self.readout + dU, g, self.by_query, self.learned)


def swapped(M, count: int):
    """Columns (i j), j of this count, in the order (j i)."""
    if count in (1, M.shape[-1]):
        return M
    return M.reshape(*M.shape[:-1], -1, count).swapaxes(-1, -2).reshape(M.shape)


def attention_and_queries(folded: Folded, X, mask, last, precision, keys=None):
    """The attention of one chunk as [c, s, (g t)], which keys hold most of it, and the tokens t that look."""
    (c, T, _), g = X.shape, folded.num_classes
    Xq = folded.queries(X, last)
    q = Xq.shape[1]
    S = folded.logits(X if keys is None else keys, Xq, precision)
    if mask is not None:
        S = jnp.where(mask[:, :, None], S, -jnp.inf)
    E = jnp.exp(S - jax.lax.stop_gradient(jnp.max(S, axis=1, keepdims=True)))
    A, top = E / jnp.sum(E, axis=1, keepdims=True), E == 1
    if mask is not None and q == T:
        A = (A.reshape(c, T, g, q) * mask[:, None, None, :].astype(A.dtype)).reshape(c, T, g * q)
        top = (top.reshape(c, T, g, q) & mask[:, None, None, :]).reshape(c, T, g * q)
    return A, top, Xq


def mean_and_rest(A, top, B):
    """The mean of B under the attention, and B less that mean, exact where the attention is nearly all on one key."""
    most = jnp.max(jnp.where(top, B, -jnp.inf), axis=1, keepdims=True)
    # of a masked query, 0
    most = jax.lax.stop_gradient(jnp.where(jnp.isneginf(most), 0.0, most))
    above = B - most
    mean = jnp.sum(A * above, axis=1, keepdims=True)
    return (most + mean)[:, 0], above - mean


def scores_and_parts(folded: Folded, of_class, X, mask, last, precision, keys=None):
    """Scores of one chunk and what its gradient needs: A, B and B less its mean as [c, s, (g t)], and the query tokens.

    With `keys`, other tokens are looked at and read out than those that look.
    """
    c, g = X.shape[0], folded.num_classes
    A, top, Xq = attention_and_queries(folded, X, mask, last, precision, keys)
    q = Xq.shape[1]
    B = folded.readouts(X if keys is None else keys, q, precision)
    # c, (g t): the part of each query in the score
    phi, rest = mean_and_rest(A, top, B)
    by_class = phi.reshape(c, g, q).sum(axis=2) * of_class.astype(phi.dtype)[None, :]
    # Without the barrier multiply and add may fuse; equal classes of opposite sign would not cancel to the last bit.
    scores = jax.lax.optimization_barrier(by_class).sum(axis=1)
    return scores, A, B, rest, Xq


def loss_and_gradient(
    heads: Heads,
    weights: Weights,
    batch: Batch,
    sample_weight: Float[AnyArray, "n"],
    *,
    loss: Loss = LOGISTIC,
    precision=HIGHEST,
) -> tuple[jax.Array, jax.Array, Heads]:
    r"""Loss $\sum_i w_i \ell(y_i \tilde\Phi(X_i))$, the scores, and the gradient of one head of each class.

    Pure: jit, vmap and jvp go through it. With $w_i = 1/n$ it is the train loss; a zero leaves a
    sequence out.
    """
    return evaluate(heads, weights, batch, sample_weight, loss=loss, precision=precision)[:3]


def evaluate(
    heads: Heads,
    weights: Weights,
    batch: Batch,
    sample_weight: Float[AnyArray, "n"],
    relevant: AnyArray | None = None,
    due: AnyArray | bool = True,
    *,
    loss: Loss = LOGISTIC,
    precision=HIGHEST,
) -> tuple[jax.Array, jax.Array, Heads, jax.Array | None]:
    """`loss_and_gradient`, and the mean attention that falls on `relevant` tokens, over sequences of positive weight.

    The mass is None without relevant tokens, and zero where it is not `due`.
    """
    U = jnp.asarray(heads.readout)
    folded = Folded.of(full_key_query(heads.key_query, precision), U, batch.last is not None)
    g = folded.num_classes
    chunks, size = batch.labels.shape
    n = sample_weight.shape[0]
    padded = (
        jnp.zeros(chunks * size, sample_weight.dtype)
        .at[:n]
        .set(sample_weight)
        .reshape(chunks, size)
    )

    def one_chunk(carry, piece):
        total, sums, mass = carry
        (X, y, mask, last), w, flags = piece
        scores, A, _, rest, Xq = scores_and_parts(
            folded, weights.of_class, X, mask, last, precision
        )
        margins = y * scores
        total = total + jnp.sum(w * loss.value(margins))
        slope = (w * loss.slope(margins) * y * weights.of_head)[:, None, None]
        sums = sums.plus(A * rest, A, slope, X, Xq, precision)
        if flags is not None:
            looked = partial(_mass_of_chunk, flags=flags, use=w > 0, mask=mask, num_classes=g)
            mass = mass + jax.lax.cond(due, looked, lambda A: jnp.zeros(g, A.dtype), A)
        return (total, sums, mass), scores

    dtype = batch.tokens.dtype
    none = None if relevant is None else jnp.zeros(g, dtype)
    start = (
        jnp.zeros((), dtype),
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), folded),
        none,
    )
    pieces = (batch, padded, relevant)
    if isinstance(batch.tokens, Streamed):
        (total, sums, mass), scores = streamed_scan(one_chunk, start, pieces)
    elif chunks == 1:
        (total, sums, mass), scores = one_chunk(start, jax.tree.map(lambda a: a[0], pieces))
    else:
        (total, sums, mass), scores = jax.lax.scan(one_chunk, start, pieces)
    dW, dU = sums.heads(U)
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        dW = Factored(
            jnp.einsum("gde,ger->gdr", dW, key, precision=precision),
            jnp.einsum("gde,gdr->ger", dW, query, precision=precision),
        )
    mass = None if mass is None else mass / jnp.sum(sample_weight > 0)
    return total, scores.reshape(-1)[:n], Heads(dW, dU), mass


def batch_scores(
    heads: Heads, weights: Weights, batch: Batch, num_examples: int, *, precision=HIGHEST
) -> Float[Array, "n"]:
    """Scores alone, chunk by chunk."""
    W, U = full_key_query(heads.key_query, precision), jnp.asarray(heads.readout)
    folded = Folded.of(W, U, batch.last is not None)

    def one_chunk(piece):
        return scores_and_parts(
            folded, weights.of_class, piece.tokens, piece.mask, piece.last, precision
        )[0]

    if isinstance(batch.tokens, Streamed):
        found = streamed_scan(lambda carry, piece: (carry, one_chunk(piece[0])), None, (batch,))[1]
    else:
        found = jax.lax.map(one_chunk, batch)
    return found.reshape(-1)[:num_examples]


class AttentionObjective(eqx.Module):
    """The objective of a MultiHead (`model.protocol`): the closed form on a prepared batch."""

    weights: Weights
    batch: Batch
    copies: AnyArray
    relevant: AnyArray | None  # (chunks, size, T)
    num_examples: int = eqx.field(static=True)

    @property
    def labels(self) -> AnyArray:
        return self.batch.labels.reshape(-1)[: self.num_examples]

    def scores(self, parameters: Heads) -> jax.Array:
        return batch_scores(parameters, self.weights, self.batch, self.num_examples)

    def loss_and_gradient(
        self,
        parameters: Heads,
        sample_weight: AnyArray,
        *,
        loss: Loss = LOGISTIC,
        precision=HIGHEST,
    ) -> tuple[jax.Array, jax.Array, Heads]:
        return loss_and_gradient(
            parameters, self.weights, self.batch, sample_weight, loss=loss, precision=precision
        )

    def evaluate(
        self,
        parameters: Heads,
        sample_weight: AnyArray,
        due,
        *,
        loss: Loss = LOGISTIC,
        precision=HIGHEST,
    ):
        *found, mass = evaluate(
            parameters,
            self.weights,
            self.batch,
            sample_weight,
            self.relevant,
            due,
            loss=loss,
            precision=precision,
        )
        return *found, {} if mass is None else {"attention_mass": mass}

    def measured(self, parameters: Heads) -> dict[str, jax.Array]:
        r"""`readout_norm` $= \max_h \|U_h\|_F$; a pooled readout stands for $U = 1_T u^\top$."""
        W, U = parameters
        # one query reads once
        learned = getattr(W, "ndim", 3) == 2
        pooled = U.ndim == 2 and self.batch.last is None and not learned
        repeat = self.batch.tokens.shape[-2] if pooled else 1
        return {
            "readout_norm": jnp.sqrt(
                repeat * jnp.max(jnp.sum(U.reshape(U.shape[0], -1) ** 2, axis=1))
            )
        }

    def replaced(self, i: AnyArray, other: AttentionObjective) -> AttentionObjective:
        where = self._resident()._place(i)
        batch = jax.tree.map(lambda a, b: a.at[where].set(b[where]), self.batch, other.batch)
        return AttentionObjective(self.weights, batch, self.copies, None, self.num_examples)

    def some(self, indices: AnyArray) -> AttentionObjective:
        where = self._resident()._place(indices)
        chosen = jax.tree.map(lambda a: jnp.asarray(a)[where][None], self.batch)
        return AttentionObjective(self.weights, chosen, self.copies, None, indices.shape[0])

    def _resident(self) -> AttentionObjective:
        if isinstance(self.batch.tokens, Streamed):
            raise ValueError(
                "this needs single sequences of data that are read block by block; pass a part "
                "that fits in memory, "
                "dataset.subset(range(10_000)) say, or a smaller file."
            )
        return self

    def _place(self, i: AnyArray) -> tuple[AnyArray, AnyArray]:
        size = self.batch.labels.shape[1]
        return i // size, i % size


def attention_objective(
    model: MultiHead,
    dataset: Dataset,
    dtype=np.float64,
    chunk: int | None = None,
    platform: str = "cpu",
) -> AttentionObjective:
    """`MultiHead.objective`, in NumPy."""
    batch, weights = (
        prepare(dataset, model, dtype, chunk, platform, stream=True),
        head_weights(model, dtype),
    )
    if not weights.of_head > 0:
        raise ValueError(
            f"H^-{model.exponent:g} is zero in {np.dtype(dtype)}; no head would move. Pass a "
            "smaller exponent."
        )
    relevant = None
    if dataset.relevant is not None:
        relevant = np.zeros((batch.labels.size, dataset.num_tokens), bool)
        relevant[: dataset.num_examples] = dataset.relevant
        relevant = relevant.reshape(*batch.labels.shape, -1)
    copies = model.multiplicity.astype(dtype)
    return AttentionObjective(weights, batch, copies, relevant, dataset.num_examples)


def _mass_of_chunk(A, flags, use, mask, num_classes: int) -> jax.Array:
    """Sum over the sequences in use of the share of their real queries' attention that falls on flagged tokens."""
    c, T, columns = A.shape
    by_token = A.reshape(c, T, num_classes, columns // num_classes).sum(axis=3)
    on_flagged = jnp.sum(jnp.where(flags[:, :, None], by_token, 0.0), axis=1)
    queries = (
        columns // num_classes
        if mask is None or columns // num_classes < T
        else mask.sum(axis=1, keepdims=True)
    )
    return jnp.sum(jnp.where(use[:, None], on_flagged / queries, 0.0), axis=0)
