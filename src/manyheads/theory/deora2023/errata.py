"""Errata E1 to E13: what is printed, what is right, and a check that would fail if the paper were right as printed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from manyheads.data import mixture as mixtures
from manyheads.theory.deora2023 import convexity, formula, recursion
from manyheads.theory.deora2023.constants import Shape, log_one_plus_exp
from manyheads.theory.deora2023.model import hessian_bounds, softmax_jacobian
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.finding import Effort, Finding, erratum
from manyheads.theory.statement import Statement
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.data.mixture import TokenizedMixture


def misprint(
    weight: str,
    place: str,
    title: str,
    *,
    printed: str,
    corrected: str,
    remark: str,
    used_by: tuple[str, ...],
) -> Callable[[Callable[[Effort], Finding]], Statement]:
    """An erratum from the function that reproduces it; the function's name is its id."""

    def state(check: Callable[[Effort], Finding]) -> Statement:
        name: str = check.__name__  # ty: ignore[missing-attribute]
        return Statement(
            id=name.upper(),
            place=place,
            title=title,
            printed=printed,
            corrected=corrected,
            check=check,
            remark=remark,
            proof=f"docs/theory/errata.md#{name}",
            used_by=used_by,
            weight=weight,
        )

    return state


def _softmax_derivative(v: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.jacfwd(jax.nn.softmax))(v))


@misprint(
    "typographic",
    "Section 2, notation",
    "softmax Jacobian",
    printed="φ'(v) = diag(φ(v)) − v vᵀ",
    corrected="φ'(v) = diag(φ(v)) − φ(v)φ(v)ᵀ",
    remark="at v = (1, −2, ½) the printed matrix is off by 4, the corrected one by rounding",
    used_by=("lemma1",),
)
def e1(effort: Effort) -> Finding:
    """Printed and corrected against automatic differentiation."""
    v = np.array([1.0, -2.0, 0.5])
    true, p = _softmax_derivative(v), np.exp(v) / np.exp(v).sum()
    printed = np.abs(np.diag(p) - np.outer(v, v) - true).max()
    corrected = np.abs(softmax_jacobian(v) - true).max()
    return erratum(
        printed > 1 and corrected < 1e-15,
        f"printed off by {printed:.3g}, corrected by {corrected:.1g}",
    )


@misprint(
    "real",
    "Section 5.2",
    "softmax Jacobian at zero",
    printed="φ'(0) = I − 11ᵀ/T",
    corrected="φ'(0) = (1/T)(I − 11ᵀ/T)",
    remark="T = 4: printed off by .5625; only the corrected one gives (7)",
    used_by=("prop2",),
)
def e2(effort: Effort) -> Finding:
    """The same at zero, T = 4."""
    T = 4
    true, centered = _softmax_derivative(np.zeros(T)), np.eye(T) - np.ones((T, T)) / T
    printed, corrected = np.abs(centered - true).max(), np.abs(centered / T - true).max()
    return erratum(
        printed > 0.5 and corrected < 1e-16,
        f"printed off by {printed:.4g}, corrected by {corrected:.1g}",
    )


@misprint(
    "typographic",
    "Section 2, footnote on pooling",
    "pooled readout",
    printed="U = u 1_Tᵀ",
    corrected="U = 1_T uᵀ",
    remark="the printed product is d×T while U is T×d",
    used_by=("eq1",),
)
def e3(effort: Effort) -> Finding:
    """Only 1_T uᵀ has the shape of U, and it gives the pooled model."""
    rng = np.random.default_rng(effort.seed)
    T, d = 5, 3
    u, X, W = rng.standard_normal(d), rng.standard_normal((T, d)), rng.standard_normal((d, d))
    printed, corrected = np.outer(u, np.ones(T)), np.outer(np.ones(T), u)
    with jax.enable_x64(True):
        full = float(jax.jit(formula.single_head)({"X": X, "U": corrected, "W": W}))
    logits = X @ W @ X.T
    A = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    fits = corrected.shape == (T, d) and printed.shape != (T, d)
    return erratum(
        fits and abs(full - np.sum(A @ X @ u)) < 1e-12, f"printed is {printed.shape}, U is {(T, d)}"
    )


