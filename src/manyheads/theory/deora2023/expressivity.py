"""Sections 5.2, 5.3 and 7: what attention can express on the mixture, and why Theorem 1 does not cover it.

Proofs: docs/theory/mixture.md.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from scipy import optimize

from manyheads.data import mixture as mixtures
from manyheads.measures import margin as margins
from manyheads.model import attention as model
from manyheads.theory import decomposition, targets
from manyheads.theory import walk as follower
from manyheads.theory.deora2023.mixture import (
    draw_mixture,
    drawn_key,
    known_relevant,
    linear_margin,
    noise_level,
)
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.data.mixture import TokenizedMixture


def linear_margin_fixed_positions(mixture: TokenizedMixture) -> float:
    r"""$S\sqrt{\zeta T/2}$: the linear margin when the relevant positions are always the same (erratum E26)."""
    return mixture.signal * math.sqrt(mixture.sparsity * mixture.num_tokens / 2)


def logit_gap(mixture: TokenizedMixture) -> float:
    r"""Eq. (8): smallest logit gap of relevant and irrelevant keys under $W_*$: $S^4(1-4q+2q^2)$, $q\le1/2$."""
    q = noise_level(mixture, 0.5, "where the gap is proved")
    return mixture.signal**4 * (1 - 4 * q + 2 * q**2)


def softmax_logits(mixture, tokens: np.ndarray, relevant: np.ndarray, label: float) -> np.ndarray:
    r"""Eq. (8), exact: $[r_t]_{t'}$ of one sequence from the inner products of its noise with the patterns."""
    S = mixture.signal
    plus, minus, *nus = mixture.patterns
    own = plus if label > 0 else minus
    sum_nu = np.sum(nus, axis=0)
    on_plus = np.where(relevant, 0.0, tokens @ plus)
    on_minus = np.where(relevant, 0.0, tokens @ minus)
    on_own = np.where(relevant, 0.0, tokens @ own)
    # S^2 + sum <nu, z> for an irrelevant token
    on_nu = np.where(relevant, 0.0, tokens @ sum_nu)
    # by key
    from_relevant = np.where(relevant, S**4, S**2 * on_own)
    # by query
    to_relevant = S**2 * (on_nu + on_own)
    among = (
        np.outer(on_plus, on_plus)
        + np.outer(on_minus, on_minus)
        + np.outer(on_nu, on_plus + on_minus)
    )
    from_irrelevant = np.where(relevant[None, :], to_relevant[:, None], among)
    return np.where(relevant[:, None], from_relevant[None, :], from_irrelevant)


def sharpness(mixture: TokenizedMixture, mass: float, *, printed: bool = False) -> float:
    r"""Proposition 3: $\Gamma_\epsilon$ for an irrelevant mass of at most `mass`.

    Ours is $\frac{\sqrt{2(M+1)}}{S^2(1-4q+2q^2)}\log\frac{1/\zeta-1}{\epsilon}$, at least 0;
    printed has $8/3$ and no sign.
    """
    M, zeta, S = mixture.num_patterns, mixture.sparsity, mixture.signal
    if not mass > 0:
        raise ValueError(f"mass={mass} must be > 0: a softmax never suppresses a token completely")
    q = noise_level(mixture, 0.125, "the limit of Proposition 3; lower the noise")
    log = math.log((1 / zeta - 1) / mass)
    if printed:
        return 8 * math.sqrt(2 * (M + 1)) / (3 * S**2) * log
    return max(0.0, math.sqrt(2 * (M + 1)) / (S**2 * (1 - 4 * q + 2 * q**2)) * log)


def attention_margin(mixture: TokenizedMixture, mass: float = 0.0) -> float:
    r"""(11): $\gamma_{attn}(\epsilon)=\frac{\sqrt T}{\sqrt2S}(S^2(1-\epsilon)-2\epsilon Z_\mu)$; $S\sqrt{T/2}$ at 0."""
    T, S = mixture.num_tokens, mixture.signal
    return math.sqrt(T / 2) / S * (S**2 * (1 - mass) - 2 * mass * mixture.noise_mu)


def logits(data: Dataset, weights: np.ndarray) -> np.ndarray:
    """(n, T, T): XWXᵀ."""
    return np.einsum("ntd,de,nse->nts", data.tokens, weights, data.tokens)


def irrelevant_mass(data: Dataset, weights: np.ndarray) -> float:
    """The largest attention that a query pays to irrelevant tokens."""
    scores = logits(data, weights)
    A = np.exp(scores - scores.max(axis=-1, keepdims=True))
    A /= A.sum(-1, keepdims=True)
    return float(np.where(known_relevant(data)[:, None], 0.0, A).sum(-1).max())


def linear_interval(mixture, key):
    """The certified linear margin of 600 samples."""
    data = mixture.sample(600, key=key)
    return margins.hard_margin(data.labels, features=data.tokens.reshape(600, -1))


# Statements -------------------------------------------------------------------------------------------------------


def check_logits(effort: Effort) -> Finding:
    """Eq. (8): exact logits, and the smallest gap S⁴(1−4q+2q²), which worst-case noise attains."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    for k in range(effort.count(40, 10)):
        mixture = draw_mixture(rng, ("uniform", "vertex")[k % 2], float(rng.uniform(0.01, 0.49)))
        data = mixture.sample(40, key=drawn_key(rng))
        rounding = 1e-11 * mixture.signal**4
        for X, relevant, y in zip(data.tokens, known_relevant(data), data.labels, strict=True):
            direct = X @ mixture.W_star @ X.T
            tally.broken += (
                np.abs(direct - softmax_logits(mixture, X, relevant, y)).max() > rounding
            )
            gap = (direct[:, relevant].min(axis=1) - direct[:, ~relevant].max(axis=1)).min()
            tally.add(gap, logit_gap(mixture), sense=">=", noise=rounding)
    level = 0.125
    mixture = mixtures.TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=1,
        sparsity=0.5,
        signal=1.0,
        noise_mu=level,
        noise_nu=level,
        noise_norm=1.01 * math.sqrt(3) * level,
        noise="vertex",
        frame="axis",
    )
    worst = min(_smallest_gap(mixture, mixture.sample(50, key=drawn_key(rng))) for _ in range(20))
    tally.add(worst, logit_gap(mixture), sense=">=", noise=1e-12)
    return tally.finding(f"worst-case noise at q = 1/8: smallest gap {worst:.4f} S⁴, 17/32 = .5313")


def _smallest_gap(mixture, data: Dataset) -> float:
    scores, relevant = logits(data, mixture.W_star), known_relevant(data)[:, None, :]
    return float(
        (
            np.where(relevant, scores, np.inf).min(2) - np.where(relevant, -np.inf, scores).max(2)
        ).min()
    )


LOGITS = Statement(
    id="eq8",
    place="Section 5.2, Eq. (8)",
    title="softmax logits under W_*",
    printed="[r_t]_{t'} = O(S⁴) for t' in 𝓡 and O(S²) for t' outside",
    corrected="exact values; the gap between relevant and irrelevant keys is of order S⁴",
    ours="relevant query: S⁴ and S²⟨μ_y, z'⟩; irrelevant query: S²(S² + Σ⟨ν_ℓ, z⟩ + ⟨μ_y, z⟩) and "
    "Σ_±⟨μ_±, z⟩⟨μ_±, z'⟩ + (S² + Σ⟨ν_ℓ, z⟩)(⟨μ_+, z'⟩ + ⟨μ_-, z'⟩); smallest gap S⁴(1 − 4q + 2q²) "
    "for q ≤ 1/2",
    proof="docs/theory/mixture.md#eq-8",
    remark="worst-case noise attains the smallest gap",
    check=check_logits,
    tightness=1.0,
    errata=("E17",),
    used_by=("prop2", "prop3"),
)


def check_proposition_3(effort: Effort) -> Finding:
    """Proposition 3 with our constant (hence the printed one): (10) and (11)."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    for k in range(effort.count(70, 12)):
        mixture = draw_mixture(
            rng, ("none", "uniform", "vertex")[k % 3], float(rng.uniform(0.005, 0.125))
        )
        data = mixture.sample(30, key=drawn_key(rng))
        for mass in (0.3, 0.01, 1e-5):
            wide = max(0.0, sharpness(mixture, mass, printed=True))
            tally.printed = max(
                tally.printed or 0.0, irrelevant_mass(data, wide * mixture.W_opt) / mass
            )
            sharp = sharpness(mixture, mass) * mixture.W_opt
            tally.add(irrelevant_mass(data, sharp), mass, noise=1e-15)
            heads = model.MultiHead.create(sharp[None], mixture.U_opt[None])
            margin = (data.labels * heads.scores(data)).min()
            tally.broken += not margin >= attention_margin(mixture, mass) * (1 - 1e-9) - 1e-12
    return tally.finding("irrelevant mass over ε; (11) holds on every sample")


PROPOSITION_3 = Statement(
    id="prop3",
    place="Section 5.3, Proposition 3 with (9), (10), (11)",
    title="attention can suppress the irrelevant tokens",
    printed="Z_μ = Z_ν ≤ S²/8 and Γ ≥ (8√(2(M+1))/(3S²)) log((1/ζ−1)/ε) imply irrelevant mass ≤ ε (10) and "
    "yΦ(X; U_opt, ΓW_opt) ≥ γ_attn(ε) = (√T/(√2 S))(S²(1−ε) − 2εZ_μ) (11)",
    corrected="as printed, with Γ ≥ 0 as well",
    ours="8/3 can be replaced by 1/(1 − 4q + 2q²), which is 32/17 at q = 1/8",
    proof="docs/theory/mixture.md#proposition-3",
    remark="without noise, at the smallest Γ of ours, the irrelevant mass is ε/(1 + ε)",
    check=check_proposition_3,
    tightness=0.999,
    errata=("E16", "E20"),
    aliases=("eq9", "eq10", "eq11"),
    used_by=("sec5.3",),
)


def check_linear_margin(effort: Effort) -> Finding:
    """γ_lin: the certified margin of samples against the formula; equality for large noise-free samples."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    for k in range(effort.count(200, 9)):
        mixture = draw_mixture(rng, ("none", "uniform", "vertex")[k % 3], 0.05)
        data = mixture.sample(60, key=drawn_key(rng))
        found = margins.hard_margin(data.labels, features=data.tokens.reshape(60, -1))
        tally.add(found.lower, linear_margin(mixture), sense=">=", noise=1e-6 * found.upper)
    plain: dict[str, Any] = {
        "num_tokens": 4,
        "dim": 4,
        "num_patterns": 2,
        "sparsity": 0.5,
        "signal": 1.5,
        "frame": "axis",
    }
    large = mixtures.TokenizedMixture(**plain)
    tally.add(linear_interval(large, drawn_key(rng)).upper, linear_margin(large) * 1.0001)
    fixed = mixtures.TokenizedMixture(**plain, positions="fixed")
    found = linear_interval(fixed, drawn_key(rng))
    tally.add(found.upper, linear_margin_fixed_positions(fixed) * 1.0001)
    tally.add(found.lower, linear_margin_fixed_positions(fixed) * 0.9999, sense=">=")
    return tally.finding(
        "certified linear margins of samples; 600 noise-free samples reach the formula"
    )


LINEAR_MARGIN = Statement(
    id="linear-margin",
    place="Section 5.1 after Proposition 2, and Section 7",
    title="margin of a linear model",
    printed="γ_lin = Ω(ζS); γ_attn ≥ γ_* ≥ γ_lin",
    corrected="γ_lin ≥ S√(T/2)(ζ − 2(1−ζ)Z_μ/S²); neither inequality of the chain is unconditional, and γ_* "
    "is measured on another scale",
    ours="equality when Z_μ = 0 and 𝓡 is random; S√(ζT/2) when 𝓡 is fixed",
    proof="docs/theory/mixture.md#linear-margin",
    remark="certified margin of a sample against the formula; equal without noise",
    check=check_linear_margin,
    tightness=1.0,
    errata=("E15", "E26"),
    used_by=("plan",),
)


def check_impossibility(effort: Effort) -> Finding:
    r"""Section 5.3: the exponents by linear programming, and the distance of the attention target as H grows.

    With $S=H^{s}$, $C=H^{c}$ and $\log n$ tending to infinity, each case is a set of linear
    inequalities in $(s,c,p)$ with the power of $\log n$ on one side; the claim is that it is
    infeasible for every large $\log n$.
    """
    tally = Tally()
    powers = np.geomspace(0.25, 2.0, effort.count(100, 4))
    for first, exponent in product((True, False), powers.tolist()):
        tally.add(float(_feasible(first, exponent)), 0.0)
    mixture = mixtures.TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.0,
        noise_mu=0.05,
        noise_nu=0.05,
        noise_norm=0.3,
        key=jax.random.key(effort.seed),
    )
    data = mixture.sample(24, key=jax.random.key(effort.seed + 1))
    distance, parts = {}, {}
    for heads in (4, 64, 1024):
        start = starts.zero_start(heads, num_tokens=4, dim=6)
        target = targets.attention_target(start, data, mixture)
        walk = follower.follow(start, data, step_size=0.8, num_steps=60, targets=[target])
        (parts[heads],) = decomposition.decompose(walk)
        distance[heads] = target.distance
        tally.add(abs(parts[heads].residual), 1e-11 * max(1.0, parts[heads].bound))
    growth = math.log(distance[1024] / distance[4]) / math.log(1024 / 4)
    # distance grows like sqrt(H)
    tally.add(abs(growth - 0.5), 0.02)
    many = parts[1024]
    # and not the convexity gap
    tally.add(many.convexity_term, 0.01 * many.distance_term)
    tally.ours = tally.printed = None
    return tally.finding(
        "no exponents satisfy the conditions for large n; distance of the target grows like "
        f"H^{growth:.3f}, "
        f"its convexity gap stays at {many.convexity_term:.1g}"
    )


def _feasible(first: bool, exponent: float) -> bool:
    r"""Whether exponents exist for every large log n in one case, with scaling $1/H^{exponent}$.

    Unknowns: logarithms to the base log n of $H\ge1$, $S$, $C$ and $h\,p$ where $h=\log H$; hidden
    constants drop out as log n grows: the inequalities must hold with a margin of any $\epsilon>0$
    in the exponent of log n. Saturation: $S^2\ge H^p/C$. Norms: $\|U\|=\log n/S$ per model,
    $\|W\|=CH^{1/2-p}$. (12): $H^{c}\ge S^5\|\theta\|^3$.
    """
    # variables: h = log H, s = log S, c = log C, w = p log H, all in units of loglog n; log n itself is 1
    # ||U||: the readout is scaled so that H^-e sum_h U_h reaches log n: norm log n / S * H^(e - 1/2)
    e = exponent
    norm_u = (np.array([e - 0.5, -1.0, 0.0, 0.0]), 1.0)
    norm_w = (np.array([0.5, 0.0, 1.0, -1.0]), 0.0)
    big, small = (norm_w, norm_u) if first else (norm_u, norm_w)
    rows, right = [], []

    # left >= other, as rows of A x <= b
    def at_least(left, other):
        rows.append(other[0] - left[0])
        right.append(left[1] - other[1])

    # H >= 1
    at_least((np.array([1.0, 0, 0, 0]), 0.0), (np.zeros(4), 0.0))
    # S^2 >= H^p / C
    at_least((np.array([0, 2.0, 0, 0]), 0.0), (np.array([0, 0, -1.0, 1.0]), 0.0))
    at_least(big, small)
    theta = (np.array([0, 5.0, 0, 0]) + 3 * big[0], 3 * big[1])
    # H^e >= S^5 |theta|^3
    at_least((np.array([e, 0, 0, 0]), 0.0), theta)
    answer = optimize.linprog(
        np.zeros(4), A_ub=np.array(rows), b_ub=np.array(right), bounds=[(None, None)] * 4
    )
    return answer.status == 0


IMPOSSIBILITY = Statement(
    id="sec5.3",
    place="Section 5.3 with (12)",
    title="the attention target does not satisfy the theorem's conditions",
    printed="U_h = (log n/γ_attn)H^{-1/2}U_opt, W_h = C H^{-p}W_opt cannot satisfy H^{1/2} ≳ S⁵‖θ‖³ (12) for "
    "any C, p; nor with 1/H^c in place of 1/√H",
    corrected="the conclusion holds for n above an absolute constant, with H^{p−3/4} in place of H^{p−1/4}",
    ours="the obstruction is distance: reaching saturation in every head puts the target at a distance growing "
    "like √H, while its convexity gap stays near zero",
    proof="docs/theory/mixture.md#section-53",
    remark="an argument up to constants: exponents checked by linear programming, the distance measured",
    check=check_impossibility,
    errata=("E17", "E18", "E19"),
    aliases=("eq12",),
    used_by=("certify",),
)
