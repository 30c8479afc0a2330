r"""The constants of all bounds: what they depend on besides the readout norm of a head.

Letters: $T$ tokens of norm at most $R \ge 1$ in dimension $d$, $H$ heads, $x = \|U\|_{2,\infty}$
the largest readout norm of a head. Functions of $x$ work on floats and on arrays of any library.
Proofs: docs/theory/derivatives.md and docs/theory/training.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from manyheads.model.loss import LOGISTIC, Loss
from manyheads.theory.examination import known_radius
from manyheads.theory.verdict import Hypothesis

# sqrt(H) >= (40/9) D^2 b3(M)
HEADS_TRAINING = 40 / 9
# sqrt(H) >= 8 D^2 b3(M)
HEADS_GENERALIZATION = 8.0
# |U_k|_{2,inf} <= |U_0|_{2,inf} + 3.93 D^2 sqrt(T) R / sqrt(H)
DRIFT = 3.93
# the route of section 6.1: sqrt(H) >= 18 D^2 beta3(|theta|_{2,inf} + 3 D)
HEADS_EXPLICIT = 18.0


@dataclass(frozen=True)
class Shape:
    r"""What the constants depend on besides the readout norm: tokens, dimension, radius, decoder and loss.

    The norm $x$ is that of $U$ with all its rows, $\sqrt T\|u\|$ for a pooled readout $U = 1_T
    u^\top$.
    """

    num_tokens: int
    dim: int
    token_radius: float
    decoder: str = "full"
    loss: Loss = LOGISTIC

    def __post_init__(self) -> None:
        if not self.token_radius >= 1:
            raise ValueError(
                f"token_radius={self.token_radius:g} is below 1; Assumption 1 requires R >= 1: "
                "pass max(1, largest "
                "token norm)"
            )

    @classmethod
    def of(
        cls,
        dataset,
        token_radius: float | None = None,
        *others,
        decoder: str = "full",
        loss: Loss = LOGISTIC,
    ) -> Shape:
        """The shape of data (with `token_radius` None, R is the largest norm seen in them and in `others`).

        An R below a token's norm is refused: Assumption 1 would be false.
        """
        return cls(
            dataset.num_tokens,
            dataset.dim,
            known_radius(token_radius, dataset, *others),
            decoder,
            loss,
        )

    @classmethod
    def traced(
        cls, num_tokens: int, dim: int, token_radius, decoder: str = "full", loss: Loss = LOGISTIC
    ) -> Shape:
        """A shape whose radius is a traced array (the check R >= 1 is the caller's)."""
        shape = object.__new__(cls)
        values = dict(
            num_tokens=num_tokens, dim=dim, token_radius=token_radius, decoder=decoder, loss=loss
        )
        shape.__dict__.update(values)
        return shape

    # ours ------------------------------------------------------------------------------------------------------
    @property
    def rows(self) -> float:
        r"""$s$: the readout of averages of norm at most $R$ has a gradient of norm at most $sR$."""
        return {"full": math.sqrt(self.num_tokens), "pooled": float(self.num_tokens), "last": 1.0}[
            self.decoder
        ]

    @property
    def repeat(self) -> float:
        r"""$\|U\|$ over the norm of the parameter that stands for it."""
        return math.sqrt(self.num_tokens) if self.decoder == "pooled" else 1.0

    def features(self, x):
        r"""$f(x)=sR\sqrt{1+q^2}$, $q=R^2\cdot$ norm of the parameter: $\|\nabla\tilde\Phi\|\le f$."""
        R = self.token_radius
        q = R**2 * (x / self.repeat)
        return self.rows * R * (1 + q * q) ** 0.5

    def bend(self, x):
        r"""$g(x)=sR^3(q+\sqrt{q^2+4})/2$: $\|\nabla^2\tilde\Phi\|\le g/\sqrt H$."""
        R = self.token_radius
        q = R**2 * (x / self.repeat)
        return self.rows * R**3 * (q + (q * q + 4) ** 0.5) / 2

    def b1(self, x):
        r"""$b_1=C f$, $|\ell'|\le C\ell$: $\|\nabla\hat L\|\le b_1\hat L$. Attained in the limit of many heads."""
        return self.loss.self_bound * self.features(x)

    def lipschitz(self, x):
        r"""$Gf$, $|\ell'|\le G$: the loss of any one sequence is Lipschitz with it."""
        return self.loss.lipschitz * self.features(x)

    def b3(self, x):
        r"""$b_3=Cg$: $\lambda_{\min}(\nabla^2\hat L)\ge-(b_3/\sqrt H)\hat L$."""
        return self.loss.self_bound * self.bend(x)

    def b2(self, x, num_heads):
        r"""$b_2=Gg/\sqrt H+Sf^2$, $\ell''\le S$: $\|\nabla^2\hat L\|\le b_2$."""
        return (
            self.loss.lipschitz * self.bend(x) / num_heads**0.5
            + self.loss.smoothness * self.features(x) ** 2
        )

    def stability(self, x):
        r"""$CGf^2$: with steps of at most its inverse the gap of Theorem 2 is free of $f$."""
        return self.loss.self_bound * self.loss.lipschitz * self.features(x) ** 2

    @property
    def gap_limit(self) -> str:
        """The condition of `stability` on the step size, in words."""
        return "eta <= 1/b1(M)^2" if self.loss is LOGISTIC else "eta <= 1/(C G f(M)^2)"

    def drift(self, losses):
        r"""$CsR\sum\eta\hat L_k$, over $\sqrt H$: how far $U$ of one head moves; `losses` is $\sum\eta\hat L_k$."""
        return losses * self.rows * self.token_radius * (self.loss.self_bound * self.repeat)

    # printed, for a full readout and the logistic loss ------------------------------------------------------
    def unprinted(self) -> tuple[Hypothesis, ...]:
        """Why the printed constants do not apply here; empty in the setting they are printed for."""
        if self.decoder == "full" and self.loss.name == "logistic":
            return ()
        text = "the paper prints its constants for the full readout and the logistic loss"
        return (
            Hypothesis(text, False, "our version gives those of the other readouts and losses"),
        )

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
        r"""Our $M=\max(\|U_\theta\|_{2,\infty},\ \|U_0\|_{2,\infty}+3.93D^2CsR/\sqrt H)$."""
        return max(
            target_readout, start_readout + self.drift(DRIFT * distance**2) / math.sqrt(num_heads)
        )

    def heads_printed(self, target_norm, distance):
        r"""$\sqrt H$ required by (3) with its constant taken as 1: $d\sqrt T R^5\|\theta\|_{2,\infty}D^3$."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        return d * math.sqrt(T) * R**5 * target_norm * distance**3

    def heads_explicit(self, target_norm, distance):
        r"""$\sqrt H$ required by the route of Section 6.1: $18D^2\beta_3(\|\theta\|_{2,\infty}+3D)$."""
        return HEADS_EXPLICIT * distance**2 * self.beta3(target_norm + 3 * distance)

    def rho_printed(self, target_norm, distance):
        r"""The order of $\rho$ in Theorem 1 with constant 1: $d^{3/2}T^{3/2}R^{13}\|\theta\|_{2,\infty}^2D^2$."""
        T, d, R = self.num_tokens, self.dim, self.token_radius
        return (d * T) ** 1.5 * R**13 * target_norm**2 * distance**2

    def rho_explicit(self, target_norm, distance, num_heads):
        r"""Section 6.1: $\rho=(2\sqrt T dR^3/\sqrt H+TR^2/4)\,\alpha^2$.

        $\alpha=3\sqrt d R^2[3\sqrt T R^3(3D+\|\theta\|_{2,\infty})+2\sqrt T R]$.
        """
        T, d, R = self.num_tokens, self.dim, self.token_radius
        a = (
            3
            * math.sqrt(d)
            * R**2
            * (3 * math.sqrt(T) * R**3 * (3 * distance + target_norm) + 2 * math.sqrt(T) * R)
        )
        return (2 * math.sqrt(T) * d * R**3 / math.sqrt(num_heads) + T * R**2 / 4) * a**2


def log_one_plus_exp(score: float) -> float:
    """log(1 + e^score) without overflow."""
    return max(score, 0.0) + math.log1p(math.exp(-abs(score)))
