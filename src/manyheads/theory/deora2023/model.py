"""Sections 2 and 3: the model, its derivatives (Lemma 1, Proposition 1), and the collapse of equal heads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data import mixture as mixtures
from manyheads.model import attention
from manyheads.theory import walk as follower
from manyheads.theory.deora2023.formula import (
    class_spectrum,
    explicit_hessian,
    norm,
    quadratic,
    single_head,
    weights_of,
)
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.search import Search, attack, evaluate
from manyheads.theory.statement import Statement

if TYPE_CHECKING:
    from jax import Array

    from manyheads.theory.search import Point


EPS = np.finfo(float).eps
POINTS = Path(__file__).with_name("adversarial_points.npz")
# tokens, dim of random trials; the first one in quick checks
SHAPES = ((4, 2), (3, 5), (6, 3))


def double_sum(X: np.ndarray, U: np.ndarray, W: np.ndarray) -> float:
    """Eq. (1) as a literal double sum."""
    total = 0.0
    for t in range(len(X)):
        weights = softmax(np.array([X[t] @ W @ X[s] for s in range(len(X))]))
        total += sum(weights[s] * (U[t] @ X[s]) for s in range(len(X)))
    return total


def softmax(v: np.ndarray) -> np.ndarray:
    p = np.exp(v - v.max())
    return p / p.sum()


def softmax_jacobian(v: np.ndarray) -> np.ndarray:
    """φ'(v) as corrected (E1)."""
    p = softmax(v)
    return np.diag(p) - np.outer(p, p)


def check_single_head(effort: Effort) -> Finding:
    """The library against the double sum."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    call = jax.jit(lambda model, X: model(X))
    for _ in range(effort.count(240, 15)):
        X, U, W = (rng.standard_normal(shape) for shape in ((4, 3), (4, 3), (3, 3)))
        with jax.enable_x64(True):
            got = float(call(attention.MultiHead.create(W[None], U[None]), X))
        tally.add(abs(got - double_sum(X, U, W)), 64 * EPS * np.sum(np.abs(U)) * np.abs(X).max())
    return tally.finding("largest error over 64 roundings of the terms")


SINGLE_HEAD = Statement(
    id="eq1",
    place="Section 2, Eq. (1)",
    title="single-head self-attention with a linear readout",
    printed="Φ(X; W, U) = ⟨U, φ(X W Xᵀ) X⟩, softmax row by row",
    corrected="as printed (pooling: U = 1_T uᵀ)",
    ours="Φ = Σ_t E_{A_t}⟨u_t, x⟩: each query t averages its readout over its own attention A_t",
    proof="docs/theory/derivatives.md#the-model",
    remark="an identity: checked to rounding against a literal double sum",
    check=check_single_head,
    errata=("E3",),
    used_by=("eq2", "lemma1"),
)


def check_multi_head(effort: Effort) -> Finding:
    """The library's scores of classes against explicit heads summed one by one."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    data = _noiseless().sample(8, key=jax.random.key(effort.seed))
    for _ in range(effort.count(200, 5)):
        W, U, counts = (
            rng.standard_normal((3, 6, 6)),
            rng.standard_normal((3, 4, 6)),
            rng.integers(1, 6, 3),
        )
        model = attention.MultiHead.create(W, U, multiplicity=counts)
        heads = attention.expand(model)
        H = heads.num_classes
        sums = [
            sum(double_sum(X, heads.readout[h], heads.key_query[h]) for h in range(H))
            for X in data.tokens
        ]
        error = np.max(
            np.abs(model.scores(data) - np.array([total / math.sqrt(H) for total in sums]))
        )
        tally.add(error, 64 * EPS * math.sqrt(H) * np.abs(heads.readout).sum(axis=(1, 2)).max())
    return tally.finding("classes with multiplicities against a sum over explicit heads")


def _noiseless():
    return mixtures.TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, frame="axis"
    )


