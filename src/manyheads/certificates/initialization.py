r"""Good initialization (Definition 1) measured on any start and any data, and what follows from it.

Proposition 7 and Corollaries 3 and 4 stand in an appendix that we do not have; the versions here are ours. Proofs:
docs/theory/initialization.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from manyheads.certificates.targets import (
    Direction,
    Target,
    along,
    combined_direction,
    parameter_norm,
    readout_norm,
    tangent_margins,
)
from manyheads.certificates.verdict import EXPLICIT, OURS, PRINTED, Bound, Certificate, Hypothesis
from manyheads.data.dataset import Dataset
from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import MarginInterval, hard_margin
from manyheads.model.attention import MultiHead
from manyheads.papers.deora2023.derivatives import HEADS_GENERALIZATION, HEADS_TRAINING, Shape, log_one_plus_exp
from manyheads.papers.deora2023.setting import model_scope
from manyheads.papers.deora2023.training import Conditions

ALLOWANCE = 9 / 80  # E of Proposition 7; implied by the head condition of Theorem 1


@dataclass(frozen=True, eq=False)
class GoodStart:
    r"""P1, P2 and P3 of Definition 1 as measured.

    `parameter_bound` $\max_h\|\theta_h\|$, `readout_norm` $\|U_0\|_{2,\infty}$, `model_bound`
    $\max_i|\tilde\Phi(X_i)|$, `interval` the
    certified tangent margin (unit directions) and `direction` a $\theta_*$ with $\|\theta_*\|=\sqrt2$ that attains
    `margin` (None
    where the data are not separable).
    """

    start: MultiHead
    dataset: Dataset
    shape: Shape
    parameter_bound: float
    readout_norm: float
    model_bound: float
    interval: MarginInterval
    direction: Direction | None
    margin: float

    @property
    def num_heads(self) -> float:
        return self.start.num_heads

    def theta_star(self) -> Direction:
        """The direction θ_*; an error where P3 fails."""
        if self.direction is None or not self.margin > 0:
            raise ValueError(
                "P3 fails: no direction separates the data in the tangent kernel (no margin above "
                f"{self.interval.upper:.3g}); use another start"
            )
        return self.direction

    @property
    def holds(self) -> bool:
        """Whether P3 holds (P1 and P2 always do, with the measured constants)."""
        return self.direction is not None and self.margin > 0

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Definition 1 as hypotheses of Corollary 2."""
        low, high = self.interval.p3_interval
        return (
            Hypothesis(f"P1: no head has a norm above {self.parameter_bound:.4g}", math.isfinite(self.parameter_bound)),
            Hypothesis(f"P2: no score at the start exceeds {self.model_bound:.4g}", math.isfinite(self.model_bound)),
            Hypothesis(
                f"P3: the tangent features separate the data, margin in [{low:.6g}, {high:.6g}]"
                if self.holds
                else f"P3: the tangent features separate the data (proved: no margin above {high:.3g})",
                self.holds,
                ""
                if self.holds
                else "use another start, more heads with different weights, or fewer contradicting labels",
            ),
        )

    def certificates(self) -> tuple[Certificate, Certificate, Certificate]:
        """P1, P2, P3 as certificates. P3 is SILENT, with the dual proof, where the data are not separable."""
        low, high = self.interval.p3_interval
        p3 = Bound(OURS, 0.0, self.hypotheses()[2:])
        return (
            Certificate("def1.p1", "every head's norm is at most B_2", self.parameter_bound,
                        (Bound(OURS, max(1.0, self.parameter_bound)),)),
            Certificate("def1.p2", "every score at the start is at most B_Phi", self.model_bound,
                        (Bound(OURS, max(1.0, self.model_bound)),)),
            Certificate("def1.p3", "the tangent features separate the data with a positive margin",
                        self.margin if self.holds else 0.0, (p3,), sense=">=",
                        details={"margin from": low, "margin to": high, "relative gap": self.interval.relative_gap,
                                 "answer": self.interval.verdict}),
        )  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(str(h) for h in self.hypotheses())


