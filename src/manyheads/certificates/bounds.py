r"""The constants of Corollary 1 and Theorem 1: ours and the printed ones. Plain formulas.

Letters: $T$ tokens of norm at most $R \ge 1$ in dimension $d$, $H$ heads, $x = \|U\|_{2,\infty}$ the largest readout
norm of
a head, $q = R^2 x$. Functions of $x$ work on floats and on arrays of any library. Proofs: docs/theory/derivatives.md
and
docs/theory/training.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

HEADS_TRAINING = 40 / 9  # sqrt(H) >= (40/9) D^2 b3(M)
HEADS_GENERALIZATION = 8.0  # sqrt(H) >= 8 D^2 b3(M)
DRIFT = 3.93  # |U_k|_{2,inf} <= |U_0|_{2,inf} + 3.93 D^2 sqrt(T) R / sqrt(H)
HEADS_EXPLICIT = 18.0  # the route of section 6.1: sqrt(H) >= 18 D^2 beta3(|theta|_{2,inf} + 3 D)


@dataclass(frozen=True)
class Shape:
    """What the constants depend on besides the readout norm: tokens, dimension, radius."""

    num_tokens: int
    dim: int
    token_radius: float

    def __post_init__(self) -> None:
        if not self.token_radius >= 1:
            raise ValueError(
                f"token_radius={self.token_radius:g} is below 1; Assumption 1 asks for R >= 1: pass max(1, largest "
                f"token norm)"
            )

    @classmethod
    def of(cls, dataset, token_radius: float | None = None, *others) -> Shape:
        """The shape of data (with `token_radius` None, R is the largest norm seen in them and in `others`).

        An R below a token's norm is refused: Assumption 1 would be false.
        """
        seen = max(data.token_radius for data in (dataset, *others) if data is not None)
        R = seen if token_radius is None else float(token_radius)
        if not R >= seen * (1 - 1e-12):
            raise ValueError(f"token_radius={R:g} is below the largest token norm seen, {seen:g}; pass at least that.")
        return cls(dataset.num_tokens, dataset.dim, R)

    # ours ------------------------------------------------------------------------------------------------------
    def b1(self, x):
        r"""$b_1(x)=\sqrt T R\sqrt{1+q^2}$: $\|\nabla\hat L\|\le b_1\hat L$. Attained in the limit of many heads."""
        T, R = self.num_tokens, self.token_radius
        q = R**2 * x
        return math.sqrt(T) * R * (1 + q * q) ** 0.5

    def b3(self, x):
        r"""$b_3(x)=\sqrt T R^3(q+\sqrt{q^2+4})/2$: $\lambda_{\min}(\nabla^2\hat L)\ge-(b_3/\sqrt H)\hat L$."""
        T, R = self.num_tokens, self.token_radius
        q = R**2 * x
        return math.sqrt(T) * R**3 * (q + (q * q + 4) ** 0.5) / 2

    def b2(self, x, num_heads):
        r"""$b_2(x)=b_3/\sqrt H+b_1^2/4$: $\|\nabla^2\hat L\|\le b_2$."""
        return self.b3(x) / num_heads**0.5 + self.b1(x) ** 2 / 4

    # printed ---------------------------------------------------------------------------------------------------
    def beta1(self, x):
        r"""Printed $\beta_1=\sqrt T R(2R^2x+1)$, Corollary 1 (1)."""
        T, R = self.num_tokens, self.token_radius
        return math.sqrt(T) * R * (2 * R**2 * x + 1)

    def beta3(self, x):
        r"""Printed $\beta_3=2\sqrt T\,d\,R^3(3\sqrt d R^2x+1)$, Corollary 1 (3)."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        return 2 * math.sqrt(T) * d * R**3 * (3 * math.sqrt(d) * R**2 * x + 1)

    def beta3_from_prop1(self, x):
        r"""$2\sqrt{Td}\,R^3(3\sqrt d R^2x+1)$: what Proposition 1 as printed really gives (erratum E4)."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        return 2 * math.sqrt(T * d) * R**3 * (3 * math.sqrt(d) * R**2 * x + 1)

    def beta2(self, x, num_heads):
        r"""Printed $\beta_2=\beta_3/\sqrt H+\beta_1^2/4$, Corollary 1 (2)."""
        return self.beta3(x) / num_heads**0.5 + self.beta1(x) ** 2 / 4

    # Theorem 1 -------------------------------------------------------------------------------------------------
    def radius(self, start_readout, target_readout, distance, num_heads):
        r"""Our $M=\max(\|U_\theta\|_{2,\infty},\ \|U_0\|_{2,\infty}+3.93D^2\sqrt T R/\sqrt H)$."""
        T, R = self.num_tokens, self.token_radius
        drift = DRIFT * distance**2 * math.sqrt(T) * R / math.sqrt(num_heads)
        return max(target_readout, start_readout + drift)

    def heads_printed(self, target_norm, distance):
        r"""$\sqrt H$ asked for by (3) with its constant read as 1: $d\sqrt T R^5\|\theta\|_{2,\infty}D^3$."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        return d * math.sqrt(T) * R**5 * target_norm * distance**3

    def heads_explicit(self, target_norm, distance):
        r"""$\sqrt H$ asked for by the route of Section 6.1: $18D^2\beta_3(\|\theta\|_{2,\infty}+3D)$."""
        return HEADS_EXPLICIT * distance**2 * self.beta3(target_norm + 3 * distance)

    def rho_printed(self, target_norm, distance):
        r"""The order of $\rho$ in Theorem 1 with constant 1: $d^{3/2}T^{3/2}R^{13}\|\theta\|_{2,\infty}^2D^2$."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        return (d * T) ** 1.5 * R**13 * target_norm**2 * distance**2

    def rho_explicit(self, target_norm, distance, num_heads):
        r"""Section 6.1: $\rho=(2\sqrt T dR^3/\sqrt H+TR^2/4)\,\alpha^2$,
        $\alpha=3\sqrt d R^2[3\sqrt T R^3(3D+\|\theta\|_{2,\infty})+2\sqrt T R]$."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        a = 3 * math.sqrt(d) * R**2 * (3 * math.sqrt(T) * R**3 * (3 * distance + target_norm) + 2 * math.sqrt(T) * R)
        return (2 * math.sqrt(T) * d * R**3 / math.sqrt(num_heads) + T * R**2 / 4) * a**2


