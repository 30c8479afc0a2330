"""Errata E14 to E26: each counterexample, as a check that would fail if the paper were right as printed."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import numpy as np

from manyheads.certificates.check_mixture import known_relevant
from manyheads.certificates.finding import Effort, Finding, erratum
from manyheads.certificates.mixture import (
    attention_margin,
    first_phase_bounds,
    first_phase_margin,
    linear_margin,
    linear_margin_fixed_positions,
    printed_margin,
    sharpness,
)
from manyheads.certificates.targets import mixture_direction, tangent_margins
from manyheads.data.mixture import TokenizedMixture
from manyheads.measures.margin import hard_margin
from manyheads.model.attention import MultiHead
from manyheads.papers.deora2023.derivatives import Shape
from manyheads.training.start import first_phase, population_first_phase


def _mixture(effort: Effort, **changes) -> TokenizedMixture:
    plain = TokenizedMixture(
        num_tokens=8, dim=8, num_patterns=4, sparsity=0.25, signal=1.5, key=jax.random.key(effort.seed)
    )
    return replace(plain, **changes)


def _irrelevant_mass(data, weights: np.ndarray) -> float:
    logits = np.einsum("ntd,de,nse->nts", data.tokens, weights, data.tokens)
    A = np.exp(logits - logits.max(-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return float(np.where(known_relevant(data)[:, None], 0.0, A).sum(-1).max())


def e14(effort: Effort) -> Finding:
    """The margin along θ_* is γ_* (not γ_*/2) for one head as for many."""
    mixture = _mixture(effort)
    data = mixture.sample(40, key=jax.random.key(1))
    margins = []
    for heads in (1, 3, 5):
        start = population_first_phase(mixture, heads, signs="rademacher", key=jax.random.key(heads))
        margins.append(tangent_margins(mixture_direction(start, mixture), start, data).min())
    formula = first_phase_margin(mixture)
    good = max(abs(m / formula - 1) for m in margins) < 1e-12
    return erratum(good, f"margin {margins[0]:.6f} = γ_* for H = 1, 3, 5; printed guarantee γ_*/2 = "
                                f"{formula / 2:.4f}",
                   printed=0.5 * formula / min(margins), ours=formula / min(margins), trials=3)  # fmt: skip


def e15(effort: Effort) -> Finding:
    """Neither γ_attn ≥ γ_* nor γ_* ≥ γ_lin is unconditional."""
    strong = _mixture(effort, sparsity=0.5, signal=3.0)
    data = strong.sample(40, key=jax.random.key(2))
    start = population_first_phase(strong, 2)
    measured = tangent_margins(mixture_direction(start, strong), start, data).min()
    weak = _mixture(effort, signal=1.5, noise_mu=0.1, noise_nu=0.1, noise_norm=0.4)
    first = measured > attention_margin(strong)
    second = printed_margin(weak) < linear_margin(weak)
    return erratum(first and second, f"γ_* = {measured:.2f} > γ_attn = {attention_margin(strong):.2f}; (7) = "
                                            f"{printed_margin(weak):.3f} < γ_lin = {linear_margin(weak):.3f}",
                   printed=measured / attention_margin(strong), trials=2)  # fmt: skip


def e16(effort: Effort) -> Finding:
    """Γ below 0 is allowed as printed for ε > 1/ζ − 1, and breaks (10)."""
    mixture = _mixture(effort, num_tokens=10, sparsity=0.8, signal=1.0, num_patterns=3)
    data = mixture.sample(30, key=jax.random.key(3))
    printed = sharpness(mixture, 0.5, printed=True)
    ours = sharpness(mixture, 0.5)
    mass = [_irrelevant_mass(data, gamma * mixture.W_opt) for gamma in (printed, ours)]
    return erratum(printed < 0 and mass[0] > 0.5 >= mass[1], f"Γ = {printed:.2f} leaves an irrelevant mass "
                                                                    f"of {mass[0]:.4f} > .5",
                   printed=mass[0] / 0.5, ours=mass[1] / 0.5)  # fmt: skip


def e17(effort: Effort) -> Finding:
    """The logit gap grows like S⁴ for W_* and S² for W_opt."""
    gaps = []
    for S in (1.0, 2.0):
        mixture = _mixture(effort, signal=S)
        X = mixture.sample(30, key=jax.random.key(4))
        logits = X.tokens[0] @ mixture.W_star @ X.tokens[0].T
        relevant = known_relevant(X)[0]
        gap = logits[:, relevant].min() - logits[:, ~relevant].max()
        gaps.append((gap, gap / np.linalg.norm(mixture.W_star)))
    exponents = [math.log2(b / a) for a, b in zip(*gaps, strict=True)]
    good = abs(exponents[0] - 4) < 1e-9 and abs(exponents[1] - 2) < 1e-9
    return erratum(good, f"measured exponents of S: {exponents[0]:.3f} (W_*), {exponents[1]:.3f} (W_opt)", trials=2)


def e18(effort: Effort) -> Finding:
    """Solving H^{1/2} = log⁵n C^{-2} H^{2p−1} for C gives C = log^{5/2}n H^{p−3/4}."""
    H, n, p = 1e6, 50.0, 1.3
    C = math.sqrt(math.log(n) ** 5 * H ** (2 * p - 1) / H**0.5)
    corrected = C / math.log(n) ** 2.5 / H ** (p - 0.75)
    printed = C / math.log(n) ** 2.5 / H ** (p - 0.25)
    return erratum(
        abs(corrected - 1) < 1e-12 and printed < 0.01,
        f"C·log^(-5/2)n over H^(p−3/4) is {corrected:.6f}, over H^(p−1/4) {printed:.1e}",
    )


def e19(effort: Effort) -> Finding:
    """With every hidden constant equal to 1 and n = 2, H = 1 satisfies all conditions: n must be large."""
    n, H, p, S = 2, 1.0, 0.5, 1.0
    C = 1.0
    U, W = math.log(n) / S, C * H ** (0.5 - p)
    conditions = (S**2 >= H**p / C, W >= U, H**0.5 >= S**5 * max(U, W) ** 3)
    return erratum(all(conditions), "n = 2, H = S = C = 1 satisfy every condition with constants 1")


def e20(effort: Effort) -> Finding:
    """Section 7's margin is no equality, and with Z_μ/S in place of Z_μ/S² it is not (11)."""
    mixture = _mixture(effort, signal=0.8, noise_mu=0.05, noise_nu=0.05, noise_norm=0.3, noise="vertex")
    data, mass = mixture.sample(40, key=jax.random.key(5)), 0.05
    gamma = sharpness(mixture, mass)
    model = MultiHead.create(gamma * mixture.W_opt[None], mixture.U_opt[None])
    margin = (data.labels * model.scores(data)).min()
    S, T = mixture.signal, mixture.num_tokens
    printed = S * math.sqrt(T / 2) * ((1 - mass) - 2 * mass * mixture.noise_mu / S)
    right = attention_margin(mixture, mass)
    good = margin > printed * 1.0001 and abs(printed / right - 1) > 1e-4 and margin >= right
    return erratum(good, f"measured {margin:.4f}, printed '=' {printed:.4f}, (11) gives ≥ {right:.4f}")