MULTI_HEAD = Statement(
    id="eq2",
    place="Section 2, Eq. (2)",
    title="multi-head attention with 1/√H scaling",
    printed="Φ̃(X; θ) = H^(-1/2) Σ_h Φ(X; W_h, U_h)",
    corrected="as printed",
    ours="N_g equal heads count as one class of multiplicity N_g: Φ̃ = Σ_g (N_g/√H) Φ(X; θ_g)",
    proof="docs/theory/collapse.md#outputs",
    remark="an identity: classes against explicit heads, to rounding",
    check=check_multi_head,
    used_by=("cor1.1", "cor1.2", "cor1.3", "collapse"),
)


def check_derivative_formulas(effort: Effort) -> Finding:
    """Lemma 1: the four formulas, and the covariance form, against automatic differentiation."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    slope = jax.jit(jax.grad(lambda U, W, X: single_head({"X": X, "U": U, "W": W}), argnums=(0, 1)))
    second = jax.jit(jax.jacfwd(slope, argnums=1))

    def compare(found, true):
        tally.add(np.abs(found - true).max(), 1e-11 * (1 + np.abs(true).max()))

    for T, d in SHAPES[: effort.count(3, 1)]:
        for _ in range(effort.count(20, 8)):
            X, U, W = (rng.standard_normal(shape) for shape in ((T, d), (T, d), (d, d)))
            a, b, c = (rng.standard_normal(size) for size in (T, d, d))
            with jax.enable_x64(True):
                dU, dW = map(np.asarray, slope(U, W, X))
                dUW, dWW = map(np.asarray, second(U, W, X))
            mixed, pure = np.einsum("t,tdij,d->ij", a, dUW, b), np.einsum("p,pdij,d->ij", c, dWW, b)
            for found, true in zip(_lemma1(X, U, W, a, b, c), (dU, dW, mixed, pure), strict=True):
                compare(found, true)
            way = np.outer(c, b)
            along = (np.sum(dW * way), np.sum(mixed * way), np.sum(pure * way))
            for found, true in zip(_moment_forms(X, U, W, a[:, None] * b, way), along, strict=True):
                compare(found, true)
    return tally.finding(
        "largest error over 1e-11·(1 + size), formulas and covariance form against autodiff"
    )


def _lemma1(X, U, W, a, b, c) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The four formulas of Lemma 1: ∇_U, ∇_W, and the two contracted second derivatives."""
    T, d = X.shape
    first, second, mixed, pure = (
        np.zeros((T, d)),
        np.zeros((d, d)),
        np.zeros((d, d)),
        np.zeros((d, d)),
    )
    for t, x in enumerate(X):
        logits = X @ W.T @ x
        p, J, Xu, Xb = softmax(logits), softmax_jacobian(logits), X @ U[t], X @ b
        first[t] = p @ X
        second += np.outer(x, Xu @ J @ X)
        mixed += a[t] * np.outer(x, Xb @ J @ X)
        pure += (c @ x) * np.outer(x, (Xb * Xu - Xu * (Xb @ p) - Xb * (Xu @ p)) @ J @ X)
    return first, second, mixed, pure


def _moment_forms(X, U, W, dU, dW) -> tuple[float, float, float]:
    """Σ_t Cov(ξ, δ), Σ_t Cov(⟨x, du_t⟩, δ), Σ_t E[(ξ−Eξ)(δ−Eδ)²]."""
    first = mixed = pure = 0.0
    for t, x in enumerate(X):
        p = np.exp(X @ W.T @ x)
        p /= p.sum()
        xi, delta, eta = X @ U[t], X @ dW.T @ x, X @ dU[t]
        first += p @ ((xi - p @ xi) * (delta - p @ delta))
        mixed += p @ ((eta - p @ eta) * (delta - p @ delta))
        pure += _third_moment(p, xi, delta)
    return first, mixed, pure


def _third_moment(p, xi, delta) -> float:
    return p @ ((xi - p @ xi) * (delta - p @ delta) ** 2)