@misprint(
    "loose",
    "Corollary 1 (3)",
    "β3 is √d too large",
    printed="β3 = 2√T·d·R³(3√d R²x + 1)",
    corrected="Proposition 1 gives 2√(Td)·R³(3√d R²x + 1)",
    remark="the printed one is true; only the version of Proposition 1 gives the factor d of (3)",
    used_by=("cor1.3", "thm1"),
)
def e4(effort: Effort) -> Finding:
    """β3 against the printed bound of Proposition 1, whose largest value is the printed β3 over √d.

    The bound is evaluated on tokens of norm up to R and readouts of norm x: random ones, and equal
    tokens R·e_1 with readouts along them, where it is largest.
    """
    rng, d, R, x = np.random.default_rng(effort.seed), 16, 1.5, 2.0
    T, trials = 4, effort.count(400, 50)
    X, U = rng.standard_normal((trials, T, d)), rng.standard_normal((trials, T, d))
    X *= R / np.linalg.norm(X, axis=2).max(axis=1)[:, None, None]
    U *= x / np.linalg.norm(U, axis=(1, 2))[:, None, None]
    X[0], U[0] = 0.0, 0.0
    X[0, :, 0], U[0, :, 0] = R, x / math.sqrt(T)
    with jax.enable_x64(True):
        bound = jax.jit(jax.vmap(lambda x, u: hessian_bounds({"X": x, "U": u})[1]))
        proposition = np.asarray(bound(X, U))
    shape = Shape(T, d, R)
    factor = shape.beta3(x) / proposition.max()
    ours = shape.beta3(1e6) / shape.b3(1e6)
    good = (
        proposition.argmax() == 0
        and abs(factor - math.sqrt(d)) < 1e-12
        and abs(ours / (6 * d**1.5) - 1) < 1e-3
    )
    detail = f"d = {d}: printed/Proposition 1 = {factor:.3g}, printed/ours = {ours:.4g} for large readouts"
    return erratum(good, detail, trials=trials)


@misprint(
    "typographic",
    "text after Corollary 1",
    "direction of the smallest eigenvalue",
    printed="as H increases the minimum eigenvalue becomes less positive",
    corrected="less negative",
    remark="λ_min is at most 0 here and rises towards 0 as H grows",
    used_by=("cor1.3",),
)
def e5(effort: Effort) -> Finding:
    """λ_min is negative and rises towards 0 as the same heads are repeated more often."""
    U, W = np.zeros((1, 4, 1)), np.zeros((1, 1, 1))
    X, y = np.random.default_rng(effort.seed).standard_normal((1, 4, 1)), np.ones(1)
    least = [
        formula.class_spectrum(U, W, np.array([h]), X, y).min() for h in (2.0, 8.0, 32.0, 128.0)
    ]
    good = least[-1] < 0 and all(a < b for a, b in zip(least, least[1:], strict=False))
    return erratum(
        good, "λ_min = " + ", ".join(f"{a:.3g}" for a in least) + " for H = 2, 8, 32, 128", trials=4
    )


@misprint(
    "debatable",
    "Theorem 1, (3)",
    "product form of the head condition",
    printed="√H ≳ d√T R⁵‖θ‖_{2,∞}D³",
    corrected="√H ≥ 18D²β3(‖θ‖_{2,∞} + 3D), of order D²(1 + ‖θ‖_{2,∞} + D)",
    remark="from the zero start with an evenly spread target ‖θ‖_{2,∞} = D/√H: (3) then requires ever fewer heads "
    "while the sketch does not. The product form needs ‖θ‖_{2,∞} ≥ 1 and D ≥ 1",
    used_by=("thm1",),
)
def e6(effort: Effort) -> Finding:
    """(3) against the sketch's condition, zero start and a target spread evenly over H heads."""
    shape, D = Shape(4, 6, 1.0), 3.0
    norms = [D / math.sqrt(H) for H in (1e2, 1e4, 1e6, 1e8)]
    shares = [shape.heads_printed(norm, D) / shape.heads_explicit(norm, D) for norm in norms]
    good = all(b < 0.2 * a for a, b in zip(shares, shares[1:], strict=False))
    detail = f"(3) requires {shares[0]:.1g} to {shares[-1]:.1g} of the sketch's √H as H goes from 1e2 to 1e8"
    return erratum(good, detail, trials=4)


@misprint(
    "real",
    "Theorem 1",
    "order of ρ",
    printed="ρ ≲ d^{3/2}T^{3/2}R^{13}‖θ‖²_{2,∞}D²",
    corrected="Section 6.1's ρ is of order (d²T^{3/2}R^{13}/√H + dT²R^{12})(1 + D + ‖θ‖_{2,∞})²",
    remark="d = R = H = ‖θ‖_{2,∞} = D = 1 and T → ∞: ρ grows like T², its printed order like T^{3/2}; the quotient is "
    "3969, 47,628 and 4.4e6 for T = 1, 1e4, 1e8, so no constant exists",
    used_by=("thm1",),
)
def e7(effort: Effort) -> Finding:
    """No constant covers Section 6.1's ρ by the printed order: the power of T differs."""
    shapes = [Shape(T, 1, 1.0) for T in (1, 10**4, 10**8)]
    quotients = [s.rho_explicit(1.0, 1.0, 1.0) / s.rho_printed(1.0, 1.0) for s in shapes]
    good = abs(quotients[0] - 3969) < 1 and quotients[1] > 4e4 and quotients[2] > 4e6
    return erratum(
        good, "ρ over its printed order: " + ", ".join(f"{q:.3g}" for q in quotients), trials=3
    )


