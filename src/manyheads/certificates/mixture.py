r"""The tokenized mixture: Lemma 2, Proposition 2 with (7), Eq. (8), Proposition 3, the linear margin.

Everything here is a formula in the parameters of (DM1); proofs in docs/theory/mixture.md. `mixture` is a
`TokenizedMixture` or anything with its parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Mixture(Protocol):
    """The parameters of (DM1) that the formulas need."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_patterns(self) -> int: ...

    @property
    def sparsity(self) -> float: ...

    @property
    def signal(self) -> float: ...

    @property
    def noise_mu(self) -> float: ...

    @property
    def noise_nu(self) -> float: ...

    @property
    def noise_norm(self) -> float: ...

    @property
    def token_radius(self) -> float: ...


@dataclass(frozen=True)
class FirstPhaseBounds:
    """Proposition 2: what the first phase guarantees (P1, P2, P3), printed and ours."""

    parameter_bound: float  # B_2
    model_bound: float  # B_Phi
    margin: float  # gamma_*
    printed_parameter_bound: float
    printed_model_bound: float
    printed_margin: float


def noise_level(mixture: Mixture) -> float:
    r"""$q=\bar Z/S^2$ with $\bar Z=Z_\mu\vee Z_\nu$."""
    return max(mixture.noise_mu, mixture.noise_nu) / mixture.signal**2


def first_phase_error(mixture: Mixture, num_examples: int, failure: float) -> float:
    r"""Lemma 2, ours: with probability at least $1-\delta$,
    $\|p\|\le P(\delta)=(S+(1-\zeta)Z)\big(\tfrac12+\sqrt{\log(1/\delta)/2}\big)/\sqrt{n_1}$."""
    _probability(failure)
    S, Z, zeta = mixture.signal, mixture.noise_norm, mixture.sparsity
    return (S + (1 - zeta) * Z) * (0.5 + math.sqrt(math.log(1 / failure) / 2)) / math.sqrt(num_examples)


def printed_first_phase_error(mixture: Mixture, dim: int, num_examples: int, failure: float) -> float:
    r"""Lemma 2, (6) with $C=1/\sqrt2$, a constant for which it is true."""
    _probability(failure)
    spread = 2 * mixture.signal + mixture.noise_norm
    return spread / math.sqrt(2) * (math.sqrt(dim / num_examples) + math.sqrt(math.log(1 / failure) / num_examples))


def measured_first_phase_error(mixture, tokens: np.ndarray, labels: np.ndarray) -> float:
    r"""$\|p\|$ of a first-phase sample: $p=\tfrac12\,\mathrm{mean}(y\bar x)-\tfrac\zeta4u_*$."""
    step = 0.5 * np.mean(labels[:, None] * tokens.mean(axis=1), axis=0)
    return float(np.linalg.norm(step - mixture.sparsity / 4 * mixture.u_star))


def printed_margin(mixture: Mixture, error: float = 0.0) -> float:
    r"""(7): $\gamma_*$ as printed, for $\|p\|\le$ `error`."""
    T, M, zeta, S = mixture.num_tokens, mixture.num_patterns, mixture.sparsity, mixture.signal
    Z = max(mixture.noise_mu, mixture.noise_nu)
    attention = zeta * S**4 - 7 * Z * S**2 - 12 * Z**2 - 16 * Z**3 / S**2
    attention *= T * (1 - zeta) * zeta / (4 * math.sqrt(2 * (M + 1)))
    return attention - error * T**2.5 * (S + mixture.noise_norm) ** 3 + linear_margin(mixture)


def first_phase_margin(mixture: Mixture, error: float = 0.0) -> float:
    r"""Proposition 2, ours: the tangent margin along $\theta_*$ after the first phase, for $\|p\|\le$ `error` and
    $q\le1/4$; holds surely and for every number of heads."""
    T, M, zeta, S = mixture.num_tokens, mixture.num_patterns, mixture.sparsity, mixture.signal
    q, R = noise_level(mixture), mixture.token_radius
    if q > 0.25:
        raise ValueError(
            f"the noise level q = max(Z_mu, Z_nu)/S^2 = {q:.3g} is above 1/4, where this margin is proved; "
            "measure the margin instead, or lower the noise"
        )
    relevant = zeta * (1 - 2 * q) * (1 - q) - 2 * q**2
    irrelevant = zeta * (1 - 2 * q) * (1 - 4 * q + 2 * q**2) - 4 * q**2 - 8 * q**3
    attention = T * zeta * (1 - zeta) * S**4 / (4 * math.sqrt(2 * (M + 1)))
    attention *= zeta * relevant + (1 - zeta) * irrelevant
    return attention - T * error * R**3 * math.sqrt((2 * M + 1) / (2 * M + 2)) + linear_margin(mixture)