LEMMA_1 = Statement(
    id="lemma1",
    place="Section 3, Lemma 1",
    title="gradient and Hessian formulas",
    printed="∇_U Φ = φ(XWXᵀ)X, ∇_W Φ = Σ_t x_t u_tᵀ Xᵀ φ'(XWᵀx_t) X, and two second-order formulas, with φ'(v) "
    "= diag(φ(v)) − vvᵀ",
    corrected="the four formulas with φ'(v) = diag(φ(v)) − φ(v)φ(v)ᵀ",
    ours="DΦ[dW] = Σ_t Cov_{A_t}(ξ, δ), D²Φ[dU, dW] = Σ_t Cov_{A_t}(⟨x, du_t⟩, δ), "
    "D²Φ[dW, dW] = Σ_t E_{A_t}[(ξ−Eξ)(δ−Eδ)²], D²Φ[dU, dU] = 0, where ξ = ⟨x, u_t⟩ and δ = ⟨x, "
    "dWᵀx_t⟩",
    proof="docs/theory/derivatives.md#lemma-1",
    remark="identities: both forms against automatic differentiation, to rounding",
    check=check_derivative_formulas,
    errata=("E1",),
    used_by=("prop1.gradient", "prop1.hessian"),
)


def check_third_moment(effort: Effort) -> Finding:
    """Lemma C: laws on a few points, random and the extremal two-point law."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    for _ in range(effort.count(20_000, 2000)):
        p = rng.dirichlet(np.full(3, 0.5))
        xi, delta = rng.choice([-1.0, 1.0], 3), rng.uniform(-1, 1, 3)
        delta[rng.integers(3)] = rng.choice([-1.0, 1.0])
        tally.add(abs(_third_moment(p, xi, delta)), 1.0)
    # mean of the extremal two-point law on ±1
    m = 1 / math.sqrt(3)
    p, delta = np.array([(1 + m) / 2, (1 - m) / 2]), np.array([1.0, -1.0])
    tally.add(abs(_third_moment(p, -delta, delta)), 1.0)
    return tally.finding("the two-point law with mean 1/√3 gives 4√3/9 = .7698")


LEMMA_C = Statement(
    id="lemmaC",
    place="ours",
    title="third mixed moment of bounded variables",
    ours="|ξ| ≤ a, |δ| ≤ b imply |E[(ξ−Eξ)(δ−Eδ)²]| ≤ a b²",
    proof="docs/theory/derivatives.md#lemma-c",
    remark="two- and three-point laws reach 4√3/9; the constant 1 is what the proof gives",
    check=check_third_moment,
    tightness=0.769,
    used_by=("prop1.hessian",),
)


def draw(
    rng: np.random.Generator, shape: tuple[int, ...], directional: bool
) -> dict[str, np.ndarray]:
    """A random point of `shape`: tokens, dim and, for several heads, heads and examples; scales over several orders."""
    T, d, *several = shape
    H, n = [(count,) for count in several] or ((), ())
    size = 10.0 ** rng.uniform(-1.5, 0.7, 3)
    point = {
        "X": rng.standard_normal((*n, T, d)) * size[0] ** 0.5,
        "U": rng.standard_normal((*H, T, d)) * size[1],
        "W": rng.standard_normal((*H, d, d)) * size[2],
    }
    if directional:
        point |= {"dU": rng.standard_normal((*H, T, d)), "dW": rng.standard_normal((*H, d, d))}
    return point


def _sizes(point: Point):
    """max‖x_t‖ and Σ_t‖Xu_t‖_∞."""
    X, U = point["X"], point["U"]
    return jnp.sqrt(jnp.max(jnp.sum(X**2, axis=1))), jnp.sum(jnp.max(jnp.abs(X @ U.T), axis=0))


def gradient_bounds(point: Point) -> tuple[Array, Array]:
    """Proposition 1, gradient: ours and printed."""
    (row, total), T = _sizes(point), len(point["X"])
    return jnp.sqrt(T * row**2 + row**4 * total**2), 2 * row**2 * total + math.sqrt(T) * row


def hessian_bounds(point: Point) -> tuple[Array, Array]:
    """Proposition 1, Hessian: ours and printed."""
    (row, total), (T, d) = _sizes(point), point["X"].shape
    entry = jnp.max(jnp.abs(point["X"]))
    a, c = row**4 * total, math.sqrt(T) * row**3
    printed = 6 * d * row**2 * entry**2 * total + 2 * math.sqrt(T * d) * row**2 * entry
    return (a + jnp.sqrt(a**2 + 4 * c**2)) / 2, printed


def gradient_norm(point: Point) -> Array:
    """‖∇_(U,W) Φ‖."""
    return norm(weights_of(jax.grad(single_head)(point)))


def model_curvature(point: Point) -> Array:
    """|vᵀ∇²Φ v|/‖v‖² along the direction stored in the point."""
    return jnp.abs(quadratic(lambda w: single_head({"X": point["X"], **w}), point))


GRADIENT_SEARCH = Search(
    "prop1.gradient",
    gradient_norm,
    gradient_bounds,
    lambda rng, shape: draw(rng, shape, False),
    SHAPES,
    (4, 2),
    POINTS,
)
HESSIAN_SEARCH = Search(
    "prop1.hessian",
    model_curvature,
    hessian_bounds,
    lambda rng, shape: draw(rng, shape, True),
    SHAPES,
    (4, 2),
    POINTS,
)


def gradient_point(num_tokens: int = 4, dim: int = 2) -> dict[str, np.ndarray]:
    """Identical tokens and U = 0: Proposition 1's gradient bound is an equality."""
    X, U = 1.5 * np.tile(np.eye(dim)[0], (num_tokens, 1)), np.zeros((num_tokens, dim))
    return {"X": X, "U": U, "W": np.random.default_rng(0).standard_normal((dim, dim))}