def good_start(
    start: MultiHead, dataset: Dataset, *, direction: Direction | None = None, token_radius: float | None = None
) -> GoodStart:
    """Measure Definition 1. Without `direction` the best θ_* is found, with a certified interval for its margin."""
    shape = Shape.of(dataset, token_radius)
    kernel = tangent_kernel(start, dataset)
    interval = hard_margin(dataset.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy)
    if direction is None and interval.lower > 0:
        direction = combined_direction("the best tangent direction", start, dataset, interval.direction)
    margin = float(tangent_margins(direction, start, dataset).min()) if direction is not None else 0.0
    return GoodStart(
        start,
        dataset,
        shape,
        parameter_norm(start.heads),
        readout_norm(start, dataset),
        float(np.abs(start.scores(dataset)).max()),
        interval,
        direction,
        margin,
    )


def realize(good: GoodStart, loss: float, allowance: float = ALLOWANCE) -> tuple[Target, Certificate]:
    r"""Proposition 7 (ours): $\theta_{(\epsilon)}=\theta_0+c\,\theta_*$, $c=(B_\Phi+E+\log(1/\epsilon))_+/\gamma$, has
    $\hat L\le\epsilon$ if $\sqrt H\ge b_3(M)D^2/(2E)$. `loss` is $\epsilon$, `allowance` $E>0$."""
    if not loss > 0 or not allowance > 0:
        raise ValueError(f"loss={loss} and allowance={allowance} must be > 0.")
    direction = good.theta_star()
    scale = max(0.0, good.model_bound + allowance + math.log(1 / loss)) / good.margin
    target = along(direction, scale, good.start, good.dataset)
    M = max(good.readout_norm, target.readout_norm)
    need = good.shape.b3(M) * target.distance**2 / (2 * allowance)
    heads = Hypothesis.at_least(
        "sqrt(H) >= b3(M) D^2/(2E)",
        math.sqrt(good.num_heads),
        need,
        f"use {need**2:.3g} heads or more, or a larger allowance",
    )
    claim = f"the target at distance {target.distance:.4g} has train loss at most {loss:.4g}"
    hypotheses = (*_outside(good), *good.hypotheses(), heads)
    return target, Certificate("prop7", claim, target.loss, (Bound(OURS, loss, hypotheses),))


def reach(good: GoodStart, num_steps: float, variant: str = OURS) -> float:
    r"""$g_0(1/K)$: the distance at which a target with train loss $1/K$ is sure to exist.

    Ours $\sqrt2(B_\Phi+9/80+\log K)/\gamma$; printed $(2B_\Phi+\log K)/\gamma$ with $B_\Phi\ge1$.
    """
    good.theta_star()  # an error where P3 fails
    log = math.log(num_steps)
    if variant == PRINTED:
        return (2 * max(1.0, good.model_bound) + log) / good.margin
    return math.sqrt(2) * (good.model_bound + ALLOWANCE + log) / good.margin


def good_start_radius(good: GoodStart, num_steps: float) -> float:
    r"""$M=\|U_0\|_{2,\infty}+\max(1,c\|\theta_*\|_{2,\infty})$ of Corollary 2."""
    scale = reach(good, num_steps) / math.sqrt(2)
    return good.readout_norm + max(1.0, scale * good.theta_star().head_norm() / math.sqrt(good.num_heads))


def heads_for_good_start(
    good: GoodStart, num_steps: float, variant: str = OURS, constant: float = HEADS_TRAINING
) -> float:
    """Heads asked for by a version of Corollary 2, with the target's norm at the start's own number of heads."""
    D = reach(good, num_steps, variant)
    if variant == OURS:
        return (constant * D**2 * good.shape.b3(good_start_radius(good, num_steps))) ** 2
    if variant == EXPLICIT:
        scale = D / math.sqrt(2)
        norm = good.parameter_bound + scale * good.theta_star().head_norm() / math.sqrt(good.num_heads)
        return good.shape.heads_explicit(norm, D) ** 2
    T, d, R = good.shape.num_tokens, good.shape.dim, good.shape.token_radius
    return (d * math.sqrt(T) * R**5 * max(1.0, good.parameter_bound) ** 2 * D**3) ** 2


