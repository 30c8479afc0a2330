"""Checks of Sections 2 and 3: the model, Lemma 1, Proposition 1, Corollary 1, and the collapse of equal heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.certificates import extremal
from manyheads.certificates.finding import Effort, Finding, Tally
from manyheads.certificates.search import SEARCHES, Search, climb, single_head
from manyheads.data.mixture import TokenizedMixture
from manyheads.model.attention import MultiHead, collapse, expand
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare

EPS = np.finfo(float).eps
POINTS = Path(__file__).with_name("adversarial_points.npz")
SHAPES = ((4, 2), (3, 5), (6, 3))  # tokens, dim of random trials; the first one in quick checks


def double_sum(X: np.ndarray, U: np.ndarray, W: np.ndarray) -> float:
    """Eq. (1) as a literal double sum."""
    total = 0.0
    for t in range(len(X)):
        logits = np.array([X[t] @ W @ X[s] for s in range(len(X))])
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        total += sum(weights[s] * (U[t] @ X[s]) for s in range(len(X)))
    return total


def single_head_sum(effort: Effort) -> Finding:
    """Eq. (1): the library against the double sum."""
    tally, rng = Tally("eq1"), np.random.default_rng(effort.seed)
    call = jax.jit(lambda model, X: model(X))
    for _ in range(effort.count(60, 15)):
        X, U, W = rng.standard_normal((4, 3)), rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
        with jax.enable_x64(True):
            got = float(call(MultiHead.create(W[None], U[None]), X))
        scale = np.sum(np.abs(U)) * np.abs(X).max()
        tally.add(abs(got - double_sum(X, U, W)), 64 * EPS * scale)
    return tally.finding("largest error over 64 roundings of the terms")


def multi_head(effort: Effort) -> Finding:
    """Eq. (2): the library's scores of classes against explicit heads summed one by one."""
    tally, rng = Tally("eq2"), np.random.default_rng(effort.seed)
    data = TokenizedMixture(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, frame="axis").sample(
        8, key=jax.random.key(effort.seed)
    )
    for _ in range(effort.count(20, 5)):
        model = MultiHead.create(
            rng.standard_normal((3, 6, 6)), rng.standard_normal((3, 4, 6)), multiplicity=rng.integers(1, 6, 3)
        )
        heads = expand(model)
        H = heads.num_classes
        one_by_one = np.array(
            [
                sum(double_sum(X, heads.readout[h], heads.key_query[h]) for h in range(H)) / math.sqrt(H)
                for X in data.tokens
            ]
        )
        error = np.max(np.abs(model.scores(data) - one_by_one))
        tally.add(error, 64 * EPS * math.sqrt(H) * np.abs(heads.readout).sum(axis=(1, 2)).max())
    return tally.finding("classes with multiplicities against a sum over explicit heads")


def softmax_jacobian(v: np.ndarray) -> np.ndarray:
    """φ'(v) as corrected (E1)."""
    p = np.exp(v - v.max())
    p /= p.sum()
    return np.diag(p) - np.outer(p, p)


def derivative_formulas(effort: Effort) -> Finding:
    """Lemma 1: the four formulas, and the covariance form, against automatic differentiation."""
    tally, rng = Tally("lemma1"), np.random.default_rng(effort.seed)
    for T, d in SHAPES[: effort.count(3, 1)]:
        slope = jax.jit(jax.grad(lambda U, W, X: single_head({"X": X, "U": U, "W": W}), argnums=(0, 1)))
        second = jax.jit(jax.jacfwd(slope, argnums=1))
        for _ in range(effort.count(20, 8)):
            X, U, W = rng.standard_normal((T, d)), rng.standard_normal((T, d)), rng.standard_normal((d, d))
            a, b, c = rng.standard_normal(T), rng.standard_normal(d), rng.standard_normal(d)
            with jax.enable_x64(True):
                dU, dW = map(np.asarray, slope(U, W, X))
                dUW, dWW = map(np.asarray, second(U, W, X))
            ours = _lemma1(X, U, W, a, b, c)
            auto = {
                "U": dU,
                "W": dW,
                "UW": np.einsum("t,tdij,d->ij", a, dUW, b),
                "WW": np.einsum("p,pdij,d->ij", c, dWW, b),
            }
            for name in auto:
                scale = 1 + np.abs(auto[name]).max()
                tally.add(np.abs(ours[name] - auto[name]).max(), 1e-11 * scale)
            moments = _moment_forms(X, U, W, a[:, None] * b, np.outer(c, b))
            tally.add(abs(moments[0] - np.sum(dW * np.outer(c, b))), 1e-11 * (1 + abs(moments[0])))
            mixed = np.einsum("td,tdij,ij->", a[:, None] * b, dUW, np.outer(c, b))
            tally.add(abs(moments[1] - mixed), 1e-11 * (1 + abs(mixed)))
            pure = np.einsum("pd,pdij,ij->", np.outer(c, b), dWW, np.outer(c, b))
            tally.add(abs(moments[2] - pure), 1e-11 * (1 + abs(pure)))
    return tally.finding("largest error over 1e-11·(1 + size), formulas and covariance form against autodiff")


