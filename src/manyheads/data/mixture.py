"""The tokenized mixture of the paper's Section 5: label-relevant tokens among irrelevant, noisy ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manyheads._check import (
    REFUSED,
    Constraint,
    check_fields,
    checked,
    checked_key,
    not_negative,
    one_of,
    positive,
    random_stream,
    real,
    whole,
)
from manyheads.data.budget import fits_memory
from manyheads.data.dataset import Dataset

SIZE = whole(1, 10**5)


@dataclass(frozen=True, eq=False)
class TokenizedMixture:
    r"""(DM1) under Assumption 3.

    A sequence has `num_tokens` ($T$) tokens. A share `sparsity` ($\zeta$) of them is the pattern
    $\mu_y$ of its label; every other one is a pattern $\nu_j$, $j$ uniform among `num_patterns`
    ($M$), plus noise $z$. The $M+2$ patterns are orthogonal with norm `signal` ($S$), and surely
    $|\langle z, \mu_\pm\rangle| \le$ `noise_mu` ($Z_\mu$), $|\langle z, \nu_\ell\rangle| \le$
    `noise_nu`$/M$ ($Z_\nu / M$), $\|z\| \le$ `noise_norm` ($Z$).

    `noise="uniform"` draws the coordinates along the patterns uniformly and the rest uniformly in a
    ball; `"vertex"` puts them at the ends of their intervals, the worst case; `"none"` needs all
    three levels zero. `positions="random"` draws new relevant positions for each sequence,
    `"fixed"` takes the first ones. `frame="rotated"` turns the patterns by a random rotation
    (`key=`), `"axis"` leaves them on the axes.
    """

    num_tokens: int = 8
    dim: int = 12
    num_patterns: int = 4
    sparsity: float = 0.25
    signal: float = 2.0
    noise_mu: float = 0.0
    noise_nu: float = 0.0
    noise_norm: float = 0.0
    noise: str = "uniform"
    positions: str = "random"
    frame: str = "rotated"
    key: Any = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            num_tokens=SIZE,
            dim=SIZE,
            num_patterns=SIZE,
            sparsity=real(),
            signal=positive,
            noise_mu=not_negative,
            noise_nu=not_negative,
            noise_norm=not_negative,
            noise=one_of("uniform", "vertex", "none"),
            positions=one_of("random", "fixed"),
            frame=one_of("rotated", "axis"),
        )
        T, d, M, zeta, S = self.num_tokens, self.dim, self.num_patterns, self.sparsity, self.signal
        if d < M + 2:
            raise ValueError(
                f"dim={d} is too small: {M} + 2 orthogonal patterns need dim >= num_patterns + 2 = "
                f"{M + 2}. "
                f"Pass dim={M + 2}{f' or num_patterns={d - 2}' if d > 2 else ''}."
            )
        if abs(zeta * T - round(zeta * T)) > 1e-9 * T or not 1 <= round(zeta * T) < T:
            near = min(max(round(zeta * T), 1), T - 1)
            remedy = (
                f"Pass sparsity={near / T:.12g}" if T > 1 else "Pass num_tokens=2, sparsity=0.5"
            )
            raise ValueError(
                f"sparsity * num_tokens = {zeta * T:g} must be a whole number between 1 and "
                f"{T - 1}, the number of "
                f"relevant tokens. {remedy}."
            )
        if self.noise == "none" and (self.noise_mu or self.noise_nu or self.noise_norm):
            raise ValueError(
                "noise='none' needs noise_mu = noise_nu = noise_norm = 0; pass noise='uniform' or "
                "drop the levels."
            )
        if self._complement_radius_squared < -1e-12 * self.noise_norm**2:
            least = np.sqrt(2 * self.noise_mu**2 / S**2 + self.noise_nu**2 / (M * S**2))
            raise ValueError(
                f"noise_norm={self.noise_norm} is too small for noise_mu={self.noise_mu}, "
                f"noise_nu={self.noise_nu}: "
                "Z^2 >= 2 Z_mu^2/S^2 + Z_nu^2/(M S^2) fails. Pass "
                f"noise_norm={least * (1 + 1e-6):.9g} or more."
            )
        if self.frame == "rotated" and self.key is None:
            raise ValueError(
                "frame='rotated' draws a random rotation: pass key=jax.random.key(0), or "
                "frame='axis'."
            )
        if self.frame == "rotated":
            checked_key(self.key)

    @cached_property
    def _frame(self) -> np.ndarray:
        """Orthonormal rows q_1 .. q_d in float64; the first M + 2 carry the patterns."""
        if self.frame == "axis":
            return np.eye(self.dim)
        Q, R = np.linalg.qr(random_stream(self.key).standard_normal((self.dim, self.dim)))
        return (Q * np.sign(np.diag(R))).T

    @property
    def _complement_radius_squared(self) -> float:
        S, M = self.signal, self.num_patterns
        return self.noise_norm**2 - 2 * self.noise_mu**2 / S**2 - self.noise_nu**2 / (M * S**2)

    @property
    def num_relevant(self) -> int:
        """ζT."""
        return round(self.sparsity * self.num_tokens)

    @property
    def patterns(self) -> np.ndarray:
        """(M + 2, d): μ₊, μ₋, ν₁ … ν_M."""
        return self.signal * self._frame[: self.num_patterns + 2]

    @property
    def u_star(self) -> np.ndarray:
        """u_* = μ₊ − μ₋, the oracle classifier."""
        return self.patterns[0] - self.patterns[1]

    @property
    def U_star(self) -> np.ndarray:
        """U_* = 1_T u_*ᵀ; its Frobenius norm is S√(2T)."""
        return np.tile(self.u_star, (self.num_tokens, 1))

    @property
    def W_star(self) -> np.ndarray:
        """W_* = μ₊μ₊ᵀ + μ₋μ₋ᵀ + Σ ν_ℓ(μ₊ + μ₋)ᵀ; its Frobenius norm is S²√(2(M + 1))."""
        plus, minus, *nus = self.patterns
        return (
            np.outer(plus, plus)
            + np.outer(minus, minus)
            + np.outer(np.sum(nus, axis=0), plus + minus)
        )

    @property
    def U_opt(self) -> np.ndarray:
        """U_* with Frobenius norm 1, Eq. (9)."""
        return self.U_star / (self.signal * np.sqrt(2 * self.num_tokens))

    @property
    def W_opt(self) -> np.ndarray:
        """W_* with Frobenius norm 1, Eq. (9)."""
        return self.W_star / (self.signal**2 * np.sqrt(2 * (self.num_patterns + 1)))

    @property
    def token_radius(self) -> float:
        """R = max(1, √(S² + Z² + 2 Z_ν/M)), the almost-sure bound on the token norms."""
        return max(
            1.0,
            float(
                np.sqrt(self.signal**2 + self.noise_norm**2 + 2 * self.noise_nu / self.num_patterns)
            ),
        )

    def sample(self, num_examples: int, *, key) -> Dataset:
        """Draw sequences; labels are fair coins, and a small sample that holds one class only is an error."""
        n, T, M = (
            checked("num_examples", num_examples, whole(2)),
            self.num_tokens,
            self.num_patterns,
        )
        fits_memory(
            f"{n:,} sequences",
            8.0 * 5 * n * T * self.dim + 16.0 * self.dim**2,
            "draw fewer of them",
        )
        rng = random_stream(key)
        labels = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        order = (
            np.argsort(rng.random((n, T)), axis=1)
            if self.positions == "random"
            else np.tile(np.arange(T), (n, 1))
        )
        relevant = order < self.num_relevant
        patterns = self.patterns
        signal = patterns[(labels < 0).astype(int)]
        nuisance = patterns[2 + rng.integers(0, M, (n, T))] + self._noise(rng, (n, T))
        tokens = np.where(relevant[:, :, None], signal[:, None, :], nuisance)
        return Dataset(
            tokens, labels, None, relevant, ("-1", "+1"), "tokenized mixture", self.token_radius
        )._checked()

    def _noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        M, d, S = self.num_patterns, self.dim, self.signal
        vertex = self.noise == "vertex"

        def interval(k):
            return (
                rng.choice((-1.0, 1.0), (*shape, k)) if vertex else rng.uniform(-1, 1, (*shape, k))
            )

        reach = np.concatenate([np.full(2, self.noise_mu / S), np.full(M, self.noise_nu / (M * S))])
        z = np.zeros((*shape, d))
        z[..., : M + 2] = interval(M + 2) * reach
        if (k := d - M - 2) > 0:
            w = rng.standard_normal((*shape, k))
            radius = 1.0 if vertex else rng.random((*shape, 1)) ** (1 / k)
            w *= radius / np.linalg.norm(w, axis=-1, keepdims=True)
            z[..., M + 2 :] = w * np.sqrt(max(self._complement_radius_squared, 0.0))
        return z @ self._frame

    def __str__(self) -> str:
        return (
            f"tokenized mixture: T={self.num_tokens}, d={self.dim}, M={self.num_patterns}, "
            f"zeta={self.sparsity:g}, "
            f"S={self.signal:g}, Z_mu={self.noise_mu:g}, Z_nu={self.noise_nu:g}, "
            f"Z={self.noise_norm:g}, "
            f"{self.noise} noise, {self.positions} positions"
        )


is_mixture = Constraint(
    "a TokenizedMixture, or a data source with its attributes",
    lambda v: v if hasattr(v, "num_patterns") and not isinstance(v, type) else REFUSED,
)