@misprint(
    "typographic",
    "Section 6.1, (14)",
    "sign of Taylor's inequality",
    printed="L̂(θ) ≤ …",
    corrected="L̂(θ) ≥ …",
    remark="fails on random segments in the printed direction, never in the other",
    used_by=("eq14",),
)
def e8(effort: Effort) -> Finding:
    """(14) in the printed direction fails on random segments."""
    s = convexity.segments_for(effort)
    right = s.loss[:, 0] + s.slope + 0.5 * s.least.min(axis=1) * s.length**2
    broken, share = (
        int(np.sum(s.loss[:, -1] > right + 1e-9)),
        float(np.max(s.loss[:, -1] / np.abs(right))),
    )
    detail = f"printed direction fails on {broken} of {len(right)} segments"
    return erratum(broken > 0.9 * len(right), detail, printed=share, trials=len(right))


@misprint(
    "typographic",
    "Section 6.1, (16)",
    "names of the endpoints",
    printed="β3(θ1) ∨ β3(θ2)",
    corrected="β3(θ) ∨ β3(θ_k)",
    remark="with unrelated θ1, θ2 the inequality fails: at θ1 = θ2 = 0 the printed constant does not grow with the "
    "readout, and a head with readout 1000 exceeds it 7.7 times",
    used_by=("eq16",),
)
def e9(effort: Effort) -> Finding:
    """(16) with θ1, θ2 unrelated to the segment, here θ1 = θ2 = 0 and β3 as printed: it fails. With its ends it holds.

    One head at W = 0, three tokens x = (1, 0, −½) on a line and a large readout u_t ∝ 1/∏_{s≠t}(x_t
    − x_s): then Φ and its slope in W vanish and Φ grows like w², so the loss is concave there, the
    more the larger the readout is.
    """
    x, y, size, end = np.array([1.0, 0.0, -0.5]), np.ones(1), 1000.0, 0.01
    u = np.array([1 / np.prod([a - b for b in x if b != a]) for a in x])
    X, U = x[None, :, None], size * (u / np.linalg.norm(u))[None, :, None]

    def loss(w):
        with jax.enable_x64(True):
            value, slope = formula.class_loss(U, np.array([[[w]]]), np.ones(1), X, y)
        return float(value), float(slope[-1])

    value, slope = loss(0.0)
    gap = value + slope * end - loss(end)[0]
    top = max(loss(w)[0] for w in np.linspace(0.0, end, 21))
    shape, whole = Shape(3, 1, 1.0), math.hypot(size, end)
    constants = (shape.beta3(0.0), shape.beta3(whole), shape.b3(size))
    wrong, ends, right = (gap / (0.5 * c * top * end**2) for c in constants)
    detail = f"with θ1 = θ2 = 0 the bound is exceeded {wrong:.1f} times; with the ends {ends:.2g} of it is used"
    return erratum(wrong > 1 and ends <= 1 and right <= 1, detail, printed=wrong, ours=right)


@misprint(
    "typographic",
    "Section 6.2, (21)",
    "misplaced parenthesis",
    printed="(1 + ηβ̃3/√H)·max L̂^{-i}·‖·‖",
    corrected="(1 + (ηβ̃3/√H)·max L̂^{-i})·‖·‖",
    remark="where the loss is small the printed factor is far below 1, and leave-one-out runs violate it",
    used_by=("eq21",),
)
def e10(effort: Effort) -> Finding:
    """(21) with the printed parenthesis fails late in a leave-one-out run, where the loss is small; η ≤ 1/b2."""
    mixture, data, fresh = small_problem(effort.seed)
    start, shape = starts.first_phase(fresh, 1024), Shape(4, 6, mixture.token_radius)
    steps = recursion.twin_steps(start, data, 0, 0.5, 600, shape)
    wrong = right = 0.0
    for step in steps:
        wrong = max(
            wrong,
            step.after
            / ((1 + step.printed_rate) * step.top_loss * step.before + step.printed_push),
        )
        right = max(
            right,
            step.after
            / ((1 + step.printed_rate * step.top_loss) * step.before + step.printed_push),
        )
    good = all(step.small_step for step in steps) and wrong > 1 >= right
    detail = f"printed {wrong:.3g} of the bound, corrected {right:.3g}"
    return erratum(good, detail, printed=wrong, ours=right, trials=len(steps))