def _lemma1(X, U, W, a, b, c) -> dict[str, np.ndarray]:
    """The four formulas of Lemma 1: ∇_U, ∇_W, and the two contracted second derivatives."""
    T, d = X.shape
    out = {"U": np.zeros((T, d)), "W": np.zeros((d, d)), "UW": np.zeros((d, d)), "WW": np.zeros((d, d))}
    for t, x in enumerate(X):
        logits = X @ W.T @ x
        p = np.exp(logits - logits.max())
        p /= p.sum()
        J, Xu, Xb = softmax_jacobian(logits), X @ U[t], X @ b
        out["U"][t] = p @ X
        out["W"] += np.outer(x, Xu @ J @ X)
        out["UW"] += a[t] * np.outer(x, Xb @ J @ X)
        vector = Xb * Xu - Xu * (Xb @ p) - Xb * (Xu @ p)
        out["WW"] += (c @ x) * np.outer(x, vector @ J @ X)
    return out


def _moment_forms(X, U, W, dU, dW) -> tuple[float, float, float]:
    """Σ_t Cov(ξ, δ), Σ_t Cov(⟨x, du_t⟩, δ), Σ_t E[(ξ−Eξ)(δ−Eδ)²]."""
    first = mixed = pure = 0.0
    for t, x in enumerate(X):
        p = np.exp(X @ W.T @ x)
        p /= p.sum()
        xi, delta, eta = X @ U[t], X @ dW.T @ x, X @ dU[t]
        first += p @ ((xi - p @ xi) * (delta - p @ delta))
        mixed += p @ ((eta - p @ eta) * (delta - p @ delta))
        pure += p @ ((xi - p @ xi) * (delta - p @ delta) ** 2)
    return first, mixed, pure


def third_moment(effort: Effort) -> Finding:
    """Lemma C: laws on a few points, random and the extremal two-point law."""
    tally, rng = Tally("lemmaC"), np.random.default_rng(effort.seed)
    for _ in range(effort.count(20_000, 2000)):
        p = rng.dirichlet(np.full(3, 0.5))
        xi, delta = rng.choice([-1.0, 1.0], 3), rng.uniform(-1, 1, 3)
        delta[rng.integers(3)] = rng.choice([-1.0, 1.0])
        tally.add(abs(p @ ((xi - p @ xi) * (delta - p @ delta) ** 2)), 1.0)
    m = 1 / math.sqrt(3)  # mean of the extremal two-point law on ±1
    p, delta = np.array([(1 + m) / 2, (1 - m) / 2]), np.array([1.0, -1.0])
    xi = np.array([-1.0, 1.0])
    tally.add(abs(p @ ((xi - p @ xi) * (delta - p @ delta) ** 2)), 1.0)
    return tally.finding("the two-point law with mean 1/√3 gives 4√3/9 = .7698")


@cache
def stored_points() -> dict[str, list[dict[str, np.ndarray]]]:
    """Adversarial points found by long searches, shipped with the package."""
    points: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    with np.load(POINTS, allow_pickle=False) as file:
        for full in file.files:
            name, number, leaf = full.split("|")
            points.setdefault(name, {}).setdefault(int(number), {})[leaf] = file[full]
    return {name: list(by_number.values()) for name, by_number in points.items()}


