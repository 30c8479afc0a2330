"""The model and its loss by the plain formula, which shares no algebra with the library's gradients or the bounds.

Points are dictionaries of arrays: tokens X, readouts U, key-query matrices W, and a direction dU,
dW. Heads are stored one by one or as classes of equal heads with multiplicities, so that 10^8 heads
cost no more than one.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.model.loss import LOGISTIC, Loss

if TYPE_CHECKING:
    from jax import Array

    from manyheads.theory.search import Point


def rows(readout: Array, num_tokens: int, decoder: str) -> Array:
    """U with a row for each token: the readout itself, one vector in every row, or in the last one."""
    if decoder == "full":
        return readout
    one = jnp.ones(num_tokens) if decoder == "pooled" else jnp.zeros(num_tokens).at[-1].set(1.0)
    return jnp.einsum("t,...d->...td", one, readout)


def single_head(point: Point, decoder: str = "full") -> Array:
    """Φ(X; W, U) of Eq. (1)."""
    X, W = point["X"], point["W"]
    U = rows(point["U"], len(X), decoder)
    return jnp.sum(U * (jax.nn.softmax(X @ W @ X.T, axis=-1) @ X))


def train_loss(
    weights: Point, X: Array, y: Array, decoder: str = "full", loss: Loss = LOGISTIC
) -> Array:
    """Loss of explicit heads U (H, T, d) or (H, d), W (H, d, d) on sequences X (n, T, d)."""
    U, W = rows(weights["U"], X.shape[1], decoder), weights["W"]

    def score(x):
        A = jax.nn.softmax(jnp.einsum("td,hde,se->hts", x, W, x), axis=-1)
        return jnp.einsum("htd,hts,sd->", U, A, x) / math.sqrt(U.shape[0])

    return jnp.mean(loss.value(y * jax.vmap(score)(X)))


def labels(num_examples: int) -> Array:
    """+1, −1, +1, ... (the choice does not matter: a sign flip of U flips them all)."""
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


@partial(jax.jit, static_argnames="decoder")
def _score(U, W, counts, X, decoder="full"):
    """Scores of classes of heads."""
    U = rows(U, X.shape[1], decoder)

    def one(x):
        A = jax.nn.softmax(jnp.einsum("td,gde,se->gts", x, W, x), axis=-1)
        return jnp.einsum("g,gtd,gts,sd->", counts / jnp.sqrt(jnp.sum(counts)), U, A, x)

    return jax.vmap(one)(X)


def _flattened(U, W, counts, X, y, decoder="full", loss=LOGISTIC):
    r"""The coordinates $\sqrt{N_g}\,\theta_g$, whose norm is the full model's, and the train loss as their function."""
    roots = jnp.sqrt(counts)
    u_roots, w_roots = roots.reshape(-1, *(1,) * (U.ndim - 1)), roots[:, None, None]

    def value(flat):
        u, w = flat[: U.size].reshape(U.shape), flat[U.size :].reshape(W.shape)
        return jnp.mean(loss.value(y * _score(u / u_roots, w / w_roots, counts, X, decoder)))

    return jnp.concatenate([(U * u_roots).ravel(), (W * w_roots).ravel()]), value


@partial(jax.jit, static_argnames=("decoder", "loss"))
def class_loss(U, W, counts, X, y, decoder="full", loss=LOGISTIC):
    r"""Train loss and its gradient in the coordinates $\sqrt{N_g}\,\theta_g$."""
    flat, value = _flattened(U, W, counts, X, y, decoder, loss)
    return jax.value_and_grad(value)(flat)


@partial(jax.jit, static_argnames=("decoder", "loss"))
def class_hessians(U, W, counts, X, y, decoder="full", loss=LOGISTIC):
    """The collapsed Hessian, and for each class the block that its other eigenvalues come from."""
    flat, value = _flattened(U, W, counts, X, y, decoder, loss)
    slopes = loss.slope(y * _score(U, W, counts, X, decoder)) * y

    def within(u, w):
        def mean(both):
            uu, ww = both[: u.size].reshape(u.shape), both[u.size :].reshape(w.shape)
            return jnp.mean(
                slopes * jax.vmap(lambda x: single_head({"X": x, "U": uu, "W": ww}, decoder))(X)
            )

        return jax.hessian(mean)(jnp.concatenate([u.ravel(), w.ravel()])) / jnp.sqrt(
            jnp.sum(counts)
        )

    return jax.hessian(value)(flat), [within(u, w) for u, w in zip(U, W, strict=True)]


def class_spectrum(U, W, counts, X, y, decoder="full", loss=LOGISTIC) -> np.ndarray:
    """All eigenvalues of the full Hessian (at most 65 copies of those that repeat more often)."""
    with jax.enable_x64(True):
        given = (np.asarray(a, float) for a in (U, W, counts, X, y))
        collapsed, within = class_hessians(*given, decoder=decoder, loss=loss)
    values = [np.linalg.eigvalsh(np.asarray(collapsed))]
    for count, block in zip(counts, within, strict=True):
        values += [np.linalg.eigvalsh(np.asarray(block))] * int(min(count - 1, 64))
    return np.concatenate(values)


def explicit_hessian(U, W, counts, X, y) -> np.ndarray:
    """Dense Hessian of the train loss with every head written out."""
    index = np.repeat(np.arange(len(U)), counts)
    with jax.enable_x64(True):
        return np.asarray(_dense_hessian(U[index], W[index], X, y))


@jax.jit
def _dense_hessian(U, W, X, y):
    flat, value = _flattened(U, W, jnp.ones(len(U)), X, y)
    return jax.hessian(value)(flat)