def check_gradient_bound(effort: Effort) -> Finding:
    """Random, adversarial, and identical tokens with U = 0."""
    tally = Tally()
    attack(tally, GRADIENT_SEARCH, effort, extra=[gradient_point()])
    return tally.finding("attained by identical tokens with U = 0")


PROPOSITION_1_GRADIENT = Statement(
    id="prop1.gradient",
    place="Section 3, Proposition 1, first bound",
    title="norm of the model's gradient",
    printed="‖∇Φ‖ ≤ 2‖X‖²_{2,∞} Σ_t‖Xu_t‖_∞ + √T ‖X‖_{2,∞}",
    corrected="as printed",
    ours="‖∇Φ‖ ≤ √(T X2² + X2⁴ S_U²) with X2 = max‖x_t‖, S_U = Σ_t‖Xu_t‖_∞",
    proof="docs/theory/derivatives.md#proposition-1",
    remark="attained by U = 0 and identical tokens",
    check=check_gradient_bound,
    tightness=1.0,
    used_by=("cor1.1", "cor1.2"),
)


def hessian_point(num_tokens: int = 4, dim: int = 2) -> dict[str, np.ndarray]:
    """Half of the tokens at +v, half at −v, U = W = 0: Proposition 1's Hessian bound is an equality, √T‖v‖³.

    The direction moves each row of U along its own token, and W along vvᵀ.
    """
    signs, v = np.where(np.arange(num_tokens) < num_tokens // 2, 1.0, -1.0), np.eye(dim)[0]
    tokens = signs[:, None] * v
    weights = {"U": np.zeros((num_tokens, dim)), "W": np.zeros((dim, dim))}
    return {"X": 1.3 * tokens, **weights, "dU": tokens / np.sqrt(num_tokens), "dW": np.outer(v, v)}


def check_hessian_bound(effort: Effort) -> Finding:
    """Directions by search, all eigenvalues at random points and the extremal one."""
    tally = Tally()
    attack(tally, HESSIAN_SEARCH, effort, extra=[hessian_point()])
    rng = np.random.default_rng(effort.seed + 1)
    points = [HESSIAN_SEARCH.draw(rng, (4, 2)) for _ in range(effort.count(400, 100))] + [
        hessian_point()
    ]
    for point, (_, bound, printed) in zip(points, evaluate(HESSIAN_SEARCH, points), strict=True):
        with jax.enable_x64(True):
            hessian = np.asarray(
                _model_hessian(*(jnp.asarray(point[name], jnp.float64) for name in "UWX"))
            )
        tally.add(np.abs(np.linalg.eigvalsh(hessian)).max(), bound, printed)
    return tally.finding("attained by half of the tokens at +v, half at −v, U = W = 0")


@jax.jit
def _model_hessian(U, W, X):
    """Dense Hessian of the model's output in (U, W)."""

    def flat(w):
        return single_head(
            {"X": X, "U": w[: U.size].reshape(U.shape), "W": w[U.size :].reshape(W.shape)}
        )

    return jax.hessian(flat)(jnp.concatenate([U.ravel(), W.ravel()]))


PROPOSITION_1_HESSIAN = Statement(
    id="prop1.hessian",
    place="Section 3, Proposition 1, second bound",
    title="spectral norm of the model's Hessian",
    printed="‖∇²Φ‖ ≤ 6d ‖X‖²_{2,∞}‖X‖²_{1,∞} Σ_t‖Xu_t‖_∞ + 2√(Td) ‖X‖²_{2,∞}‖X‖_{1,∞}",
    corrected="as printed",
    ours="‖∇²Φ‖ ≤ (a + √(a² + 4c²))/2 with a = X2⁴ S_U, c = √T X2³; free of the dimension",
    proof="docs/theory/derivatives.md#proposition-1",
    remark="attained by U = W = 0 with half of the tokens at +v and half at −v",
    check=check_hessian_bound,
    tightness=1.0,
    used_by=("cor1.2", "cor1.3"),
)


def check_collapse(effort: Effort) -> Finding:
    """Spectrum of the full Hessian from classes, against dense Hessians of explicit heads; and descent on both."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    T, d, n = 3, 2, 5
    for k in range(effort.count(200, 1)):
        counts = ((3, 1), (2, 4))[k % 2]
        U, W = rng.standard_normal((2, T, d)), rng.standard_normal((2, d, d))
        X, y = rng.standard_normal((n, T, d)), rng.choice([-1.0, 1.0], n)
        full = np.linalg.eigvalsh(explicit_hessian(U, W, counts, X, y))
        classes = np.sort(class_spectrum(U, W, np.array(counts, float), X, y))
        tally.add(np.abs(full - classes).max(), 1e-12 * (1 + np.abs(full).max()))
    data = _noiseless().sample(12, key=jax.random.key(effort.seed))
    W, U = rng.standard_normal((2, 6, 6)), rng.standard_normal((2, 4, 6))
    model = attention.MultiHead.create(W, U, multiplicity=[3, 2])
    heads = attention.expand(model)
    for steps in (10, effort.count(100, 30)):
        short, long = (
            follower.follow(m, data, step_size=0.3, num_steps=steps).displacement
            for m in (model, heads)
        )
        pairs = zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True)
        tally.add(max(np.abs(np.repeat(a, [3, 2], axis=0) - b).max() for a, b in pairs), 1e-12)
    return tally.finding(
        "dense Hessians with unequal multiplicities; descent on classes against descent on every "
        "head"
    )


COLLAPSE = Statement(
    id="collapse",
    place="ours",
    title="equal heads stay equal, and everything collapses to classes",
    ours="heads that start equal stay equal under gradient descent; outputs, kernel, norms, distances to "
    "class-constant targets collapse exactly, and the spectrum of ∇²L̂ is that of the collapsed "
    "Hessian together with "
    "that of B_g/√H, N_g − 1 times",
    proof="docs/theory/collapse.md#spectrum",
    remark="an identity: dense Hessians of explicit heads with unequal multiplicities, to rounding",
    check=check_collapse,
    used_by=("eq2", "thm1", "identity"),
)
