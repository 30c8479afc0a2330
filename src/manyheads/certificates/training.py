r"""Theorem 1 before a run: its hypotheses on a concrete case, in three versions side by side.

*Printed*: (3) and the order of $\rho$ with their hidden constants read as 1, marked so. *Explicit*: the route of
Section 6.1
with its own constants. *Ours*: docs/theory/training.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from manyheads.certificates.bounds import HEADS_TRAINING, Shape
from manyheads.certificates.targets import Target, readout_norm, train_loss
from manyheads.certificates.verdict import EXPLICIT, OURS, PRINTED, Bound, Hypothesis
from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead


@dataclass(frozen=True)
class Case:
    """The numbers that Theorems 1 and 2 speak of: data, start, target and plan."""

    shape: Shape
    num_heads: float
    num_steps: float
    distance: float
    target_loss: float
    target_readout: float
    target_norm: float
    start_loss: float
    start_readout: float
    step_size: float = math.nan

    @property
    def radius(self) -> float:
        r"""Our $M$: no head's readout leaves this ball along the run."""
        return self.shape.radius(self.start_readout, self.target_readout, self.distance, self.num_heads)

    def train_bound(self) -> float:
        r"""(4): $2\hat L(\theta)+5D^2/(4\eta K)$."""
        return 2 * self.target_loss + 5 * self.distance**2 / (4 * self.step_size * self.num_steps)


@dataclass(frozen=True)
class Conditions:
    """The hypotheses of one version on one case, and what they would give."""

    variant: str
    hypotheses: tuple[Hypothesis, ...]
    bound: float
    largest_step: float
    heads_needed: float
    up_to_constant: bool = False

    @property
    def holds(self) -> bool:
        return all(h.holds for h in self.hypotheses)

    @property
    def missing(self) -> tuple[Hypothesis, ...]:
        return tuple(h for h in self.hypotheses if not h.holds)

    def as_bound(self) -> Bound:
        return Bound(self.variant, self.bound, self.hypotheses, self.up_to_constant)


def case_of(
    start: MultiHead,
    dataset: Dataset,
    target: Target,
    *,
    num_steps: float,
    step_size: float = math.nan,
    token_radius: float | None = None,
    start_loss: float | None = None,
) -> Case:
    """Collect the numbers of a case. `token_radius` is R where it is known; else the largest norm seen is assumed."""
    return Case(
        Shape.of(dataset, token_radius),
        start.num_heads,
        num_steps,
        target.distance,
        target.loss,
        target.readout_norm,
        target.parameter_norm,
        train_loss(start, dataset) if start_loss is None else start_loss,
        readout_norm(start, dataset),
        step_size,
    )


def largest_step(case: Case, variant: str = OURS) -> float:
    """The largest step size that a version of Theorem 1 allows."""
    D, K = case.distance, case.num_steps
    limits = [_over(D**2, K * case.target_loss), _over(D**2, case.start_loss)]
    if variant == OURS:
        limits.append(1 / case.shape.b2(case.radius, case.num_heads))
    else:
        limits += [1.0, _over(1.0, _rho(case, variant))]
    return math.nan if any(math.isnan(limit) for limit in limits) else min(limits)


def heads_needed(case: Case, variant: str = OURS, constant: float = HEADS_TRAINING) -> float:
    """The number of heads that a version asks for on this case (its M taken at the case's own number of heads)."""
    if variant == OURS:
        return (constant * case.distance**2 * case.shape.b3(case.radius)) ** 2
    if variant == EXPLICIT:
        return case.shape.heads_explicit(case.target_norm, case.distance) ** 2
    return case.shape.heads_printed(case.target_norm, case.distance) ** 2


def training_conditions(case: Case) -> tuple[Conditions, Conditions, Conditions]:
    """The printed, the explicit and our version of Theorem 1 on a case; `case.step_size` is the step size used."""
    return _conditions(case, PRINTED), _conditions(case, EXPLICIT), _conditions(case, OURS)


def _conditions(case: Case, variant: str) -> Conditions:
    need = heads_needed(case, variant)
    formula = {
        PRINTED: "(3): sqrt(H) >= d sqrt(T) R^5 |theta|_{2,inf} D^3, constant read as 1",
        EXPLICIT: "sqrt(H) >= 18 D^2 beta3(|theta|_{2,inf} + 3D)",
        OURS: "sqrt(H) >= (40/9) D^2 b3(M)",
    }[variant]
    heads = Hypothesis.at_least(
        f"enough heads: {formula}",
        math.sqrt(case.num_heads),
        math.sqrt(need),
        f"use {_count(need)} heads or more, or a target nearer to the start",
    )
    moved = Hypothesis.at_least(
        "the target differs from the start: D > 0", case.distance, 1e-300, "choose another target"
    )
    steps = tuple(_step_hypotheses(case, variant))
    return Conditions(
        variant, (moved, heads, *steps), case.train_bound(), largest_step(case, variant), need, variant == PRINTED
    )


def _step_hypotheses(case: Case, variant: str):
    D, K, eta = case.distance, case.num_steps, case.step_size
    if variant == OURS:
        yield _step("descent: eta <= 1/b2(M)", eta, 1 / case.shape.b2(case.radius, case.num_heads))
    else:
        order = ", rho of the printed order with constant 1" if variant == PRINTED else ", rho of Section 6.1"
        yield _step("eta <= 1", eta, 1.0)
        yield _step(f"descent: eta <= 1/rho{order}", eta, _over(1.0, _rho(case, variant)))
    yield _step("eta <= D^2/(K L(theta))", eta, _over(D**2, K * case.target_loss))
    yield _step("eta <= D^2/L(theta_0)", eta, _over(D**2, case.start_loss))


def _step(text: str, eta: float, limit: float) -> Hypothesis:
    return Hypothesis.at_most(text, eta, limit, f"use a step size of {limit:.3g} or less")


def _rho(case: Case, variant: str) -> float:
    if variant == EXPLICIT:
        return case.shape.rho_explicit(case.target_norm, case.distance, case.num_heads)
    return case.shape.rho_printed(case.target_norm, case.distance)


def _over(top: float, bottom: float) -> float:
    """top/bottom; no limit where the bottom is 0, and NaN where it is NaN."""
    return math.inf if bottom <= 0 else top / bottom


def _count(heads: float) -> str:
    return f"{math.ceil(heads):,}" if heads < 1e9 else f"{heads:.3g}"