def e21(effort: Effort) -> Finding:
    """The printed factors under the paper's own convention W = W_Q W_Kᵀ give W_*ᵀ."""
    mixture = _mixture(effort)
    plus, minus, *nus = mixture.patterns
    W_K = np.column_stack([plus, minus, *nus])
    W_Q = np.column_stack([plus, minus, *([plus + minus] * len(nus))])
    swapped = np.abs(W_Q @ W_K.T - mixture.W_star).max()
    straight = np.abs(W_K @ W_Q.T - mixture.W_star).max()
    return erratum(
        swapped > 0.1 and straight < 1e-12,
        f"W_Q W_Kᵀ differs from W_* by {swapped:.3g}, W_K W_Qᵀ by {straight:.1g}",
    )


def e22(effort: Effort) -> Finding:
    """R below 1: excluded by Assumption 1, and b1 ≤ b3 fails with it."""
    mixture = _mixture(effort, signal=0.4)
    printed = math.sqrt(mixture.signal**2 + mixture.noise_norm**2 + 2 * mixture.noise_nu / mixture.num_patterns)
    R = printed
    q = R**2 * 0.5
    b1, b3 = math.sqrt(8) * R * math.sqrt(1 + q * q), math.sqrt(8) * R**3 * (q + math.sqrt(q * q + 4)) / 2
    return erratum(
        printed < 1 <= mixture.token_radius and b1 > b3,
        f"printed R = {printed:.2f} < 1; there b1 = {b1:.3f} > b3 = {b3:.3f}",
    )