def first_phase_bounds(mixture: Mixture, error: float, *, num_examples: int, failure: float) -> FirstPhaseBounds:
    """Proposition 2 for random signs, `error` a bound on ‖p‖ and `failure` the probability δ of P2."""
    _probability(failure)
    T, zeta, S, R = mixture.num_tokens, mixture.sparsity, mixture.signal, mixture.token_radius
    size = zeta * S / (2 * math.sqrt(2)) + error
    n = num_examples
    return FirstPhaseBounds(
        max(1.0, math.sqrt(T) * size),
        max(1.0, T * R * size * math.sqrt(2 * math.log(2 / failure))),
        first_phase_margin(mixture, error),
        math.sqrt(T) * (S + error),
        T * R * (S + error) * math.sqrt(2 * math.log(n / failure)),
        printed_margin(mixture, error) / 2,
    )


def linear_margin(mixture: Mixture) -> float:
    r"""$S\sqrt{T/2}\,(\zeta-2(1-\zeta)Z_\mu/S^2)$: margin of $U_*$ at unit norm, the best one for random positions and
    $Z_\mu=0$."""
    T, zeta, S = mixture.num_tokens, mixture.sparsity, mixture.signal
    return S * math.sqrt(T / 2) * (zeta - 2 * (1 - zeta) * mixture.noise_mu / S**2)


def linear_margin_fixed_positions(mixture: Mixture) -> float:
    r"""$S\sqrt{\zeta T/2}$: the linear margin when the relevant positions are always the same (erratum E26)."""
    return mixture.signal * math.sqrt(mixture.sparsity * mixture.num_tokens / 2)


def logit_gap(mixture: Mixture) -> float:
    r"""Eq. (8): smallest difference between the logits of a relevant and an irrelevant key under $W_*$,
    $S^4(1-4q+2q^2)$ for $q\le1/2$."""
    q = noise_level(mixture)
    if q > 0.5:
        raise ValueError(f"the noise level q = max(Z_mu, Z_nu)/S^2 = {q:.3g} is above 1/2, where the gap is proved")
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
    on_nu = np.where(relevant, 0.0, tokens @ sum_nu)  # S^2 + sum <nu, z> for an irrelevant token
    from_relevant = np.where(relevant, S**4, S**2 * on_own)  # by key
    to_relevant = S**2 * (on_nu + on_own)  # by query
    among = np.outer(on_plus, on_plus) + np.outer(on_minus, on_minus) + np.outer(on_nu, on_plus + on_minus)
    from_irrelevant = np.where(relevant[None, :], to_relevant[:, None], among)
    return np.where(relevant[:, None], from_relevant[None, :], from_irrelevant)


def sharpness(mixture: Mixture, mass: float, *, printed: bool = False) -> float:
    r"""Proposition 3: $\Gamma_\epsilon$ for an irrelevant mass of at most `mass`.

    Ours is $\frac{\sqrt{2(M+1)}}{S^2(1-4q+2q^2)}\log\frac{1/\zeta-1}{\epsilon}$, at least 0; printed has $8/3$ and
    no sign.
    """
    M, zeta, S = mixture.num_patterns, mixture.sparsity, mixture.signal
    if not mass > 0:
        raise ValueError(f"mass={mass} must be > 0: a softmax never suppresses a token completely")
    q = noise_level(mixture)
    if q > 0.125:
        raise ValueError(f"the noise level q = {q:.3g} is above 1/8, the limit of Proposition 3; lower the noise")
    log = math.log((1 / zeta - 1) / mass)
    if printed:
        return 8 * math.sqrt(2 * (M + 1)) / (3 * S**2) * log
    return max(0.0, math.sqrt(2 * (M + 1)) / (S**2 * (1 - 4 * q + 2 * q**2)) * log)


def attention_margin(mixture: Mixture, mass: float = 0.0) -> float:
    r"""(11): $\gamma_{attn}(\epsilon)=\frac{\sqrt T}{\sqrt2S}(S^2(1-\epsilon)-2\epsilon Z_\mu)$; $S\sqrt{T/2}$ at 0."""
    T, S = mixture.num_tokens, mixture.signal
    return math.sqrt(T / 2) / S * (S**2 * (1 - mass) - 2 * mass * mixture.noise_mu)


def _probability(failure: float) -> None:
    if not 0 < failure < 1:
        raise ValueError(f"failure={failure} must be a probability strictly between 0 and 1, such as 0.05")
