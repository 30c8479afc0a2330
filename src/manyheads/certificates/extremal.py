r"""Inputs built by hand that attain a bound, or come as near to it as one likes.

With few heads the constants of Corollary 1 are not attained; with many they are, in the limit: the score, which
grows like
$\sqrt H$, can be large while every readout is small. Multiplicities make $H=10^8$ cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.certificates.bounds import Shape

SCORE = 12.0  # log(1 + e^-12) and its slope agree to 3e-6


def gradient_point(num_tokens: int = 4, dim: int = 2) -> dict[str, np.ndarray]:
    """Identical tokens and U = 0: Proposition 1's gradient bound is an equality."""
    return {
        "X": 1.5 * np.tile(np.eye(dim)[0], (num_tokens, 1)),
        "U": np.zeros((num_tokens, dim)),
        "W": np.random.default_rng(0).standard_normal((dim, dim)),
    }


def hessian_point(num_tokens: int = 4, dim: int = 2) -> dict[str, np.ndarray]:
    """Half of the tokens at +v, half at −v, U = W = 0: Proposition 1's Hessian bound is an equality, √T‖v‖³.

    The direction moves each row of U along its own token, and W along vvᵀ.
    """
    signs = np.where(np.arange(num_tokens) < num_tokens // 2, 1.0, -1.0)
    tokens = signs[:, None] * np.eye(dim)[0]
    return {
        "X": 1.3 * tokens,
        "U": np.zeros((num_tokens, dim)),
        "W": np.zeros((dim, dim)),
        "dU": tokens / np.sqrt(num_tokens),
        "dW": np.outer(np.eye(dim)[0], np.eye(dim)[0]),
    }


def loss_gradient(heads: float, num_tokens: int = 4) -> tuple[float, float, float]:
    """‖∇L‖/L, b1 and β1 for identical unit tokens and `heads` equal heads with aligned, small readouts."""
    T = num_tokens
    X, y = np.ones((1, T, 1)), np.ones(1)
    size = SCORE / math.sqrt(heads * T)
    U, W = np.full((1, T, 1), size / math.sqrt(T)), np.zeros((1, 1, 1))
    with jax.enable_x64(True):
        value, slope = class_loss(U, W, np.array([heads]), X, y)
    shape = Shape(T, 1, 1.0)
    return float(np.linalg.norm(slope)) / float(value), shape.b1(size), shape.beta1(size)


def loss_smoothness(heads: float, num_tokens: int = 4) -> tuple[float, float, float]:
    """‖∇²L‖, b2 and β2 for identical unit tokens, U = 0: b1²/4 is attained, b3/√H vanishes."""
    T = num_tokens
    X, y = np.ones((1, T, 1)), np.ones(1)
    U, W = np.zeros((1, T, 1)), np.zeros((1, 1, 1))
    eigenvalues = class_spectrum(U, W, np.array([heads]), X, y)
    shape = Shape(T, 1, 1.0)
    return float(np.abs(eigenvalues).max()), shape.b2(0.0, heads), shape.beta2(0.0, heads)


def loss_weak_convexity(heads: float, num_tokens: int = 4) -> tuple[float, float, float]:
    """−λ_min/L, b3/√H and β3/√H: two idle heads on ±1 tokens, the other heads attend sharply and make the score large.

    A sharp head looks from +1 at +1 and from −1 at −1; with readout rows along its own token its part of the score is
    √T times its readout norm. The idle heads have U = W = 0, where the model's Hessian has the norm √T.
    """
    T = num_tokens
    tokens = np.where(np.arange(T) < T // 2, 1.0, -1.0)[:, None]
    X, y = tokens[None], np.ones(1)
    size = SCORE / math.sqrt(heads * T)
    U = np.stack([np.zeros((T, 1)), size / math.sqrt(T) * tokens])
    W = np.array([0.0, 40.0]).reshape(2, 1, 1)
    counts = np.array([2.0, heads - 2])
    with jax.enable_x64(True):
        value, _ = class_loss(U, W, counts, X, y)
    least = class_spectrum(U, W, counts, X, y).min()
    shape = Shape(T, 1, 1.0)
    whole = max(size, math.sqrt(size**2 + 40.0**2))
    return -float(least) / float(value), shape.b3(size) / math.sqrt(heads), shape.beta3(whole) / math.sqrt(heads)


@dataclass(frozen=True)
class CurvedSegment:
    """A short segment along the least convex direction: both sides of (14), (15) and (16)."""

    gap: float  # L(first) + <grad L(first), second - first> - L(second)
    least: float  # smallest eigenvalue of the Hessian at its ends and middle
    top: float  # largest loss
    length: float
    constant: float  # b3/sqrt(H) at the larger end
    printed_constant: float


def curved_segment(heads: float, num_tokens: int = 4, length: float = 0.05) -> CurvedSegment:
    """The extremal case of Corollary 1 (3), followed along its eigenvector: two idle heads move against each other."""
    T = num_tokens
    tokens = np.where(np.arange(T) < T // 2, 1.0, -1.0)[:, None]
    X, y = tokens[None], np.ones(1)
    U = np.stack([np.zeros((T, 1)), np.zeros((T, 1)), SCORE / T / math.sqrt(heads) * tokens])
    W = np.array([0.0, 0.0, 40.0]).reshape(3, 1, 1)
    counts = np.array([1.0, 1.0, heads - 2])
    roots = np.sqrt(counts)[:, None, None]
    with jax.enable_x64(True):
        vector = np.linalg.eigh(np.asarray(_class_hessians(U, W, counts, X, y)[0]))[1][:, 0]
        way = (vector[: U.size].reshape(U.shape) / roots, vector[U.size :].reshape(W.shape) / roots)
        points = [(U + s * length * way[0], W + s * length * way[1]) for s in (0.0, 0.5, 1.0)]
        losses, slopes = zip(*(class_loss(*point, counts, X, y) for point in points), strict=True)
        least = min(np.linalg.eigvalsh(np.asarray(_class_hessians(*point, counts, X, y)[0]))[0] for point in points)
    losses = [float(value) for value in losses]
    gap = losses[0] + length * float(np.asarray(slopes[0]) @ vector) - losses[2]
    x = max(np.linalg.norm(u.reshape(3, -1), axis=1).max() for u, _ in points)
    whole = math.hypot(x, max(np.abs(w).max() for _, w in points))
    shape, root = Shape(T, 1, 1.0), math.sqrt(heads)
    return CurvedSegment(gap, float(least), max(losses), length, shape.b3(x) / root, shape.beta3(whole) / root)


@jax.jit
def _score(U, W, counts, X):
    """Scores of classes of heads by the plain formula."""

    def one(x):
        A = jax.nn.softmax(jnp.einsum("td,gde,se->gts", x, W, x), axis=-1)
        return jnp.einsum("g,gtd,gts,sd->", counts / jnp.sqrt(jnp.sum(counts)), U, A, x)

    return jax.vmap(one)(X)


@jax.jit
def class_loss(U, W, counts, X, y):
    r"""Train loss and its gradient in the coordinates $\sqrt{N_g}\,\theta_g$, whose norm is the full model's."""
    roots = jnp.sqrt(counts)

    def loss(flat):
        u, w = flat[: U.size].reshape(U.shape), flat[U.size :].reshape(W.shape)
        return jnp.mean(jnp.logaddexp(0.0, -y * _score(u / roots[:, None, None], w / roots[:, None, None], counts, X)))

    flat = jnp.concatenate([(U * roots[:, None, None]).ravel(), (W * roots[:, None, None]).ravel()])
    return jax.value_and_grad(loss)(flat)


@jax.jit
def _class_hessians(U, W, counts, X, y):
    roots = jnp.sqrt(counts)
    G = U.shape[0]

    def unflatten(flat):
        return flat[: U.size].reshape(U.shape), flat[U.size :].reshape(W.shape)

    def loss(flat):
        u, w = unflatten(flat)
        return jnp.mean(jnp.logaddexp(0.0, -y * _score(u / roots[:, None, None], w / roots[:, None, None], counts, X)))

    flat = jnp.concatenate([(U * roots[:, None, None]).ravel(), (W * roots[:, None, None]).ravel()])
    collapsed = jax.hessian(loss)(flat)
    slopes = -jax.nn.sigmoid(-y * _score(U, W, counts, X)) * y

    def within(u, w):
        def mean(both):
            uu, ww = both[: u.size].reshape(u.shape), both[u.size :].reshape(w.shape)
            one = jax.vmap(lambda x: jnp.sum(uu * (jax.nn.softmax(x @ ww @ x.T, axis=-1) @ x)))(X)
            return jnp.mean(slopes * one)

        return jax.hessian(mean)(jnp.concatenate([u.ravel(), w.ravel()])) / jnp.sqrt(jnp.sum(counts))

    return collapsed, [within(U[g], W[g]) for g in range(G)]


def class_spectrum(U, W, counts, X, y) -> np.ndarray:
    """All eigenvalues of the full Hessian (at most 65 copies of those that repeat more often)."""
    with jax.enable_x64(True):
        collapsed, within = _class_hessians(*(np.asarray(a, float) for a in (U, W, counts, X, y)))
        values = [np.linalg.eigvalsh(np.asarray(collapsed))]
        for g, block in enumerate(within):
            extra = int(min(counts[g] - 1, 64))
            values += [np.linalg.eigvalsh(np.asarray(block))] * extra
    return np.concatenate(values)


def explicit_hessian(U, W, counts, X, y) -> np.ndarray:
    """Dense Hessian of the train loss with every head written out."""
    index = np.repeat(np.arange(len(U)), counts)
    U, W = U[index], W[index]
    H = len(index)

    def loss(flat):
        u, w = flat[: U.size].reshape(U.shape), flat[U.size :].reshape(W.shape)
        return jnp.mean(jnp.logaddexp(0.0, -y * _score(u, w, jnp.ones(H), X)))

    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.hessian(loss))(jnp.concatenate([U.ravel(), W.ravel()])))
