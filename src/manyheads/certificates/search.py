r"""Adversarial search: inputs that bring a bound as close to equality as gradient ascent can.

The measured side is automatic differentiation of the plain formula, which shares no algebra with the bounds. Each
search is a
ratio measured/bound as a function of free arrays; Adam climbs it from many starts at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads.certificates.bounds import Shape

Point = dict[str, jax.Array]


def single_head(point: Point) -> jax.Array:
    """Φ(X; W, U) of Eq. (1)."""
    X, U, W = point["X"], point["U"], point["W"]
    return jnp.sum(U * (jax.nn.softmax(X @ W @ X.T, axis=-1) @ X))


def train_loss(weights: Point, X: jax.Array, y: jax.Array) -> jax.Array:
    """Logistic loss of explicit heads U (H, T, d), W (H, d, d) on sequences X (n, T, d)."""
    U, W = weights["U"], weights["W"]

    def score(x):
        A = jax.nn.softmax(jnp.einsum("td,hde,se->hts", x, W, x), axis=-1)
        return jnp.einsum("htd,hts,sd->", U, A, x) / math.sqrt(U.shape[0])

    return jnp.mean(jnp.logaddexp(0.0, -y * jax.vmap(score)(X)))


def single_bounds(point: Point) -> dict[str, jax.Array]:
    """Right-hand sides of Proposition 1 at a point: printed and ours."""
    X, U = point["X"], point["U"]
    T, d = X.shape
    row = jnp.sqrt(jnp.max(jnp.sum(X**2, axis=1)))
    entry = jnp.max(jnp.abs(X))
    total = jnp.sum(jnp.max(jnp.abs(X @ U.T), axis=0))
    a, c = row**4 * total, math.sqrt(T) * row**3
    return {
        "gradient": jnp.sqrt(T * row**2 + row**4 * total**2),
        "gradient printed": 2 * row**2 * total + math.sqrt(T) * row,
        "hessian": (a + jnp.sqrt(a**2 + 4 * c**2)) / 2,
        "hessian printed": 6 * d * row**2 * entry**2 * total + 2 * math.sqrt(T * d) * row**2 * entry,
    }


def _norm(tree: Point) -> jax.Array:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


def gradient_measure(point: Point) -> jax.Array:
    """‖∇_(U,W) Φ‖."""
    slope = jax.grad(single_head)(point)
    return _norm({"U": slope["U"], "W": slope["W"]})


def hessian_measure(point: Point) -> jax.Array:
    """|vᵀ∇²Φ v|/‖v‖² along the direction stored in the point."""
    return jnp.abs(_quadratic(lambda w: single_head({"X": point["X"], **w}), point))


def loss_gradient_measure(point: Point) -> jax.Array:
    r"""$\|\nabla\hat L\|/\hat L$."""
    w = {"U": point["U"], "W": point["W"]}
    value, slope = jax.value_and_grad(train_loss)(w, point["X"], labels(point["X"].shape[0]))
    return _norm(slope) / value


def loss_curvature_measure(point: Point) -> jax.Array:
    r"""$v^\top\nabla^2\hat L\,v/\|v\|^2$."""
    y = labels(point["X"].shape[0])
    return _quadratic(lambda w: train_loss(w, point["X"], y), point)


def loss_concavity_measure(point: Point) -> jax.Array:
    r"""$-v^\top\nabla^2\hat L\,v/(\|v\|^2\hat L)$."""
    w = {"U": point["U"], "W": point["W"]}
    return -loss_curvature_measure(point) / train_loss(w, point["X"], labels(point["X"].shape[0]))


def labels(num_examples: int) -> jax.Array:
    """+1, −1, +1, ... (any labels will do: a sign flip of U flips them all)."""
    return jnp.where(jnp.arange(num_examples) % 2 == 0, 1.0, -1.0)


def _quadratic(function, point: Point) -> jax.Array:
    w, v = {"U": point["U"], "W": point["W"]}, {"U": point["dU"], "W": point["dW"]}
    size = _norm(v)
    v = jax.tree.map(lambda leaf: leaf / size, v)
    curved = jax.jvp(jax.grad(function), (w,), (v,))[1]
    return jnp.sum(v["U"] * curved["U"]) + jnp.sum(v["W"] * curved["W"])


def loss_bounds(point: Point) -> dict[str, jax.Array]:
    """Right-hand sides of Corollary 1 at a point (of ‖∇L‖/L, ‖∇²L‖ and −λ_min/L): printed and ours."""
    X, U = point["X"], point["U"]
    H, T, d = U.shape
    R = jnp.maximum(1.0, jnp.sqrt(jnp.max(jnp.sum(X**2, axis=-1))))
    x = jnp.sqrt(jnp.max(jnp.sum(U.reshape(H, -1) ** 2, axis=1)))
    whole = jnp.sqrt(jnp.max(jnp.sum(U.reshape(H, -1) ** 2, axis=1) + jnp.sum(point["W"].reshape(H, -1) ** 2, axis=1)))
    shape = _traced_shape(T, d, R)
    return {
        "cor1.1": shape.b1(x),
        "cor1.2": shape.b2(x, float(H)),
        "cor1.3": shape.b3(x) / math.sqrt(H),
        "cor1.1 printed": shape.beta1(whole),
        "cor1.2 printed": shape.beta2(whole, float(H)),
        "cor1.3 printed": shape.beta3(whole) / math.sqrt(H),
    }


def _traced_shape(num_tokens: int, dim: int, radius) -> Shape:
    """A Shape whose radius is a traced array (the check R >= 1 is the caller's)."""
    shape = object.__new__(Shape)
    for name, value in (("num_tokens", num_tokens), ("dim", dim), ("token_radius", radius)):
        object.__setattr__(shape, name, value)
    return shape


@dataclass(frozen=True)
class Search:
    """One inequality to attack: what is measured, which bound, and the shapes of the free arrays."""

    name: str
    measure: Callable[[Point], jax.Array]
    bounds: Callable[[Point], dict[str, jax.Array]]
    bound: str
    multihead: bool
    directional: bool

    def ratio(self, point: Point) -> jax.Array:
        return self.measure(point) / self.bounds(point)[self.bound]

    def draw(
        self, rng: np.random.Generator, num_tokens: int, dim: int, heads: int, examples: int
    ) -> dict[str, np.ndarray]:
        """A random point; scales are drawn over several orders of magnitude."""
        T, d = num_tokens, dim
        H, n = ((heads,), (examples,)) if self.multihead else ((), ())
        size = 10.0 ** rng.uniform(-1.5, 0.7, 3)
        point = {
            "X": rng.standard_normal((*n, T, d)) * size[0] ** 0.5,
            "U": rng.standard_normal((*H, T, d)) * size[1],
            "W": rng.standard_normal((*H, d, d)) * size[2],
        }
        if self.directional:
            point |= {"dU": rng.standard_normal((*H, T, d)), "dW": rng.standard_normal((*H, d, d))}
        return point


SEARCHES = {
    "prop1.gradient": Search("prop1.gradient", gradient_measure, single_bounds, "gradient", False, False),
    "prop1.hessian": Search("prop1.hessian", hessian_measure, single_bounds, "hessian", False, True),
    "cor1.1": Search("cor1.1", loss_gradient_measure, loss_bounds, "cor1.1", True, False),
    "cor1.2": Search("cor1.2", loss_curvature_measure, loss_bounds, "cor1.2", True, True),
    "cor1.3": Search("cor1.3", loss_concavity_measure, loss_bounds, "cor1.3", True, True),
}


@partial(jax.jit, static_argnames=("ratio", "steps"))
def _climb(points, rate, *, ratio, steps):
    adam = optax.scale_by_adam()

    def one(point):
        def step(carry, k):
            point, state, best, top = carry
            value, slope = jax.value_and_grad(ratio)(point)
            slope = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), slope)
            better = value > top
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), point, best)
            top = jnp.where(better, value, top)
            update, state = adam.update(slope, state)
            decay = rate * 0.5 * (1 + jnp.cos(jnp.pi * k / steps))
            point = jax.tree.map(lambda p, u: p + decay * u, point, update)
            return (point, state, best, top), None

        start = (point, adam.init(point), point, jnp.asarray(-jnp.inf))
        (_, _, best, top), _ = jax.lax.scan(step, start, jnp.arange(steps))
        return best, top

    return jax.vmap(one)(points)


def ascend(
    ratio: Callable[[Point], jax.Array], points: list[dict[str, np.ndarray]], *, steps: int, rate: float = 0.03
) -> tuple[dict[str, np.ndarray], float]:
    """Adam ascent on `ratio` from all points at once; the best point ever seen, and its ratio."""
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *points)
        best, tops = _climb(stacked, jnp.asarray(rate), ratio=ratio, steps=steps)
        tops = np.where(np.isfinite(tops), np.asarray(tops), -np.inf)
        winner = int(np.argmax(tops))
        return {name: np.asarray(leaf[winner]) for name, leaf in best.items()}, float(tops[winner])


def climb(
    search: Search,
    *,
    seed: int,
    restarts: int,
    steps: int,
    num_tokens: int = 4,
    dim: int = 2,
    heads: int = 1,
    examples: int = 1,
) -> tuple[dict[str, np.ndarray], float]:
    """The best point of `restarts` ascents of `steps` steps, and its ratio."""
    rng = np.random.default_rng(seed)
    return ascend(
        search.ratio, [search.draw(rng, num_tokens, dim, heads, examples) for _ in range(restarts)], steps=steps
    )
