"""Errata E14 to E26, on the mixture and on what follows from it."""

from __future__ import annotations

import math

import jax
import numpy as np

from manyheads.model import attention
from manyheads.theory import targets
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.errata import misprint, mixture_of
from manyheads.theory.deora2023.expressivity import (
    attention_margin,
    irrelevant_mass,
    linear_interval,
    linear_margin_fixed_positions,
    logits,
    sharpness,
)
from manyheads.theory.deora2023.mixture import (
    first_phase_bounds,
    first_phase_margin,
    known_relevant,
    linear_margin,
    printed_margin,
)
from manyheads.theory.finding import Effort, Finding, erratum
from manyheads.training import start as starts


def _margin(mixture, seed: int, heads: int, **signs) -> float:
    """The tangent margin along θ_* after the population first phase."""
    start = starts.population_first_phase(mixture, heads, **signs)
    data = mixture.sample(40, key=jax.random.key(seed))
    return targets.tangent_margins(targets.mixture_direction(start, mixture), start, data).min()


@misprint(
    "loose",
    "Proposition 2, P3",
    "margin of the first phase",
    printed="γ = γ_*/2 with probability 1−δ if √H ≳ …",
    corrected="γ = γ_*, for every H ≥ 1 and every sample, where ‖p‖ ≤ P and γ_* > 0",
    remark="sign(α)α = 1: every head has the same derivative along θ_*; the measured margin does not depend on H",
    used_by=("prop2",),
)
def e14(effort: Effort) -> Finding:
    """The margin along θ_* is γ_* (not γ_*/2) for any number of heads."""
    mixture = mixture_of(effort)
    margins = [_margin(mixture, 1, H, signs="rademacher", key=jax.random.key(H)) for H in (1, 3, 5)]
    formula = first_phase_margin(mixture)
    good = max(abs(m / formula - 1) for m in margins) < 1e-12
    detail = f"margin {margins[0]:.6f} = γ_* for H = 1, 3, 5; printed guarantee γ_*/2 = {formula / 2:.4f}"
    return erratum(
        good, detail, printed=0.5 * formula / min(margins), ours=formula / min(margins), trials=3
    )


@misprint(
    "real",
    "Sections 5.3 and 7",
    "order of the margins",
    printed="γ_attn ≥ γ_* ≥ γ_lin",
    corrected="neither inequality is unconditional",
    remark="S = 3, T = 8, ζ = .5, M = 4: γ_* = 9.40 > γ_attn = 6; T = 8, ζ = .25, S = 1.5, Z̄ = .1: (7) gives .498 < "
    "γ_lin = .550",
    used_by=("linear-margin",),
)
def e15(effort: Effort) -> Finding:
    """Neither γ_attn ≥ γ_* nor γ_* ≥ γ_lin is unconditional."""
    strong = mixture_of(effort, sparsity=0.5, signal=3.0)
    measured, top = _margin(strong, 2, 2), attention_margin(strong)
    weak = mixture_of(effort, noise_mu=0.1, noise_nu=0.1, noise_norm=0.4)
    printed, linear = printed_margin(weak), linear_margin(weak)
    detail = (
        f"γ_* = {measured:.2f} > γ_attn = {top:.2f}; (7) = {printed:.3f} < γ_lin = {linear:.3f}"
    )
    return erratum(measured > top and printed < linear, detail, printed=measured / top, trials=2)


@misprint(
    "debatable",
    "Proposition 3",
    "sign of Γ",
    printed="Γ ≥ (8√(2(M+1))/3S²) log((1/ζ−1)/ε)",
    corrected="also Γ ≥ 0",
    remark="only matters for ε > 1/ζ − 1: ζ = .8, ε = .5 allows Γ = −5.23, where the irrelevant mass is .61",
    used_by=("prop3",),
)
def e16(effort: Effort) -> Finding:
    """Γ below 0 is allowed as printed for ε > 1/ζ − 1, and breaks (10)."""
    mixture = mixture_of(effort, num_tokens=10, sparsity=0.8, signal=1.0, num_patterns=3)
    data = mixture.sample(30, key=jax.random.key(3))
    printed = sharpness(mixture, 0.5, printed=True)
    wrong, right = (
        irrelevant_mass(data, gamma * mixture.W_opt) for gamma in (printed, sharpness(mixture, 0.5))
    )
    detail = f"Γ = {printed:.2f} leaves an irrelevant mass of {wrong:.4f} > .5"
    return erratum(
        printed < 0 and wrong > 0.5 >= right, detail, printed=wrong / 0.5, ours=right / 0.5
    )