def good_start_conditions(
    good: GoodStart, *, num_steps: float, step_size: float, generalization: bool = False
) -> tuple[Conditions, Conditions, Conditions]:
    """Corollary 2 on a case: printed (constant 1), explicit route, ours. The bound is on the train loss."""
    one = partial(_conditions, good, num_steps, step_size, generalization=generalization)
    return one(PRINTED), one(EXPLICIT), one(OURS)


def largest_good_step(good: GoodStart, num_steps: float, variant: str = OURS) -> float:
    """The largest step size that a version of Corollary 2 allows."""
    return min(limit for _, limit in _step_limits(good, num_steps, variant))


def train_bound(good: GoodStart, num_steps: float, step_size: float, variant: str = OURS) -> float:
    r"""Train loss: $2/K+5D^2/(4\eta K)$; printed with its own $g_0$."""
    return 2 / num_steps + 5 * reach(good, num_steps, variant) ** 2 / (4 * step_size * num_steps)


def gap_bound(good: GoodStart, num_steps: float, step_size: float, num_examples: int, variant: str = OURS) -> float:
    r"""Expected gap: $17D^2/(\eta n)$; printed with its own $g_0$."""
    return 17 * reach(good, num_steps, variant) ** 2 / (step_size * num_examples)


def _outside(good: GoodStart) -> tuple[Hypothesis, ...]:
    """What a start that has not been examined lacks."""
    return tuple(h for h in model_scope(good.start) if not h.holds)


def _conditions(good, num_steps, step_size, variant, generalization) -> Conditions:
    constant = HEADS_GENERALIZATION if generalization else HEADS_TRAINING
    need = heads_for_good_start(good, num_steps, variant, constant)
    formula = {
        PRINTED: "sqrt(H) >= d sqrt(T) R^5 B_2^2 g_0^3, constant read as 1",
        EXPLICIT: "sqrt(H) >= 18 D^2 beta3(|theta|_{2,inf} + 3D)",
        OURS: f"sqrt(H) >= {'8' if generalization else '(40/9)'} D^2 b3(M)",
    }[variant]
    heads = Hypothesis.at_least(
        f"enough heads: {formula}", math.sqrt(good.num_heads), math.sqrt(need), f"use {need:.3g} heads or more"
    )
    steps = tuple(
        Hypothesis.at_most(text, step_size, limit, f"use a step size of {limit:.3g} or less")
        for text, limit in _step_limits(good, num_steps, variant)
    )
    return Conditions(
        variant,
        (*_outside(good), *good.hypotheses(), heads, *steps),
        train_bound(good, num_steps, step_size, variant),
        largest_good_step(good, num_steps, variant),
        need,
        variant == PRINTED,
    )


def _step_limits(good: GoodStart, num_steps: float, variant: str) -> list[tuple[str, float]]:
    D, shape = reach(good, num_steps, variant), good.shape
    start_loss = log_one_plus_exp(good.model_bound)
    if variant == OURS:
        M = good_start_radius(good, num_steps)
        return [
            ("eta <= 1/b2(M)", 1 / shape.b2(M, good.num_heads)),
            ("eta <= 1/b1(M)^2", 1 / shape.b1(M) ** 2),
            ("eta <= D^2", D**2),
            ("eta <= D^2/log(1 + e^B_Phi)", D**2 / start_loss),
        ]
    if variant == EXPLICIT:
        norm = good.parameter_bound + D / math.sqrt(2) * good.theta_star().head_norm() / math.sqrt(good.num_heads)
        return [
            ("eta <= 1", 1.0),
            ("eta <= 1/rho, rho of Section 6.1", 1 / shape.rho_explicit(norm, D, good.num_heads)),
            ("eta <= D^2", D**2),
            ("eta <= D^2/log(1 + e^B_Phi)", D**2 / start_loss),
        ]
    T, d, R, B = shape.num_tokens, shape.dim, shape.token_radius, max(1.0, good.model_bound)
    return [
        ("eta <= 1", 1.0),
        ("eta <= 1/rho(K), order with constant 1", 1 / ((d * T) ** 1.5 * R**13 * D**4)),
        ("eta <= 4 B_Phi^2/(gamma^2 log(1 + e^B_Phi))", 4 * B**2 / (good.margin**2 * log_one_plus_exp(B))),
    ]