def glqc_factor(kappa: float) -> float:
    r"""Sharp Proposition 4: $\max_{[\theta_1,\theta_2]}\hat L\le\max(\hat L(\theta_1),\hat
    L(\theta_2))/\cos(\sqrt\kappa/2)$ for
    $\kappa<\pi^2$; infinite from there on."""
    if not 0 <= kappa < math.pi**2:
        return math.inf
    return 1 / math.cos(math.sqrt(kappa) / 2)


def step_coefficients(kappa: float) -> tuple[float, float]:
    r"""$(A,B)=(\sqrt\kappa/\sin\sqrt\kappa,\ \sqrt\kappa\cot\sqrt\kappa)$ of the one-step inequality, both 1 at
    $\kappa=0$.

    $\langle\nabla\hat L_k,\theta-\theta_k\rangle\le A\hat L(\theta)-B\hat L_k$ for $\kappa<\pi^2$;
    $(\infty,-\infty)$ beyond.
    """
    if not 0 <= kappa < math.pi**2:
        return math.inf, -math.inf
    root = math.sqrt(kappa)
    if root < 1e-4:  # the next terms are of size kappa^2, below rounding
        return 1 + kappa / 6, 1 - kappa / 3
    return root / math.sin(root), root / math.tan(root)


def log_one_plus_exp(score: float) -> float:
    """log(1 + e^score) without overflow."""
    return max(score, 0.0) + math.log1p(math.exp(-abs(score)))