@misprint(
    "debatable",
    "Section 5.3",
    "size of the logit gap",
    printed="a gap of O(S²)",
    corrected="Θ(S⁴) for W_*, Θ(S²) for W_opt",
    remark="measured exponent of the gap in S: 4 and 2",
    used_by=("eq8", "sec5.3"),
)
def e17(effort: Effort) -> Finding:
    """The logit gap grows like S⁴ for W_* and S² for W_opt."""
    gaps = []
    for S in (1.0, 2.0):
        mixture = mixture_of(effort, signal=S)
        data = mixture.sample(30, key=jax.random.key(4))
        scores, relevant = logits(data, mixture.W_star)[0], known_relevant(data)[0]
        gap = scores[:, relevant].min() - scores[:, ~relevant].max()
        gaps.append((gap, gap / np.linalg.norm(mixture.W_star)))
    four, two = (math.log2(b / a) for a, b in zip(*gaps, strict=True))
    good = abs(four - 4) < 1e-9 and abs(two - 2) < 1e-9
    return erratum(good, f"measured exponents of S: {four:.3f} (W_*), {two:.3f} (W_opt)", trials=2)


@misprint(
    "typographic",
    "Section 5.3",
    "exponent of H",
    printed="H^{p−1/4} ≲ C/log^{5/2}n",
    corrected="H^{p−3/4} ≲ C/log^{5/2}n",
    remark="from H^{1/2} ≳ log⁵n C^{-2}H^{2p−1}; the conclusion is unchanged",
    used_by=("sec5.3",),
)
def e18(effort: Effort) -> Finding:
    """Solving H^{1/2} = log⁵n C^{-2} H^{2p−1} for C gives C = log^{5/2}n H^{p−3/4}."""
    H, n, p = 1e6, 50.0, 1.3
    C = math.sqrt(math.log(n) ** 5 * H ** (2 * p - 1) / H**0.5)
    corrected, printed = (C / math.log(n) ** 2.5 / H ** (p - shift) for shift in (0.75, 0.25))
    detail = f"C·log^(-5/2)n over H^(p−3/4) is {corrected:.6f}, over H^(p−1/4) {printed:.1e}"
    return erratum(abs(corrected - 1) < 1e-12 and printed < 0.01, detail)


@misprint(
    "debatable",
    "Section 5.3",
    "reach of the contradiction",
    printed="a contradiction since n > 1",
    corrected="only for n above an absolute constant",
    remark="with every hidden constant equal to 1, n = 2 and H = 1 satisfy all conditions",
    used_by=("sec5.3",),
)
def e19(effort: Effort) -> Finding:
    """With every hidden constant equal to 1 and n = 2, H = 1 satisfies all conditions: n must be large."""
    n, H, p, S, C = 2, 1.0, 0.5, 1.0, 1.0
    U, W = math.log(n) / S, C * H ** (0.5 - p)
    conditions = (S**2 >= H**p / C, W >= U, H**0.5 >= S**5 * max(U, W) ** 3)
    return erratum(all(conditions), "n = 2, H = S = C = 1 satisfy every condition with constants 1")


