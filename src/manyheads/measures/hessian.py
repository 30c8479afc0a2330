r"""Hessian-vector products of the train loss in class coordinates; what all of them share is computed once.

In coordinates $\vartheta_g = \sqrt{N_g}\,\theta_g$ the Hessian restricted to class-constant directions is symmetric:
$$\nabla^2 \hat L = \sum_i \kappa_i\, \nabla\tilde\Phi_i \nabla\tilde\Phi_i^\top
+ \operatorname{diag}_g\big(H^{-c} B_g\big), \qquad B_g = \sum_i \sigma_i \nabla^2\Phi(X_i; \theta_g),$$
with $\sigma_i = w_i \ell'(m_i) y_i$ and $\kappa_i = w_i \ell''(m_i)$. Members of a class that move against each other
see $H^{-c} B_g$ alone, with multiplicity $N_g - 1$: together that is the whole spectrum of the H-head Hessian. The
attention $A$ and the centered readout $C = B - \phi$ of every sequence are kept, so that a product costs as much as a
gradient.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import Factored, Heads, MultiHead, full_key_query
from manyheads.model.gradient import Batch, Weights, head_weights, prepare, scores_and_parts
from manyheads.model.loss import Loss

KEPT_BYTES = 1e9  # attention and centered readout are kept up to here, and computed again for every product beyond
HIGHEST = jax.lax.Precision.HIGHEST


class Parts(NamedTuple):
    """What every product reads, chunk by chunk."""

    attention: jax.Array  # (chunks, c, s, (q g))
    centered: jax.Array  # (chunks, c, s, (q g))


class Point(NamedTuple):
    """Where the Hessian is taken: parameters, weights, data, and the two sample weights of the formula above."""

    heads: Heads
    weights: Weights
    root: jax.Array  # (classes,) sqrt(N_g)
    batch: Batch
    sigma: jax.Array  # (chunks, c)
    kappa: jax.Array  # (chunks, c)
    gradient: jax.Array | None  # (classes, d, d) by W, for factored weights only
    parts: Parts | None


class HessianOperator:
    """The collapsed Hessian as a symmetric matrix of order `size`: call it with a vector, or `dense()`.

    `within(classes)` is the operator without the part that couples heads, which leaves $H^{-c} B_g$ on each class.
    """

    def __init__(self, point: Point, shapes: Heads):
        self.point, self.shapes = point, shapes
        self.size = sum(int(np.prod(shape)) for shape in self._leaves)
        self.products = 0

    @classmethod
    def of_loss(cls, model: MultiHead, dataset: Dataset, loss: Loss) -> HessianOperator:
        """The Hessian of the train loss."""
        batch = prepare(dataset, model)
        heads = jax.tree.map(lambda a: np.asarray(a, np.float64), model.heads)
        n = dataset.num_examples
        weights = np.zeros(batch.labels.size)
        weights[:n] = 1 / n
        sigma, kappa = _sample_weights(heads, head_weights(model), batch, weights.reshape(batch.labels.shape), loss)
        return cls._build(heads, head_weights(model), np.sqrt(model.multiplicity), batch, sigma, kappa)

    @classmethod
    def of_score(cls, model: MultiHead, dataset: Dataset) -> HessianOperator:
        """The Hessian of the summed scores of all sequences (take a data set of one for one sequence)."""
        batch = prepare(dataset, model)
        heads = jax.tree.map(lambda a: np.asarray(a, np.float64), model.heads)
        ones = np.zeros(batch.labels.size)
        ones[: dataset.num_examples] = 1
        sigma = ones.reshape(batch.labels.shape)
        return cls._build(heads, head_weights(model), np.sqrt(model.multiplicity), batch, sigma, np.zeros_like(sigma))

    @classmethod
    def _build(cls, heads, weights, root, batch, sigma, kappa) -> HessianOperator:
        g = len(root)
        queries = 1 if batch.last is not None else batch.tokens.shape[2]
        kept = 2 * batch.labels.size * batch.tokens.shape[2] * queries * g * 8
        parts = _parts(heads, batch) if kept <= KEPT_BYTES else None
        point = Point(heads, weights, root, batch, sigma, kappa, None, parts)
        if isinstance(heads.key_query, tuple):
            point = point._replace(gradient=_key_query_gradient(point))
        return cls(jax.device_put(point), jax.tree.map(np.shape, heads, is_leaf=lambda x: isinstance(x, np.ndarray)))

    def within(self, classes: np.ndarray) -> HessianOperator:
        """$H^{-c} B_g$ on these classes: what members of a class see when they move against each other."""
        p = self.point
        heads = jax.tree.map(lambda a: np.asarray(a)[classes], p.heads)
        weights = Weights(np.asarray(p.weights.of_class)[classes], p.weights.of_head)
        sigma = np.asarray(p.sigma)
        return self._build(heads, weights, np.ones(len(classes)), p.batch, sigma, np.zeros_like(sigma))

    @property
    def _leaves(self):
        return jax.tree.leaves(self.shapes, is_leaf=_is_shape)

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        self.products += 1
        return np.asarray(_flat_product(self.point, jnp.asarray(vector)))

    def dense(self) -> np.ndarray:
        """The matrix itself, column by column."""
        self.products += self.size
        M = np.asarray(_dense(self.point, jnp.eye(self.size)))
        return (M + M.T) / 2

    def direction(self, vector: np.ndarray) -> Heads:
        """A vector in class coordinates as the move of one head of each class."""
        return jax.tree.map(np.asarray, _unflatten(self.point, jnp.asarray(vector)))


def _is_shape(x) -> bool:
    return isinstance(x, tuple) and all(isinstance(v, int) for v in x)


def _by_class(heads: Heads, factor) -> Heads:
    return jax.tree.map(lambda leaf: leaf * factor.reshape(-1, *(1,) * (leaf.ndim - 1)), heads)


def _unflatten(point: Point, vector) -> Heads:
    leaves, tree = jax.tree.flatten(point.heads)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    pieces = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)]
    return _by_class(jax.tree.unflatten(tree, pieces), 1 / point.root)


def class_product(point: Point, vector):
    moved = _by_class(hessian_product(point, _unflatten(point, vector)), point.root)
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(moved)])


_flat_product = jax.jit(class_product)
_dense = jax.jit(lambda point, basis: jax.lax.map(partial(class_product, point), basis, batch_size=16))


@jax.jit
def _parts(heads, batch) -> Parts:
    W, U = full_key_query(heads.key_query), jnp.asarray(heads.readout)
    return jax.lax.map(partial(_chunk_parts, W, U), batch)


def _chunk_parts(W, U, piece) -> Parts:
    _, A, B, phi, _ = scores_and_parts(W, U, jnp.zeros(W.shape[0]), piece.tokens, piece.mask, piece.last, HIGHEST)
    return Parts(A, B - phi[:, None, :])


@partial(jax.jit, static_argnums=4)
def _sample_weights(heads, weights, batch, sample_weight, loss):
    """$\\sigma$ and $\\kappa$ of every sequence, zero for padding."""
    W, U = full_key_query(heads.key_query), jnp.asarray(heads.readout)

    def one_chunk(args):
        piece, w = args
        scores = scores_and_parts(W, U, weights.of_class, piece.tokens, piece.mask, piece.last, HIGHEST)[0]
        margins = piece.labels * scores
        return w * loss.slope(margins) * piece.labels, w * loss.curvature(margins)

    return jax.lax.map(one_chunk, (batch, sample_weight))


@jax.jit
def _key_query_gradient(point: Point):
    """$H^{-c} \\sum_i \\sigma_i \\nabla_W \\Phi$ of one head per class, for the product rule of factored weights."""
    W, U = full_key_query(point.heads.key_query), jnp.asarray(point.heads.readout)
    g, d = W.shape[:2]

    def one_chunk(total, args):
        piece, sigma = args
        A, C = _chunk_parts(W, U, piece)
        Xq = _queries(piece)
        return total + _outer(sigma[:, None, None] * A * C, piece.tokens, Xq, g), None

    total = jax.lax.scan(one_chunk, jnp.zeros((d, g * d)), (point.batch, point.sigma))[0]
    return point.weights.of_head * total.reshape(d, g, d).transpose(1, 0, 2)


def _queries(piece: Batch):
    if piece.last is None:
        return piece.tokens
    return jnp.take_along_axis(piece.tokens, piece.last[:, None, None], axis=1)


_dot = partial(jax.lax.dot_general, precision=HIGHEST)
_KEYS = (((1,), (1,)), ((0,), (0,)))  # sum over the keys of each sequence
_ROWS = (((0, 1), (0, 1)), ((), ()))  # sum over sequences and rows


def _outer(M, X, Xq, g):
    """$\\sum_i X_q^\\top M X$ as (d, (g d)), for M in the layout [sequence, key, (query class)]."""
    c, q, d = Xq.shape
    return _dot(Xq, _dot(M, X, _KEYS).reshape(c, q, g * d), _ROWS)


def hessian_product(point: Point, move: Heads) -> Heads:
    """The change of the gradient of one head of each class when all heads of each class move along `move`."""
    (W, U), dU = point.heads, move.readout
    factored = isinstance(W, tuple)
    dW = move.key_query
    if factored:
        dW = jnp.einsum("gdr,ger->gde", dW[0], W[1]) + jnp.einsum("gdr,ger->gde", W[0], dW[1])
    g, d = dW.shape[:2]
    rows = dU[:, None, :] if U.ndim == 2 else dU
    columns = rows.transpose(2, 1, 0).reshape(d, -1)  # d, (r g)
    weights = point.weights

    def one_chunk(carry, args):
        outW, outU = carry
        piece, sigma, kappa, kept = args
        A, C = _chunk_parts(full_key_query(W), jnp.asarray(U), piece) if kept is None else kept
        X, Xq = piece.tokens, _queries(piece)
        (c, T, _), q = X.shape, Xq.shape[1]
        dQ = _dot(Xq, dW.transpose(1, 0, 2).reshape(d, g * d), (((2,), (0,)), ((), ()))).reshape(c, q * g, d)
        dS = _dot(X, dQ, (((2,), (2,)), ((0,), (0,))))
        dB = _dot(X, columns, (((2,), (0,)), ((), ())))
        if rows.shape[1] != q:
            dB = jnp.broadcast_to(dB[:, :, None, :], (c, T, q, g)).reshape(c, T, q * g)
        dA = A * (dS - jnp.sum(A * dS, axis=1, keepdims=True))
        dphi = jnp.sum(dA * C + A * dB, axis=1)
        dscore = dphi.reshape(c, q, g).sum(axis=1) @ weights.of_class
        s, k = (weights.of_head * w[:, None, None] for w in (sigma, kappa * dscore))
        outW = outW + _outer(A * (s * (dB - dphi[:, None, :]) + k * C) + s * dA * C, X, Xq, g)
        R = s * dA + k * A
        R = R if U.ndim == 3 else R.reshape(c, T, q, g).sum(axis=2)
        return (outW, outU + _dot(R, X, _ROWS)), None

    start = (jnp.zeros((d, g * d)), jnp.zeros((columns.shape[1], d)))
    (outW, outU), _ = jax.lax.scan(one_chunk, start, (point.batch, point.sigma, point.kappa, point.parts))
    outW = outW.reshape(d, g, d).transpose(1, 0, 2)
    outU = outU.reshape(-1, g, d).transpose(1, 0, 2) if U.ndim == 3 else outU
    if factored:
        G, (query, key), (dq, dk) = point.gradient, W, move.key_query
        outW = Factored(
            jnp.einsum("gde,ger->gdr", outW, key) + jnp.einsum("gde,ger->gdr", G, dk),
            jnp.einsum("gde,gdr->ger", outW, query) + jnp.einsum("gde,gdr->ger", G, dq),
        )
    return Heads(outW, outU)