def attack(tally: Tally, search: Search, effort: Effort, extra: Sequence[dict] = (), **shapes) -> None:
    """Stored adversarial points, random points, and in a full check other shapes and a fresh search."""
    rng = np.random.default_rng(effort.seed)
    heads, examples = shapes.get("heads", 1), 1
    for k, (T, d) in enumerate(SHAPES[: effort.count(3, 1)]):
        points = [search.draw(rng, T, d, heads, examples) for _ in range(effort.count(400, 100))]
        points += [p for p in stored_points()[search.name] if all(p[n].shape == points[0][n].shape for n in p)]
        if k == 0 and len(points) == effort.count(400, 100):
            raise AssertionError(f"no stored point of {search.name} has the shape of the random ones")
        _evaluate(tally, search, points + list(extra if k == 0 else ()))
    if not effort.quick:
        _evaluate(tally, search, [search.draw(rng, 4, 2, 3, 4) for _ in range(400)])
        for point in stored_points()[search.name]:
            _evaluate(tally, search, [point])
        _evaluate(tally, search, [climb(search, seed=effort.seed, restarts=16, steps=1500, **shapes)[0]])


@cache
def _evaluator(name: str):
    search = SEARCHES[name]
    return jax.jit(jax.vmap(lambda point: (search.measure(point), search.bounds(point))))


def evaluate(search: Search, points: list[dict[str, np.ndarray]]) -> list[tuple[float, float, float]]:
    """Measured value, our bound and the printed bound at points of one shape."""
    stacked = {name: np.stack([np.asarray(point[name]) for point in points]) for name in points[0]}
    with jax.enable_x64(True):
        measured, bounds = jax.tree.map(np.asarray, _evaluator(search.name)(stacked))
    columns = (measured, bounds[search.bound], bounds[f"{search.bound} printed"])
    return [(float(m), float(b), float(p)) for m, b, p in zip(*columns, strict=True)]


def _evaluate(tally: Tally, search: Search, points: list[dict[str, np.ndarray]]) -> None:
    for measured, bound, printed in evaluate(search, points):
        tally.add(measured, bound, printed)


def gradient_bound(effort: Effort) -> Finding:
    """Proposition 1, gradient: random, adversarial, and identical tokens with U = 0."""
    tally, search = Tally("prop1.gradient"), SEARCHES["prop1.gradient"]
    attack(tally, search, effort, extra=[extremal.gradient_point()])
    return tally.finding("identical tokens with U = 0 attain it")


def hessian_bound(effort: Effort) -> Finding:
    """Proposition 1, Hessian: directions by search, all eigenvalues at the extremal point."""
    tally, search = Tally("prop1.hessian"), SEARCHES["prop1.hessian"]
    attack(tally, search, effort, extra=[extremal.hessian_point()])
    rng = np.random.default_rng(effort.seed + 1)
    points = [search.draw(rng, 4, 2, 1, 1) for _ in range(effort.count(400, 100))] + [extremal.hessian_point()]
    for point, (_, bound, printed) in zip(points, evaluate(search, points), strict=True):
        tally.add(np.abs(np.linalg.eigvalsh(model_hessian(point))).max(), bound, printed)
    return tally.finding("half of the tokens at +v, half at −v, U = W = 0 attain it")


@jax.jit
def _model_hessian(U, W, X):
    T, d = X.shape

    def flat(w):
        return single_head({"X": X, "U": w[: T * d].reshape(T, d), "W": w[T * d :].reshape(d, d)})

    return jax.hessian(flat)(jnp.concatenate([U.ravel(), W.ravel()]))


def model_hessian(point) -> np.ndarray:
    """Dense Hessian of the model's output in (U, W)."""
    with jax.enable_x64(True):
        return np.asarray(_model_hessian(*(jnp.asarray(point[name], jnp.float64) for name in ("U", "W", "X"))))


def bounded_data(effort: Effort) -> Finding:
    """Assumption 1 on samples of the mixture, with its R."""
    tally = Tally("asm1")
    for i, signal in enumerate((0.3, 1.0, 2.5)):
        mixture = TokenizedMixture(
            num_tokens=6,
            dim=9,
            num_patterns=3,
            sparsity=0.5,
            signal=signal,
            noise_mu=0.1 * signal,
            noise_nu=0.1 * signal,
            noise_norm=0.6 * signal,
            noise=("uniform", "vertex", "vertex")[i],
            key=jax.random.key(i),
        )
        for j in range(effort.count(20, 4)):
            data = mixture.sample(50, key=jax.random.key(100 * i + j + effort.seed))
            tally.add(np.linalg.norm(data.tokens, axis=-1).max(), mixture.token_radius)
            tally.add(np.abs(np.abs(data.labels) - 1).max(), 0.0)
    return tally.finding("samples of the mixture, token norms against R")