@misprint(
    "typographic",
    "Section 7",
    "margin of the attention model",
    printed="margin = … − 2εZ_μ/S with Γ ≳ log(·)/S",
    corrected="≥ … − 2εZ_μ/S² with Γ ≳ log(·)/S²",
    remark="for S < 1 the measured margin differs from the printed equality; compare (11)",
    used_by=("prop3",),
)
def e20(effort: Effort) -> Finding:
    """Section 7's margin is not an equality, and with Z_μ/S in place of Z_μ/S² it differs from (11)."""
    mixture = mixture_of(
        effort, signal=0.8, noise_mu=0.05, noise_nu=0.05, noise_norm=0.3, noise="vertex"
    )
    data, mass = mixture.sample(40, key=jax.random.key(5)), 0.05
    model = attention.MultiHead.create(
        sharpness(mixture, mass) * mixture.W_opt[None], mixture.U_opt[None]
    )
    margin = (data.labels * model.scores(data)).min()
    S, T = mixture.signal, mixture.num_tokens
    printed = S * math.sqrt(T / 2) * ((1 - mass) - 2 * mass * mixture.noise_mu / S)
    right = attention_margin(mixture, mass)
    good = margin > printed * 1.0001 and abs(printed / right - 1) > 1e-4 and margin >= right
    return erratum(
        good, f"measured {margin:.4f}, printed '=' {printed:.4f}, (11) gives ≥ {right:.4f}"
    )


@misprint(
    "typographic",
    "Section 5.2",
    "names of the factors",
    printed="W_* = W_{K,*}W_{Q,*}ᵀ",
    corrected="W = W_Q W_Kᵀ by the paper's convention: the two names are swapped",
    remark="the convention of Section 2 applied to the printed factors gives W_*ᵀ, which differs from W_*",
    used_by=("prop2",),
)
def e21(effort: Effort) -> Finding:
    """The printed factors under the paper's own convention W = W_Q W_Kᵀ give W_*ᵀ."""
    mixture = mixture_of(effort)
    plus, minus, *nus = mixture.patterns
    W_K = np.column_stack([plus, minus, *nus])
    W_Q = np.column_stack([plus, minus, *([plus + minus] * len(nus))])
    swapped, straight = (np.abs(W - mixture.W_star).max() for W in (W_Q @ W_K.T, W_K @ W_Q.T))
    detail = f"W_Q W_Kᵀ differs from W_* by {swapped:.3g}, W_K W_Qᵀ by {straight:.1g}"
    return erratum(swapped > 0.1 and straight < 1e-12, detail)


@misprint(
    "typographic",
    "Assumption 3",
    "radius below 1",
    printed="Assumption 1 holds with R = √(S² + Z² + 2Z_ν/M)",
    corrected="R = max(1, that)",
    remark="S < 1: the printed R is below 1, which Assumption 1 excludes, and b1 ≤ b3 fails there",
    used_by=("asm1", "asm3"),
)
def e22(effort: Effort) -> Finding:
    """R below 1: excluded by Assumption 1, and b1 ≤ b3 fails with it."""
    mixture = mixture_of(effort, signal=0.4)
    R = math.sqrt(
        mixture.signal**2 + mixture.noise_norm**2 + 2 * mixture.noise_nu / mixture.num_patterns
    )
    q = R**2 * 0.5
    b1, b3 = (
        math.sqrt(8) * R * math.sqrt(1 + q * q),
        math.sqrt(8) * R**3 * (q + math.sqrt(q * q + 4)) / 2,
    )
    detail = f"printed R = {R:.2f} < 1; there b1 = {b1:.3f} > b3 = {b3:.3f}"
    return erratum(R < 1 <= mixture.token_radius and b1 > b3, detail)


@misprint(
    "debatable",
    "Section 6.2",
    "step size against β̃1",
    printed="η ≤ 1/ρ ≤ 1/β̃1²",
    corrected="true for Section 6.1's ρ; for ρ = β2 only η ≤ 4/β1²: add η ≤ 1/β1²",
    remark="many heads: β2 tends to β1²/4",
    used_by=("thm2",),
)
def e23(effort: Effort) -> Finding:
    """η ≤ 1/β2 does not give η ≤ 1/β1²: with many heads β2 tends to β1²/4. Section 6.1's ρ does give it."""
    shape, sizes = Shape(4, 3, 1.2), (0.1, 1, 10)
    ratio = shape.beta1(1.0) ** 2 / shape.beta2(1.0, 1e14)
    cases = [(x, D, H) for x in sizes for D in sizes for H in (1, 1e6)]
    safe = min(shape.rho_explicit(x, D, H) / shape.beta1(x + 3 * D) ** 2 for x, D, H in cases)
    detail = f"β1²/β2 = {ratio:.3f} at 1e14 heads; ρ/β1² ≥ {safe:.3g} for Section 6.1's ρ"
    return erratum(ratio > 3.9 and safe >= 1, detail, printed=ratio, trials=19)


