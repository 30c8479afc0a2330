r"""Section 4.3: good initialization (Definition 1), measured on any start and any data, and realizability from it.

Proposition 7 is in an appendix that we do not have; the version here is ours. Proofs:
docs/theory/initialization.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import jax
import numpy as np
from scipy import optimize

from manyheads._check import check, none, positive
from manyheads.data import dataset as datasets
from manyheads.data import planted
from manyheads.data.dataset import is_dataset
from manyheads.measures import kernel as kernels
from manyheads.measures import tangent_features as tangents
from manyheads.model.attention import is_multi_head
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.theory import targets
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.problem import small_problem, small_problems
from manyheads.theory.deora2023.setting import model_scope
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.theory.targets import is_direction
from manyheads.theory.verdict import OURS, PRINTED, Bound, Certificate, Hypothesis, Verdict
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.measures.margin import MarginInterval
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination
    from manyheads.theory.targets import Direction, Target


# E of Proposition 7; implied by the head condition of Theorem 1
ALLOWANCE = 9 / 80


@dataclass(frozen=True, eq=False)
class GoodStart:
    r"""P1, P2 and P3 of Definition 1 as measured.

    `parameter_bound` $\max_h\|\theta_h\|$, `readout_norm` $\|U_0\|_{2,\infty}$, `model_bound`
    $\max_i|\tilde\Phi(X_i)|$, `interval` the certified tangent margin (unit directions),
    `direction` a $\theta_*$ of norm $\sqrt2$ that attains `margin` (None where the data are not
    separable).
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
        """The direction θ_*; an error if P3 fails."""
        if self.direction is None or not self.margin > 0:
            raise ValueError(
                "P3 fails: no direction separates the data in the tangent kernel (no margin above "
                f"{self.interval.upper:.3g} for directions of norm 1); use another start"
            )
        return self.direction

    @property
    def holds(self) -> bool:
        """Whether P3 holds (P1 and P2 always do, with the measured constants)."""
        return self.direction is not None and self.margin > 0

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Definition 1 as hypotheses of Corollary 2."""
        low, high = self.interval.p3_interval
        if self.holds:
            found, remedy = f", margin in [{low:.6g}, {high:.6g}] for directions of norm √2", ""
        else:
            found = f" (proved: no margin above {high:.3g} for directions of norm √2)"
            remedy = "use another start, more heads with different weights, or fewer contradicting labels"
        return (
            Hypothesis(
                f"P1: no head has a norm above {self.parameter_bound:.4g}",
                math.isfinite(self.parameter_bound),
            ),
            Hypothesis(
                f"P2: no score at the start exceeds {self.model_bound:.4g}",
                math.isfinite(self.model_bound),
            ),
            Hypothesis(f"P3: the tangent features separate the data{found}", self.holds, remedy),
        )

    def certificates(self) -> tuple[Certificate, Certificate, Certificate]:
        """P1, P2, P3 as certificates. P3 is SILENT, with the dual proof, if the data are not separable."""
        low, high = self.interval.p3_interval
        p3 = Bound(OURS, 0.0, self.hypotheses()[2:])
        return (
            Certificate(
                "def1.p1",
                "every head's norm is at most B_2",
                self.parameter_bound,
                (Bound(OURS, max(1.0, self.parameter_bound)),),
            ),
            Certificate(
                "def1.p2",
                "every score at the start is at most B_Phi",
                self.model_bound,
                (Bound(OURS, max(1.0, self.model_bound)),),
            ),
            Certificate(
                "def1.p3",
                "the tangent features separate the data with a positive margin",
                self.margin if self.holds else 0.0,
                (p3,),
                sense=">=",
                details={
                    "margin from": low,
                    "margin to": high,
                    "relative gap": self.interval.relative_gap,
                    "answer": self.interval.verdict,
                },
            ),
        )

    def __str__(self) -> str:
        return "\n".join(str(h) for h in self.hypotheses())


@check(
    start=is_multi_head,
    dataset=is_dataset,
    direction=is_direction | none,
    token_radius=positive | none,
    loss=is_loss,
)
def good_start(
    start: MultiHead,
    dataset: Dataset,
    *,
    direction: Direction | None = None,
    token_radius: float | None = None,
    loss: str | Loss = "logistic",
) -> GoodStart:
    """Measure Definition 1. Without `direction` the best θ_* is found, with a certified interval for its margin."""
    shape = Shape.of(
        dataset, token_radius, decoder=getattr(start, "decoder", "full"), loss=get_loss(loss)
    )
    interval = tangents.tangent_margin(start, dataset)
    if direction is None and interval.lower > 0:
        direction = targets.combined_direction(
            "the best tangent direction", start, dataset, interval.direction
        )
    margin = (
        float(targets.tangent_margins(direction, start, dataset).min())
        if direction is not None
        else 0.0
    )
    return GoodStart(
        start,
        dataset,
        shape,
        targets.parameter_norm(start.heads),
        targets.readout_norm(start, dataset),
        float(np.abs(start.scores(dataset)).max()),
        interval,
        direction,
        margin,
    )


def start_of(work: Examination) -> GoodStart:
    """Definition 1 on the start of a run."""
    work.progress("tangent kernel and its margin")
    return good_start(work.run.start, work.dataset, token_radius=work.radius, loss=work.loss)


def outside(good: GoodStart) -> tuple[Hypothesis, ...]:
    """The hypotheses about the model that a start does not satisfy."""
    return tuple(h for h in model_scope(good.start) if not h.holds)


def target_norm(good: GoodStart, scale: float) -> float:
    r"""$\|\theta_0\|_{2,\infty}+c\|\theta_*\|_{2,\infty}$, at least the norm of a head at $\theta_0+c\,\theta_*$."""
    return good.parameter_bound + scale * good.theta_star().head_norm() / math.sqrt(good.num_heads)


def realize(
    good: GoodStart, loss: float, allowance: float = ALLOWANCE
) -> tuple[Target, Certificate]:
    r"""Proposition 7 (ours): a target with train loss at most `loss`, $\epsilon$; `allowance` is $E>0$.

    It is $\theta_0+c\,\theta_*$ with $c=(B_\Phi+E+m_\epsilon)_+/\gamma$, if $\sqrt H\ge
    g(M)D^2/(2E)$, where margins from $m_\epsilon$ on have a loss of at most $\epsilon$:
    $\log\frac1\epsilon$ for the logistic loss.
    """
    direction = good.theta_star()
    scale = (
        max(0.0, good.model_bound + allowance + good.shape.loss.margin_for(1 / loss)) / good.margin
    )
    target = targets.along(direction, scale, good.start, good.dataset, good.shape.loss)
    M = max(good.readout_norm, target.readout_norm)
    need = good.shape.bend(M) * target.distance**2 / (2 * allowance)
    remedy = f"use {need**2:.3g} heads or more, or a larger allowance"
    heads = Hypothesis.at_least(
        "sqrt(H) >= b3(M) D^2/(2E)", math.sqrt(good.num_heads), need, remedy
    )
    claim = f"the target at distance {target.distance:.4g} has train loss at most {loss:.4g}"
    hypotheses = (*outside(good), *good.hypotheses(), heads)
    return target, Certificate("prop7", claim, target.loss, (Bound(OURS, loss, hypotheses),))


def reach(good: GoodStart, num_steps: float, variant: str = OURS) -> float:
    r"""$g_0(1/K)$: the distance within which a target with train loss $1/K$ is guaranteed to exist.

    Ours $\sqrt2(B_\Phi+9/80+\log K)/\gamma$, for another loss
    $\sqrt2(B_\Phi+9/(80C)+m_{1/K})/\gamma$; printed $(2B_\Phi+\log K)/\gamma$ with $B_\Phi\ge1$.
    """
    # an error if P3 fails
    good.theta_star()
    if variant == PRINTED:
        return (2 * max(1.0, good.model_bound) + math.log(num_steps)) / good.margin
    loss = good.shape.loss
    free = ALLOWANCE / loss.self_bound
    return math.sqrt(2) * (good.model_bound + free + loss.margin_for(num_steps)) / good.margin


# Statements -------------------------------------------------------------------------------------------------------


@cache
def measured_starts(effort: Effort) -> tuple[GoodStart, ...]:
    """Definition 1 on the mixture (first phase, few and many heads) and on random labels (Gaussian heads)."""
    found = []
    for mixture, data, fresh in small_problems(effort.seed, effort.count(67, 1)):
        for heads in (2, 7, 1e10):
            found.append(
                good_start(
                    starts.first_phase(fresh, heads), data, token_radius=mixture.token_radius
                )
            )
    noisy = planted.RandomLabels(num_tokens=4, dim=6).sample(24, key=jax.random.key(effort.seed))
    found.append(
        good_start(starts.gaussian_start(4, num_tokens=4, dim=6, key=jax.random.key(1)), noisy)
    )
    return tuple(found)


def check_realizability(effort: Effort) -> Finding:
    """Assumption 2: (i) loss, (ii) distance, (iii) norm of θ_(ε) for a range of ε, at a huge number of heads."""
    tally = Tally()
    for good in measured_starts(effort):
        if good.num_heads < 1e9:
            continue
        for loss in (0.5, 0.1, 1e-2, 1e-4, 1e-6):
            target, certificate = realize(good, loss)
            tally.broken += certificate.verdict is not Verdict.HOLDS
            tally.add(target.loss, loss, noise=1e-9)
            tally.add(target.distance, reach(good, 1 / loss))
            tally.add(target.parameter_norm, target_norm(good, target.distance / math.sqrt(2)))
    return tally.finding("loss, distance and norm of the target over ε, g_0(ε), g(ε)")


REALIZABILITY = Statement(
    id="asm2",
    place="Section 4.2, Assumption 2",
    title="realizability",
    printed="non-increasing g, g_0 exist such that for every ε > 0 some θ_(ε) has L̂(θ_(ε)) ≤ ε, ‖θ_(ε)−θ_0‖ ≤ "
    "g_0(ε), ‖θ_(ε)‖_{2,∞} ≤ g(ε)",
    corrected="as printed",
    ours="from a good start, g_0(ε) = √2·c(ε) and g(ε) = B_2 + c(ε)‖θ_*‖_{2,∞} with c(ε) = (B_Φ + E + "
    "log(1/ε))_+/γ, see `prop7`",
    proof="docs/theory/initialization.md#realizability",
    remark="checked on the mixture for ε from 1/2 to 10⁻⁶",
    check=check_realizability,
    used_by=("cor3", "cor4", "prop7"),
)


def check_parameter_bound(effort: Effort) -> Finding:
    """P1: the largest head norm, against explicit loops."""
    tally = Tally()
    for good in measured_starts(effort):
        W, U = good.start.heads
        norms = [
            math.sqrt(np.sum(np.square(w)) + np.sum(np.square(u)))
            for w, u in zip(W, U, strict=True)
        ]
        tally.add(max(norms), good.parameter_bound)
    return tally.finding("largest head norm over the reported B_2")


PARAMETER_BOUND = Statement(
    id="def1.p1",
    place="Section 4.3, Definition 1, P1",
    title="good initialization: parameter bound",
    printed="‖θ_h^{(0)}‖ ≤ B_2 for every head, B_2 ≥ 1",
    corrected="as printed (B_2 = max(1, ·))",
    ours="only the readout norm enters our constants",
    proof="docs/theory/initialization.md#definition-1",
    remark="measured exactly for any start",
    check=check_parameter_bound,
    about=lambda work: work.shared(start_of).certificates()[:1],
    errata=("E24",),
    used_by=("cor2", "prop2"),
)


def check_model_bound(effort: Effort) -> Finding:
    """P2: scores at the start by the plain formula."""
    tally, plain = Tally(), jax.jit(jax.vmap(lambda model, X: model(X), in_axes=(None, 0)))
    for good in measured_starts(effort):
        with jax.enable_x64(True):
            scores = np.asarray(plain(good.start, good.dataset.tokens))
        tally.add(np.abs(scores).max(), good.model_bound, noise=1e-14 * math.sqrt(good.num_heads))
    return tally.finding(
        "scores at the start by the plain formula over the reported B_Φ; 0 for balanced signs"
    )


MODEL_BOUND = Statement(
    id="def1.p2",
    place="Section 4.3, Definition 1, P2",
    title="good initialization: model bound",
    printed="|Φ̃(X_i; θ_0)| ≤ B_Φ for every i, B_Φ ≥ 1",
    corrected="as printed (B_Φ = max(1, ·))",
    ours="the measured value may be used as it is; it is 0 for balanced signs and even H",
    proof="docs/theory/initialization.md#definition-1",
    remark="measured exactly for any start",
    check=check_model_bound,
    about=lambda work: work.shared(start_of).certificates()[1:2],
    errata=("E24", "E25"),
    used_by=("cor2", "prop2", "prop7"),
)


def check_separability(effort: Effort) -> Finding:
    """P3: the interval against nonnegative least squares, and a data set that is not separable."""
    tally = Tally()
    for good in measured_starts(effort):
        low, high = good.interval.p3_interval
        tally.add(good.margin, high)
        tally.add(low, good.margin * (1 + 1e-9))
        other = _margin_by_nnls(good)
        tally.add(other, high * (1 + 1e-6))
        tally.add(other, low * (1 - 1e-4), sense=">=")
    # the same sequence with both labels: no margin
    _, data, fresh = small_problem(effort.seed)
    labels, tokens = data.labels.copy(), data.tokens.copy()
    tokens[1], labels[1] = tokens[0], -labels[0]
    contradicting = good_start(
        starts.first_phase(fresh, 4), datasets.Dataset.from_arrays(tokens, labels)
    )
    tally.add(contradicting.interval.upper, 1e-6 * contradicting.interval.scale)
    tally.broken += contradicting.holds
    return tally.finding(
        "certified interval against nonnegative least squares; contradicting labels refuted with a "
        "dual point"
    )


def _margin_by_nnls(good: GoodStart) -> float:
    """√2·dist(0, conv{y_i g_i}) by Lawson-Hanson on a square root of the Gram matrix."""
    y = good.dataset.labels
    K = kernels.tangent_kernel(good.start, good.dataset).matrix * np.outer(y, y)
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    n = len(K)
    scale = 1e3 * math.sqrt(K.diagonal().max())
    weights, _ = optimize.nnls(np.vstack([root.T, scale * np.ones(n)]), np.r_[np.zeros(n), scale])
    return math.sqrt(2) * float(np.linalg.norm(root.T @ weights) / weights.sum())


SEPARABILITY = Statement(
    id="def1.p3",
    place="Section 4.3, Definition 1, P3",
    title="good initialization: separability in the tangent kernel",
    printed="some θ_* with ‖θ_*‖ = √2 has y_i⟨∇Φ̃(X_i; θ_0), θ_*⟩ ≥ γ > 0 for every i",
    corrected="as printed",
    ours="the best γ is √2 times the distance of 0 from conv{y_i∇Φ̃(X_i)}: a certified interval from a primal "
    "and a dual point, and a dual proof if the data are not separable",
    proof="docs/theory/initialization.md#definition-1",
    remark="lower and upper end of the interval agree to about 1e-6",
    check=check_separability,
    about=lambda work: work.shared(start_of).certificates()[2:],
    used_by=("cor2", "prop2", "prop7"),
)


def without_margin(statement: Statement, good: GoodStart) -> list[Certificate]:
    """The SILENT certificate of a statement for a start at which P3 fails."""
    return [
        Certificate(
            statement.id, statement.title, math.nan, (Bound(OURS, math.nan, good.hypotheses()),)
        )
    ]


def certify_proposition_7(work: Examination) -> list[Certificate]:
    """A target with train loss 1/K, from the start of a run."""
    good = work.shared(start_of)
    return (
        [realize(good, 1 / work.num_steps)[1]]
        if good.holds
        else without_margin(PROPOSITION_7, good)
    )


def check_proposition_7(effort: Effort) -> Finding:
    """Proposition 7 at the smallest number of heads it allows (to a tenth of a percent), for several allowances E."""
    tally = Tally()
    for mixture, data, fresh in small_problems(effort.seed, effort.count(34, 1)):
        start = starts.first_phase(fresh, 2)
        direction = targets.mixture_direction(start, mixture)
        base = good_start(start, data, direction=direction, token_radius=mixture.token_radius)
        for allowance in (0.02, 9 / 80, 1.0):
            for loss in (0.3, 0.01):

                def at(heads, base=base, fresh=fresh, loss=loss, allowance=allowance):
                    # with balanced signs only the start itself depends on whether the number of heads is even
                    start = starts.first_phase(fresh, 2 * math.ceil(heads / 2))
                    return realize(replace(base, start=start), loss, allowance)

                low, high = 0.0, math.log(1e14)
                while high - low > 1e-3:
                    middle = (low + high) / 2
                    low, high = (
                        (middle, high) if at(math.exp(middle))[1].bound().failing else (low, middle)
                    )
                target, certificate = at(math.exp(high))
                tally.broken += certificate.verdict is not Verdict.HOLDS
                tally.add(target.loss, loss)
    return tally.finding("train loss of θ_(ε) over ε at the smallest H allowed")


PROPOSITION_7 = Statement(
    id="prop7",
    place="Proposition 7 of the appendix, which we do not have: ours",
    title="realizability from a good start",
    printed="from a good initialization some θ_(ε) satisfies Assumption 2, provided enough heads (main text only)",
    ours="c = (B_Φ + E + log(1/ε))_+/γ, D = √2·c and √H ≥ b3(M)D²/(2E) imply L̂(θ_0 + cθ_*) ≤ ε, for any E > 0; for "
    "another loss with the margin at which it is ε in place of log(1/ε)",
    proof="docs/theory/initialization.md#proposition-7",
    remark="on the mixture at the smallest H allowed",
    check=check_proposition_7,
    about=certify_proposition_7,
    tightness=0.78,
    errata=("E11",),
    used_by=("cor2", "cor3", "cor4"),
)
