r"""Hessian-vector products of the train loss in class coordinates; what all of them share is computed once.

In coordinates $\vartheta_g = \sqrt{N_g}\,\theta_g$ the Hessian restricted to class-constant
directions is symmetric: $$\nabla^2 \hat L = \sum_i \kappa_i\, \nabla\tilde\Phi_i
\nabla\tilde\Phi_i^\top + \operatorname{diag}_g\big(H^{-c} B_g\big), \qquad B_g = \sum_i \sigma_i
\nabla^2\Phi(X_i; \theta_g),$$ with $\sigma_i = w_i \ell'(m_i) y_i$ and $\kappa_i = w_i
\ell''(m_i)$. Members of a class that move against each other see $H^{-c} B_g$ alone, with
multiplicity $N_g - 1$: together that is the whole spectrum of the H-head Hessian. The attention $A$
and the centered readout $C = B - \phi$ of every sequence are kept, so that a product costs as much
as a gradient. That is for the paper's model, of which one block may be frozen; any other one goes
through autodiff.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse.linalg import LinearOperator

from manyheads._check import check
from manyheads.data.budget import fits_memory
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.model.attention import HIGHEST, Factored, Heads, full_key_query
from manyheads.model.autodiff import (
    as_model,
    flatten,
    float64,
    hessian_product,
    is_model,
    unflatten,
)
from manyheads.model.gradient import (
    Batch,
    Folded,
    Weights,
    batch_scores,
    head_weights,
    loss_and_gradient,
    prepare,
    scores_and_parts,
)
from manyheads.model.loss import SCORE, Loss, get_loss, is_loss
from manyheads.model.variants import attention_of, filled, trained

# attention and centered readout are kept up to here, and computed again for every product beyond
KEPT_BYTES = 1e9


class HessianOperator(LinearOperator):
    """A Hessian in class coordinates as a symmetric matrix of order `size`, in float64: a SciPy operator.

    `HessianOperator.of_loss(model, data)` is that of the train loss, `of_score` that of the scores.
    `operator @ v`, or `dense()`, or any function of SciPy's sparse linear algebra: `eigsh(operator,
    k=5)`. `direction(v)` is a vector as a move of the parameters. `counts` is how many copies every
    class stands for; a model without classes is one class with one copy.
    """

    def __init__(self, point: Any, counts: np.ndarray):
        with jax.enable_x64(True):
            self.point, self.counts = jax.device_put(point), counts
        self.size = sum(leaf.size for leaf in jax.tree.leaves(point.parameters))
        self.products = 0
        super().__init__(np.float64, (self.size, self.size))

    @classmethod
    @check(model=is_model, dataset=is_dataset, loss=is_loss)
    def of_loss(
        cls, model: Any, dataset: Dataset, loss: str | Loss = "logistic"
    ) -> HessianOperator:
        """The Hessian of the train loss of any model."""
        n = dataset.num_examples
        return cls._weighted(as_model(model), dataset, get_loss(loss), np.full(n, 1 / n))

    @classmethod
    @check(model=is_model, dataset=is_dataset)
    def of_score(cls, model: Any, dataset: Dataset) -> HessianOperator:
        """The Hessian of the summed scores of all sequences (take a data set of one for one sequence)."""
        return cls._weighted(as_model(model), dataset, SCORE, dataset.labels)

    @classmethod
    def _weighted(cls, model, dataset, loss, sample_weight) -> HessianOperator:
        counts = np.ones(1) if model.copies is None else model.copies
        parameters, full, root = float64(model.parameters), attention_of(model), np.sqrt(counts)
        if full is None:
            objective = model.objective(dataset)
            return cls(AutodiffPoint(parameters, root, objective, sample_weight, loss), counts)
        heads, batch, weights = float64(full.heads), prepare(dataset, full), head_weights(full)
        padded = np.zeros(batch.labels.size)
        padded[: len(sample_weight)] = sample_weight
        padded = padded.reshape(batch.labels.shape)
        with jax.enable_x64(True):
            sigma, kappa = _sample_weights(heads, weights, batch, padded, loss)
        point = AttentionPoint.build(parameters, heads, weights, root, batch, sigma, kappa)
        return cls(point, counts)

    def within(self, classes: np.ndarray) -> HessianOperator:
        """$H^{-c} B_g$ on these classes: what members of a class see when they move against each other."""
        if not isinstance(self.point, AttentionPoint):
            raise ValueError(
                "how copies move against each other is known for MultiHead only; write the copies "
                "out."
            )
        return HessianOperator(self.point.within(classes), np.ones(len(classes)))

    def pieces(self) -> Iterator[tuple[HessianOperator, float]]:
        """The whole spectrum: operators, and how often each eigenvalue of one occurs in the Hessian of all copies."""
        yield self, 1.0
        for g in np.flatnonzero(self.counts >= 2):
            yield self.within(np.array([g])), self.counts[g] - 1

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        self.products += 1
        with jax.enable_x64(True):
            return np.asarray(_flat_product(self.point, jnp.asarray(x)))

    def dense(self) -> np.ndarray:
        """The matrix itself, column by column."""
        fits_memory(
            f"a Hessian of {self.size:,} rows", 4.0 * 8 * self.size**2, "pass method='lanczos'"
        )
        self.products += self.size
        with jax.enable_x64(True):
            M = np.asarray(_dense(self.point, jnp.eye(self.size)))
        return (M + M.T) / 2

    def direction(self, vector: np.ndarray) -> Any:
        """A vector in class coordinates as the move of one copy of every parameter."""
        with jax.enable_x64(True):
            move = unflatten(jnp.asarray(vector), self.point.parameters, 1 / self.point.root)
            return jax.tree.map(np.asarray, move)


def class_product(point: Any, vector: jax.Array) -> jax.Array:
    """Hessian times vector, both in class coordinates."""
    return flatten(point.product(unflatten(vector, point.parameters, 1 / point.root)), point.root)


_flat_product = jax.jit(class_product)
_dense = jax.jit(
    lambda point, basis: jax.lax.map(partial(class_product, point), basis, batch_size=16)
)


class AutodiffPoint(eqx.Module):
    """Where the Hessian of any model is taken."""

    parameters: Any
    root: Any  # (classes,) sqrt(N_g)
    objective: Any
    sample_weight: Any
    loss: Loss = eqx.field(static=True)

    def product(self, move: Any) -> Any:
        return hessian_product(
            self.objective, self.parameters, self.sample_weight, move, loss=self.loss
        )


class Parts(NamedTuple):
    """What every product reads, chunk by chunk."""

    # (chunks, c, s, (g t))
    attention: jax.Array
    # (chunks, c, s, (g t))
    centered: jax.Array


class AttentionPoint(eqx.Module):
    """Where the Hessian of attention is taken: heads, weights, data, and the two sample weights of the formula."""

    parameters: Heads  # the blocks that train
    heads: Heads
    weights: Weights
    root: Any  # (classes,) sqrt(N_g)
    batch: Batch
    sigma: Any  # (chunks, c)
    kappa: Any  # (chunks, c)
    # (classes, d, d) by W, for factored weights only
    gradient: Any
    parts: Parts | None

    @classmethod
    def build(cls, parameters, heads, weights, root, batch, sigma, kappa) -> AttentionPoint:
        queries = 1 if batch.last is not None else batch.tokens.shape[2]
        kept = 2 * batch.labels.size * batch.tokens.shape[2] * queries * len(root) * 8
        gradient = None
        with jax.enable_x64(True):
            parts = _parts(heads, batch) if kept <= KEPT_BYTES else None
            if isinstance(heads.key_query, tuple):
                gradient = _key_query_gradient(heads, weights, batch, sigma)
        return cls(parameters, heads, weights, root, batch, sigma, kappa, gradient, parts)

    def within(self, classes: np.ndarray) -> AttentionPoint:
        """Without the part that couples heads, which leaves $H^{-c} B_g$ on each of these classes."""
        pick = partial(jax.tree.map, lambda leaf: np.asarray(leaf)[classes])
        weights = Weights(pick(self.weights.of_class), self.weights.of_head)
        sigma, ones = np.asarray(self.sigma), np.ones(len(classes))
        return self.build(
            pick(self.parameters),
            pick(self.heads),
            weights,
            ones,
            self.batch,
            sigma,
            np.zeros_like(sigma),
        )

    def product(self, move: Heads) -> Heads:
        """The change of the gradient of one head of each class when all heads of each class move along `move`."""
        zeros = jax.tree.map(jnp.zeros_like, self.heads)
        return trained(attention_product(self, filled(move, zeros)), move)


@jax.jit
def _parts(heads, batch) -> Parts:
    return jax.lax.map(partial(_chunk_parts, _folded(heads, batch)), batch)


def _folded(heads, batch) -> Folded:
    return Folded.of(
        full_key_query(heads.key_query), jnp.asarray(heads.readout), batch.last is not None
    )


def _chunk_parts(folded: Folded, piece) -> Parts:
    none = jnp.zeros(folded.num_classes)
    _, A, _, rest, _ = scores_and_parts(folded, none, piece.tokens, piece.mask, piece.last, HIGHEST)
    return Parts(A, rest)


@partial(jax.jit, static_argnums=4)
def _sample_weights(heads, weights, batch, sample_weight, loss):
    r"""$\sigma$ and $\kappa$ of every sequence, zero for padding."""
    y = batch.labels
    margins = y * batch_scores(heads, weights, batch, y.size).reshape(y.shape)
    return sample_weight * loss.slope(margins) * y, sample_weight * loss.curvature(margins)


@jax.jit
def _key_query_gradient(heads, weights, batch, sigma):
    r"""$H^{-c} \sum_i \sigma_i \nabla_W \Phi$ of one head per class, for the product rule of factored weights."""
    full = Heads(full_key_query(heads.key_query), heads.readout)
    return loss_and_gradient(full, weights, batch, (sigma * batch.labels).ravel(), loss=SCORE)[
        2
    ].key_query


def _queries(piece: Batch):
    if piece.last is None:
        return piece.tokens
    return jnp.take_along_axis(piece.tokens, piece.last[:, None, None], axis=1)


def attention_product(point: AttentionPoint, move: Heads) -> Heads:
    """The closed form of `AttentionPoint.product` for a move of both blocks."""
    (W, U), dU = point.heads, move.readout
    factored = isinstance(W, tuple)
    dW = move.key_query
    if factored:
        dW = jnp.einsum("gdr,ger->gde", dW[0], W[1]) + jnp.einsum("gdr,ger->gde", W[0], dW[1])
    weights, here = point.weights, _folded(point.heads, point.batch)
    along = Folded.of(dW, jnp.asarray(dU), here.by_query)

    def one_chunk(sums, args):
        piece, sigma, kappa, kept = args
        A, C = _chunk_parts(here, piece) if kept is None else kept
        X, Xq = piece.tokens, _queries(piece)
        c, q = Xq.shape[:2]
        dS, dB = along.logits(X, Xq, HIGHEST), along.readouts(X, q, HIGHEST)
        dA = A * (dS - jnp.sum(A * dS, axis=1, keepdims=True))
        dphi = jnp.sum(dA * C + A * dB, axis=1)
        dscore = dphi.reshape(c, -1, q).sum(axis=2) @ weights.of_class
        s, k = (weights.of_head * w[:, None, None] for w in (sigma, kappa * dscore))
        dD = A * (s * (dB - dphi[:, None, :]) + k * C) + s * dA * C
        return sums.plus(dD, s * dA + k * A, 1.0, X, Xq, HIGHEST), None

    pieces = (point.batch, point.sigma, point.kappa, point.parts)
    sums, _ = jax.lax.scan(one_chunk, jax.tree.map(jnp.zeros_like, along), pieces)
    outW, outU = sums.heads(U)
    if factored:
        G, (query, key), (dq, dk) = point.gradient, W, move.key_query
        outW = Factored(
            jnp.einsum("gde,ger->gdr", outW, key) + jnp.einsum("gde,ger->gdr", G, dk),
            jnp.einsum("gde,gdr->ger", outW, query) + jnp.einsum("gde,gdr->ger", G, dq),
        )
    return Heads(outW, outU)