def e23(effort: Effort) -> Finding:
    """η ≤ 1/β2 does not give η ≤ 1/β1²: with many heads β2 tends to β1²/4. Section 6.1's ρ does give it."""
    shape = Shape(4, 3, 1.2)
    ratio = shape.beta1(1.0) ** 2 / shape.beta2(1.0, 1e14)
    safe = min(
        shape.rho_explicit(x, D, H) / shape.beta1(x + 3 * D) ** 2
        for x in (0.1, 1, 10)
        for D in (0.1, 1, 10)
        for H in (1, 1e6)
    )
    return erratum(ratio > 3.9 and safe >= 1, f"β1²/β2 = {ratio:.3f} at 1e14 heads; ρ/β1² ≥ {safe:.3g} for "
                                                     f"Section 6.1's ρ",
                   printed=ratio, trials=19)  # fmt: skip


def e24(effort: Effort) -> Finding:
    """Weak signals: Proposition 2's B_2 is below the 1 that Definition 1 asks for."""
    mixture = _mixture(effort, signal=0.2)
    bounds = first_phase_bounds(mixture, 0.01, num_examples=50, failure=0.1)
    return erratum(bounds.printed_parameter_bound < 1 <= bounds.parameter_bound,
                   f"√T(S+P) = {bounds.printed_parameter_bound:.3f} < 1")  # fmt: skip


def e25(effort: Effort) -> Finding:
    """P2: one random sum serves all samples, so no union over n is needed."""
    mixture = _mixture(effort)
    data = mixture.sample(60, key=jax.random.key(6))
    fresh = mixture.sample(50, key=jax.random.key(7))
    one = first_phase(fresh, 1).scores(data)
    worst = 0.0
    for k in range(5):
        start = first_phase(fresh, 64, signs="rademacher", key=jax.random.key(k))
        signs = np.where(start.readout[:, 0] @ first_phase(fresh, 1).readout[0, 0] > 0, 1.0, -1.0)
        total = float(np.sum(signs * start.multiplicity)) / math.sqrt(64)
        worst = max(worst, np.abs(start.scores(data) - total * one).max())
    n, delta = 60, 0.05
    loose = math.sqrt(math.log(n / delta) / math.log(2 / delta))
    return erratum(
        worst < 1e-12 and loose > 1,
        f"Φ̃ = (Σα_h/√H)·c(X) to {worst:.0e}; printed is {loose:.2f} times larger at n = 60, δ = .05",
        trials=5,
    )


def e26(effort: Effort) -> Finding:
    """The linear margin depends on the law of 𝓡."""
    values = {}
    for positions in ("random", "fixed"):
        mixture = TokenizedMixture(
            num_tokens=4, dim=4, num_patterns=2, sparsity=0.5, signal=1.5, frame="axis", positions=positions
        )
        data = mixture.sample(600, key=jax.random.key(8))
        values[positions] = hard_margin(data.labels, features=data.tokens.reshape(600, -1))
    random, fixed = linear_margin(mixture), linear_margin_fixed_positions(mixture)
    good = (
        abs(values["random"].upper / random - 1) < 1e-4
        and abs(values["fixed"].lower / fixed - 1) < 1e-4
        and fixed > 1.2 * random
    )
    return erratum(
        good,
        f"random positions {values['random'].upper:.4f} (formula {random:.4f}), fixed {values['fixed'].lower:.4f} "
        f"(formula {fixed:.4f})",
        trials=2,
    )