@misprint(
    "real",
    "Corollary 2",
    "radius g_0",
    printed="g_0(1/K) = (2B_Φ + log K)/γ",
    corrected="√2·(2B_Φ + log K)/γ, because ‖θ_*‖ = √2; 5/4 → 5/2 and 17 → 34",
    remark="linear limit, B_Φ = 1, K = 100: the printed radius reaches margin 3.67 and loss .0251 > 1/K",
    used_by=("cor2", "prop7"),
)
def e11(effort: Effort) -> Finding:
    """The radius of Corollary 2 in the linear limit: margin γ per √2 of distance."""
    B, K, gamma = 1.0, 100, 1.0
    printed, corrected = (2 * B + math.log(K)) / gamma, math.sqrt(2) * (2 * B + math.log(K)) / gamma
    # worst start: margin -B; moving a distance D along theta_*/sqrt(2) adds gamma*D/sqrt(2)
    losses = [log_one_plus_exp(-(gamma * D / math.sqrt(2) - B)) for D in (printed, corrected)]
    detail = (
        f"loss {losses[0]:.4f} at the printed radius, {losses[1]:.4f} at √2 times it, 1/K = {1 / K}"
    )
    return erratum(
        losses[0] > 1 / K >= losses[1], detail, printed=losses[0] * K, ours=losses[1] * K
    )


def mixture_of(effort: Effort, **changes) -> TokenizedMixture:
    """The mixture of the counterexamples."""
    settings: dict[str, Any] = {
        "num_tokens": 8,
        "dim": 8,
        "num_patterns": 4,
        "sparsity": 0.25,
        "signal": 1.5,
    } | changes
    return mixtures.TokenizedMixture(**settings, key=jax.random.key(effort.seed))


@misprint(
    "real",
    "Lemma 2 and Section 5.1",
    "coefficient of the first phase",
    printed="U_h^{(1)} = α_h1_T(ζ/2 u_*ᵀ + pᵀ)",
    corrected="α_h1_T(ζ/4 u_*ᵀ + pᵀ)",
    remark="the fitted coefficient is ζ/4; the printed residual does not fall with n1",
    used_by=("lemma2",),
)
def e12(effort: Effort) -> Finding:
    """The fitted coefficient of u_* is ζ/4, and the printed residual does not fall with n1."""
    mixture = mixture_of(effort, signal=1.0)
    u, fits, residuals = mixture.u_star, [], []
    for n1 in (200, 20_000):
        row = (
            starts.first_phase(mixture.sample(n1, key=jax.random.key(n1)), 1)
            .readout[0]
            .mean(axis=0)
        )
        fits.append(row @ u / (u @ u))
        residuals.append([np.linalg.norm(row - c * mixture.sparsity * u) for c in (0.5, 0.25)])
    (_, little), (wrong, right) = residuals
    good = abs(fits[-1] - 0.0625) < 0.002 and wrong > 0.08 and right < little / 4
    detail = f"fitted {fits[-1]:.4f}, ζ/4 = .0625; residual with ζ/2 {wrong:.3f}, with ζ/4 {right:.4f} at n1 = 20,000"
    return erratum(good, detail, trials=2)


@misprint(
    "repeated",
    "Section 5.2, display of ∇_WΦ(θ^{(1)})",
    "the same coefficient",
    printed="αζ/2",
    corrected="αζ/4",
    remark="with φ'(0) of E2 the corrected display equals automatic differentiation; (7) is right with ζ/4",
    used_by=("prop2",),
)
def e13(effort: Effort) -> Finding:
    """∇_WΦ after the population first phase: αζ/4 with the corrected φ'(0) equals automatic differentiation."""
    shape = {"num_tokens": 4, "dim": 6, "num_patterns": 2, "sparsity": 0.5, "signal": 1.0}
    mixture = mixture_of(effort, **shape, noise_mu=0.1, noise_nu=0.1, noise_norm=0.4)
    X = mixture.sample(30, key=jax.random.key(effort.seed + 1)).tokens[0]
    U = starts.population_first_phase(mixture, 1).readout[0]
    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(lambda W: formula.single_head({"X": X, "U": U, "W": W})))
        true = np.asarray(slope(np.zeros((6, 6))))
    J = (np.eye(4) - 0.25) / 4
    display = sum(np.outer(x, (X @ mixture.u_star) @ J @ X) for x in X)
    errors = [np.abs(c * mixture.sparsity * display - true).max() for c in (0.5, 0.25)]
    return erratum(
        errors[0] > 0.01 and errors[1] < 1e-15,
        f"αζ/2 is off by {errors[0]:.3g}, αζ/4 by {errors[1]:.1g}",
    )