@misprint(
    "debatable",
    "Definition 1 and Proposition 2",
    "constants of at least 1",
    printed="B_2 ≥ 1, B_Φ ≥ 1 are required; Proposition 2 gives B_2 = √T(S+P)",
    corrected="max(1, ·)",
    remark="weak signals: √T(S+P) is below 1",
    used_by=("def1.p1", "def1.p2", "prop2"),
)
def e24(effort: Effort) -> Finding:
    """Weak signals: Proposition 2's B_2 is below the 1 that Definition 1 requires."""
    bounds = first_phase_bounds(mixture_of(effort, signal=0.2), 0.01, num_examples=50, failure=0.1)
    printed = bounds.printed_parameter_bound
    return erratum(printed < 1 <= bounds.parameter_bound, f"√T(S+P) = {printed:.3f} < 1")


@misprint(
    "loose",
    "Proposition 2, P2",
    "union bound over samples",
    printed="√(2log(n/δ))",
    corrected="√(2log(2/δ)): with W^{(1)} = 0 all samples share one random sum; printed is right for n ≥ 2",
    remark="the ratio |Φ̃(X_i)|/|c(X_i)| is the same for every sample",
    used_by=("def1.p2", "prop2"),
)
def e25(effort: Effort) -> Finding:
    """P2: all samples share one random sum, so no union bound over n is needed."""
    mixture = mixture_of(effort)
    data, fresh = (mixture.sample(n, key=jax.random.key(key)) for n, key in ((60, 6), (50, 7)))
    one, worst = starts.first_phase(fresh, 1), 0.0
    for k in range(5):
        start = starts.first_phase(fresh, 64, signs="rademacher", key=jax.random.key(k))
        signs = np.where(start.readout[:, 0] @ one.readout[0, 0] > 0, 1.0, -1.0)
        total = float(np.sum(signs * start.multiplicity)) / math.sqrt(64)
        worst = max(worst, np.abs(start.scores(data) - total * one.scores(data)).max())
    n, delta = 60, 0.05
    loose = math.sqrt(math.log(n / delta) / math.log(2 / delta))
    detail = (
        f"Φ̃ = (Σα_h/√H)·c(X) to {worst:.0e}; printed is {loose:.2f} times larger at n = 60, δ = .05"
    )
    return erratum(worst < 1e-12 and loose > 1, detail, trials=5)


@misprint(
    "debatable",
    "Section 5.1",
    "law of 𝓡",
    printed="γ_lin = Ω(ζS), law of 𝓡 unspecified",
    corrected="true for random 𝓡 (or pooled U); S√(ζT/2) for a fixed index set",
    remark="certified margins of samples: formula 1 for random positions, formula 2 for fixed ones",
    used_by=("dm1", "linear-margin"),
)
def e26(effort: Effort) -> Finding:
    """The linear margin depends on the law of 𝓡."""
    shape = {"num_tokens": 4, "dim": 4, "num_patterns": 2, "sparsity": 0.5, "frame": "axis"}
    mixture, other = (mixture_of(effort, **shape, positions=law) for law in ("random", "fixed"))
    random, fixed = linear_margin(mixture), linear_margin_fixed_positions(other)
    upper, lower = (
        linear_interval(mixture, jax.random.key(8)).upper,
        linear_interval(other, jax.random.key(8)).lower,
    )
    good = abs(upper / random - 1) < 1e-4 and abs(lower / fixed - 1) < 1e-4 and fixed > 1.2 * random
    detail = f"random positions {upper:.4f} (formula {random:.4f}), fixed {lower:.4f} (formula {fixed:.4f})"
    return erratum(good, detail, trials=2)