def loss_gradient(effort: Effort) -> Finding:
    """Corollary 1 (1)."""
    tally = Tally("cor1.1")
    attack(tally, SEARCHES["cor1.1"], effort, heads=4)
    for heads in (1e2, 1e4, 1e8):
        measured, bound, printed = extremal.loss_gradient(heads)
        tally.add(measured, bound, printed)
    return tally.finding("identical tokens, many heads with small aligned readouts approach it")


def loss_smoothness(effort: Effort) -> Finding:
    """Corollary 1 (2)."""
    tally = Tally("cor1.2")
    attack(tally, SEARCHES["cor1.2"], effort, heads=4)
    for heads in (1e2, 1e4, 1e8):
        measured, bound, printed = extremal.loss_smoothness(heads)
        tally.add(measured, bound, printed)
    return tally.finding("identical tokens, U = 0 and many heads approach it")


def loss_weak_convexity(effort: Effort) -> Finding:
    """Corollary 1 (3)."""
    tally = Tally("cor1.3")
    attack(tally, SEARCHES["cor1.3"], effort, heads=4)
    for heads in (1e2, 1e4, 1e8):
        measured, bound, printed = extremal.loss_weak_convexity(heads)
        tally.add(measured, bound, printed)
    return tally.finding("two idle heads on ±v tokens beside many heads that make the score large approach it")


def head_collapse(effort: Effort) -> Finding:
    """Section 9: spectrum of the full Hessian from classes, against dense Hessians of explicit heads; and a run."""
    tally, rng = Tally("collapse"), np.random.default_rng(effort.seed)
    T, d, n = 3, 2, 5
    for counts in ((3, 1), (2, 4))[: effort.count(2, 1)]:
        U, W = rng.standard_normal((2, T, d)), rng.standard_normal((2, d, d))
        X, y = rng.standard_normal((n, T, d)), rng.choice([-1.0, 1.0], n)
        full = np.linalg.eigvalsh(extremal.explicit_hessian(U, W, counts, X, y))
        classes = np.sort(extremal.class_spectrum(U, W, np.array(counts, float), X, y))
        tally.add(np.abs(full - classes).max(), 1e-12 * (1 + np.abs(full).max()))
    mixture = TokenizedMixture(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, frame="axis")
    data = mixture.sample(12, key=jax.random.key(effort.seed))
    model = MultiHead.create(rng.standard_normal((2, 6, 6)), rng.standard_normal((2, 4, 6)), multiplicity=[3, 2])
    for steps in (10, effort.count(100, 30)):
        short, long = _descend(model, data, steps), _descend(expand(model), data, steps)
        error = max(np.abs(a - b).max() for a, b in zip(short.heads, long.heads, strict=True))
        tally.add(error, 1e-12)
    return tally.finding("dense Hessians with unequal multiplicities; descent on classes against descent on every head")


def _descend(model: MultiHead, data, steps: int, eta: float = 0.3) -> MultiHead:
    """Plain descent; heads that started equal are merged again at the end (they may differ by rounding)."""
    with jax.enable_x64(True):
        heads = _steps(
            model.heads,
            head_weights(model),
            prepare(data, model),
            np.full(data.num_examples, 1 / data.num_examples),
            eta,
            steps,
        )
    merged = collapse(model)
    first = [int(np.argmax([np.array_equal(u, v) for u in model.readout])) for v in merged.readout]
    spread = max(np.abs(np.asarray(leaf) - np.asarray(leaf)[_class_of(model, merged, first)]).max() for leaf in heads)
    if spread > 1e-12:
        raise AssertionError(f"heads that started equal came apart by {spread:.1e}")
    heads = jax.tree.map(lambda a: np.asarray(a)[first], heads)
    return MultiHead(heads[0], heads[1], merged.multiplicity)


def _class_of(model: MultiHead, merged: MultiHead, first: list[int]) -> list[int]:
    return [first[int(np.argmax([np.array_equal(u, v) for v in merged.readout]))] for u in model.readout]


@jax.jit
def _steps(heads, weights, batch, sample_weight, eta, steps):
    def step(_, heads):
        gradient = loss_and_gradient(heads, weights, batch, sample_weight)[2]
        return jax.tree.map(lambda h, g: h - eta * g, heads, gradient)

    return jax.lax.fori_loop(0, steps, step, jax.tree.map(jnp.asarray, heads))
