"""The model and its loss by the plain formula, which shares no algebra with the library's gradients or the bounds.

Points are dictionaries of arrays: tokens X, readouts U, key-query matrices W, and a direction dU, dW. Heads come one by
one, or as classes of many equal ones: multiplicities make 10^8 heads cost nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from manyheads._lazy import compiled, lazy

if TYPE_CHECKING:
    from jax import Array

    from manyheads.certificates.search import Point

jax, jnp = lazy("jax"), lazy("jax.numpy")


def single_head(point: Point) -> Array:
    """Φ(X; W, U) of Eq. (1)."""
    X, U, W = point["X"], point["U"], point["W"]
    return jnp.sum(U * (jax.nn.softmax(X @ W @ X.T, axis=-1) @ X))


def train_loss(weights: Point, X: Array, y: Array) -> Array:
    """Logistic loss of explicit heads U (H, T, d), W (H, d, d) on sequences X (n, T, d)."""
    U, W = weights["U"], weights["W"]

    def score(x):
        A = jax.nn.softmax(jnp.einsum("td,hde,se->hts", x, W, x), axis=-1)
        return jnp.einsum("htd,hts,sd->", U, A, x) / math.sqrt(U.shape[0])

    return jnp.mean(jnp.logaddexp(0.0, -y * jax.vmap(score)(X)))


def labels(num_examples: int) -> Array:
    """+1, −1, +1, ... (any labels will do: a sign flip of U flips them all)."""
    return jnp.where(jnp.arange(num_examples) % 2 == 0, 1.0, -1.0)


def weights_of(point: Point) -> Point:
    return {"U": point["U"], "W": point["W"]}


def norm(tree: Point) -> Array:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def quadratic(function, point: Point) -> Array:
    """vᵀ∇²f v/‖v‖² at the weights of a point, along its direction v."""
    v = {"U": point["dU"], "W": point["dW"]}
    size = norm(v)
    v = jax.tree.map(lambda leaf: leaf / size, v)
    curved = jax.jvp(jax.grad(function), (weights_of(point),), (v,))[1]
    return jnp.sum(v["U"] * curved["U"]) + jnp.sum(v["W"] * curved["W"])


@compiled()
def _score(U, W, counts, X):
    """Scores of classes of heads."""

    def one(x):
        A = jax.nn.softmax(jnp.einsum("td,gde,se->gts", x, W, x), axis=-1)
        return jnp.einsum("g,gtd,gts,sd->", counts / jnp.sqrt(jnp.sum(counts)), U, A, x)

    return jax.vmap(one)(X)


def _flattened(U, W, counts, X, y):
    r"""The coordinates $\sqrt{N_g}\,\theta_g$, whose norm is the full model's, and the train loss as their function."""
    roots = jnp.sqrt(counts)[:, None, None]

    def loss(flat):
        u, w = flat[: U.size].reshape(U.shape), flat[U.size :].reshape(W.shape)
        return jnp.mean(jnp.logaddexp(0.0, -y * _score(u / roots, w / roots, counts, X)))

    return jnp.concatenate([(U * roots).ravel(), (W * roots).ravel()]), loss


@compiled()
def class_loss(U, W, counts, X, y):
    r"""Train loss and its gradient in the coordinates $\sqrt{N_g}\,\theta_g$."""
    flat, loss = _flattened(U, W, counts, X, y)
    return jax.value_and_grad(loss)(flat)


@compiled()
def class_hessians(U, W, counts, X, y):
    """The collapsed Hessian, and for each class the block that its other eigenvalues come from."""
    flat, loss = _flattened(U, W, counts, X, y)
    slopes = -jax.nn.sigmoid(-y * _score(U, W, counts, X)) * y

    def within(u, w):
        def mean(both):
            uu, ww = both[: u.size].reshape(u.shape), both[u.size :].reshape(w.shape)
            return jnp.mean(slopes * jax.vmap(lambda x: single_head({"X": x, "U": uu, "W": ww}))(X))

        return jax.hessian(mean)(jnp.concatenate([u.ravel(), w.ravel()])) / jnp.sqrt(jnp.sum(counts))

    return jax.hessian(loss)(flat), [within(u, w) for u, w in zip(U, W, strict=True)]


def class_spectrum(U, W, counts, X, y) -> np.ndarray:
    """All eigenvalues of the full Hessian (at most 65 copies of those that repeat more often)."""
    with jax.enable_x64(True):
        collapsed, within = class_hessians(*(np.asarray(a, float) for a in (U, W, counts, X, y)))
    values = [np.linalg.eigvalsh(np.asarray(collapsed))]
    for count, block in zip(counts, within, strict=True):
        values += [np.linalg.eigvalsh(np.asarray(block))] * int(min(count - 1, 64))
    return np.concatenate(values)


def explicit_hessian(U, W, counts, X, y) -> np.ndarray:
    """Dense Hessian of the train loss with every head written out."""
    index = np.repeat(np.arange(len(U)), counts)
    with jax.enable_x64(True):
        flat, loss = _flattened(U[index], W[index], jnp.ones(len(index)), X, y)
        return np.asarray(jax.jit(jax.hessian(loss))(flat))
