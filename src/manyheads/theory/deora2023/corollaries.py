"""Theorems 1 and 2 from a good start: Corollary 2, and Corollaries 3 and 4 of the appendix.

We do not have the appendix; the versions here are ours. Proofs: docs/theory/initialization.md.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from manyheads.model.loss import LOGISTIC
from manyheads.theory import targets
from manyheads.theory import walk as follower
from manyheads.theory.deora2023 import training
from manyheads.theory.deora2023.constants import (
    HEADS_GENERALIZATION,
    HEADS_TRAINING,
    log_one_plus_exp,
)
from manyheads.theory.deora2023.generalization import bounded_norms, independence, one_sample
from manyheads.theory.deora2023.initialization import (
    GoodStart,
    good_start,
    outside,
    reach,
    realize,
    start_of,
    target_norm,
    without_margin,
)
from manyheads.theory.deora2023.problem import small_problem, small_problems
from manyheads.theory.deora2023.training import Conditions
from manyheads.theory.finding import Effort, Finding, Tally, half_width
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import EXPLICIT, OURS, PRINTED, Bound, Certificate, Hypothesis
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.theory.examination import Examination
    from manyheads.theory.walk import Walk


# of the runs of the checks
STEPS = 100
HEADS_FORMULA = {
    PRINTED: "d sqrt(T) R^5 B_2^2 g_0^3, constant read as 1",
    EXPLICIT: "18 D^2 beta3(|theta|_{2,inf} + 3D)",
}


def good_start_radius(good: GoodStart, num_steps: float) -> float:
    r"""$M=\|U_0\|_{2,\infty}+\max(1,c\|\theta_*\|_{2,\infty})$ of Corollary 2."""
    scale = reach(good, num_steps) / math.sqrt(2)
    moved = max(1.0, scale * good.theta_star().head_norm() / math.sqrt(good.num_heads))
    return good.readout_norm + good.shape.repeat * moved


def heads_for_good_start(
    good: GoodStart, num_steps: float, variant: str = OURS, constant: float = HEADS_TRAINING
) -> float:
    """Heads required by a version of Corollary 2, with the target's norm at the start's own number of heads."""
    D = reach(good, num_steps, variant)
    if variant == OURS:
        return (constant * D**2 * good.shape.b3(good_start_radius(good, num_steps))) ** 2
    if variant == EXPLICIT:
        return good.shape.heads_explicit(target_norm(good, D / math.sqrt(2)), D) ** 2
    return good.shape.heads_printed(max(1.0, good.parameter_bound) ** 2, D) ** 2


def step_limits(good: GoodStart, num_steps: float, variant: str = OURS) -> dict[str, float]:
    """What a version of Corollary 2 allows as step size, by condition."""
    D, shape = reach(good, num_steps, variant), good.shape
    if variant == PRINTED:
        B = max(1.0, good.model_bound)
        return {
            "eta <= 1": 1.0,
            "eta <= 1/rho(K), order with constant 1": 1 / shape.rho_printed(D, D),
            "eta <= 4 B_Phi^2/(gamma^2 log(1 + e^B_Phi))": 4
            * B**2
            / (good.margin**2 * log_one_plus_exp(B)),
        }
    # of the loss at the start
    most = "log(1 + e^B_Phi)" if shape.loss is LOGISTIC else "l(-B_Phi)"
    common = {
        "eta <= D^2": D**2,
        f"eta <= D^2/{most}": D**2 / float(shape.loss.at(-good.model_bound)),
    }
    if variant == EXPLICIT:
        rho = shape.rho_explicit(target_norm(good, D / math.sqrt(2)), D, good.num_heads)
        return {"eta <= 1": 1.0, "eta <= 1/rho, rho of Section 6.1": 1 / rho} | common
    M = good_start_radius(good, num_steps)
    return {
        "eta <= 1/b2(M)": 1 / shape.b2(M, good.num_heads),
        shape.gap_limit: 1 / shape.stability(M),
    } | common


def largest_good_step(good: GoodStart, num_steps: float, variant: str = OURS) -> float:
    """The largest step size that a version of Corollary 2 allows."""
    return min(step_limits(good, num_steps, variant).values())


def train_bound(good: GoodStart, num_steps: float, step_size: float, variant: str = OURS) -> float:
    r"""Train loss: $2/K+5D^2/(4\eta K)$; printed with its own $g_0$."""
    return 2 / num_steps + 5 * reach(good, num_steps, variant) ** 2 / (4 * step_size * num_steps)


def gap_bound(
    good: GoodStart, num_steps: float, step_size: float, num_examples: int, variant: str = OURS
) -> float:
    r"""Expected gap: $17D^2/(\eta n)$; printed with its own $g_0$."""
    return 17 * reach(good, num_steps, variant) ** 2 / (step_size * num_examples)


def good_start_conditions(
    good: GoodStart, *, num_steps: float, step_size: float, generalization: bool = False
) -> tuple[Conditions, ...]:
    """Corollary 2 on a case: printed (constant 1), explicit route, ours. The bound is on the train loss."""
    constant = HEADS_GENERALIZATION if generalization else HEADS_TRAINING
    formula = HEADS_FORMULA | {OURS: f"{'8' if generalization else '(40/9)'} D^2 b3(M)"}
    versions = []
    for variant in (PRINTED, EXPLICIT, OURS):
        need = heads_for_good_start(good, num_steps, variant, constant)
        text = f"enough heads: sqrt(H) >= {formula[variant]}"
        remedy = f"use {need:.3g} heads or more"
        heads = Hypothesis.at_least(text, math.sqrt(good.num_heads), math.sqrt(need), remedy)
        limits = step_limits(good, num_steps, variant).items()
        steps = (training.step_at_most(text, step_size, limit) for text, limit in limits)
        unprinted = () if variant == OURS else good.shape.unprinted()
        hypotheses = (*outside(good), *unprinted, *good.hypotheses(), heads, *steps)
        bound, step = (
            train_bound(good, num_steps, step_size, variant),
            largest_good_step(good, num_steps, variant),
        )
        versions.append(Conditions(variant, hypotheses, bound, step, need, variant == PRINTED))
    return tuple(versions)


@cache
def corollary_runs(effort: Effort) -> tuple[tuple[GoodStart, Walk, float], ...]:
    """Runs at the head count and step size of Corollary 2 (with the constant of the gap), on the mixture."""
    runs = []
    for mixture, data, fresh in small_problems(effort.seed, effort.count(200, 1)):
        start = starts.first_phase(fresh, 1e12)
        known: dict[str, Any] = {
            "direction": targets.mixture_direction(start, mixture),
            "token_radius": mixture.token_radius,
        }
        probe = good_start(start, data, **known)
        heads = 2 * math.ceil(heads_for_good_start(probe, STEPS, constant=HEADS_GENERALIZATION) / 2)
        good = good_start(starts.first_phase(fresh, heads), data, **known)
        step = largest_good_step(good, STEPS)
        ours = good_start_conditions(good, num_steps=STEPS, step_size=step, generalization=True)[2]
        if not ours.holds:
            raise AssertionError(
                f"the hypotheses of Corollary 2 fail where they should hold: {ours.missing}"
            )
        target, _ = realize(good, 1 / STEPS)
        runs.append(
            (
                good,
                follower.follow(
                    good.start, data, step_size=step, num_steps=STEPS, targets=[target]
                ),
                step,
            )
        )
    return tuple(runs)


def certify_corollary_2(work: Examination) -> list[Certificate]:
    """The train loss of a run, and its gap where test data are given."""
    good, K, eta = work.shared(start_of), work.num_steps, work.step_size
    if not good.holds:
        return without_margin(COROLLARY_2, good)
    walk = work.shared(training.repetition)
    versions = good_start_conditions(good, num_steps=K, step_size=eta)
    bounds = tuple(v.as_bound() for v in versions)
    found = [Certificate("cor2", "train loss after K steps", float(walk.loss[-1]), bounds)]
    if work.test is not None:
        extra = (independence(work.independent), bounded_norms(work.bounded), one_sample())
        bounds = tuple(
            Bound(
                v.variant,
                gap_bound(good, K, eta, work.dataset.num_examples, v.variant),
                (*v.hypotheses, *extra),
                v.up_to_constant,
            )
            for v in good_start_conditions(good, num_steps=K, step_size=eta, generalization=True)
        )
        gap = targets.train_loss(walk.final, work.test, work.loss) - float(walk.loss[-1])
        found.append(
            Certificate("cor2", "generalization gap, in expectation over samples", gap, bounds)
        )
    return found


def check_corollary_2(effort: Effort) -> Finding:
    """Corollary 2: train loss on runs that satisfy its hypotheses; the gap against fresh data."""
    tally = Tally()
    problems = small_problems(effort.seed, effort.count(200, 1))
    for k, ((mixture, data, _), (good, walk, step)) in enumerate(
        zip(problems, corollary_runs(effort), strict=True)
    ):
        tally.add(
            walk.loss[-1], train_bound(good, STEPS, step), train_bound(good, STEPS, step, PRINTED)
        )
        fresh = mixture.sample(400, key=jax.random.key(3000 + k))
        tally.add(max(_gap(walk, fresh), 0.0), gap_bound(good, STEPS, step, data.num_examples))
    heads = corollary_runs(effort)[0][0].num_heads
    return tally.finding(f"run at {heads:.3g} heads; true and vacuous at {STEPS} steps")


def _gap(walk: Walk, fresh) -> float:
    return np.logaddexp(0.0, -fresh.labels * walk.final.scores(fresh)).mean() - walk.loss[-1]


COROLLARY_2 = Statement(
    id="cor2",
    place="Section 4.3, Corollary 2",
    title="bounds under a good initialization",
    printed="√H ≳ d√T R⁵ B_2² g_0(1/K)³, g_0(1/K) = (2B_Φ + log K)/γ, η ≤ 1 ∧ 1/ρ(K) ∧ 4B_Φ²/(γ² "
    "log(1+e^{B_Φ})) imply "
    "L̂(θ_K) ≤ 2/K + 5(2B_Φ+log K)²/(4γ²ηK) and a gap of at most 17(2B_Φ+log K)²/(γ²ηn)",
    corrected="g_0 = √2(2B_Φ + log K)/γ because ‖θ_*‖ = √2: 5/4 becomes 5/2 and 17 becomes 34",
    ours="D = √2(B_Φ + 9/80 + log K)/γ, c = D/√2, M = B_2 + max(1, c‖θ_*‖_{2,∞}), √H ≥ (40/9)D²b3(M) (8 for the gap), "
    "η ≤ min(1/b2(M), 1/b1(M)², D², D²/log(1+e^{B_Φ})) imply train ≤ 2/K + 5D²/(4ηK), gap ≤ "
    "17D²/(ηn)",
    proof="docs/theory/initialization.md#corollary-2",
    remark="run on the mixture at the number of heads it requires",
    check=check_corollary_2,
    about=certify_corollary_2,
    tightness=0.015,
    errata=("E11",),
    used_by=("prop2", "plan"),
)


def check_corollary_3(effort: Effort) -> Finding:
    """Corollary 3: train ≤ 2/K + 5g_0²/(4ηK)."""
    tally = Tally()
    for good, walk, step in corollary_runs(effort):
        tally.add(walk.loss[-1], 2 / STEPS + 5 * reach(good, STEPS) ** 2 / (4 * step * STEPS))
    return tally.finding("last train loss over the bound")


COROLLARY_3 = Statement(
    id="cor3",
    place="Corollary 3 of the appendix (B.5), which we do not have: ours",
    title="training under realizability",
    printed="Theorem 1 specialized to Assumption 2 (main text only)",
    ours="with θ = θ_(1/K): L̂(θ_K) ≤ 2/K + 5g_0(1/K)²/(4ηK) under the hypotheses of Theorem 1",
    proof="docs/theory/initialization.md#corollaries-3-and-4",
    remark="on the mixture",
    check=check_corollary_3,
    tightness=0.015,
    used_by=("cor2",),
)


def check_corollary_4(effort: Effort) -> Finding:
    """Corollary 4: mean gap over data sets against (4/n)(2 + 9g_0²/(4η)) ≤ 17g_0²/(ηn), with a 95% interval."""
    tally, gaps, bounds, n = Tally(), [], [], 24
    mixture, _, first = small_problem(effort.seed)
    start = starts.first_phase(first, 1e12)
    fresh = mixture.sample(400, key=jax.random.key(77))
    known: dict[str, Any] = {
        "direction": targets.mixture_direction(start, mixture),
        "token_radius": mixture.token_radius,
    }
    # heads and step size are fixed before the samples are seen, from the formula of Proposition 2
    probe = good_start(start, mixture.sample(n, key=jax.random.key(76)), **known)
    heads = 2 * math.ceil(2 * heads_for_good_start(probe, STEPS, constant=HEADS_GENERALIZATION) / 2)
    start = starts.first_phase(first, heads)
    step = 0.5 * largest_good_step(probe, STEPS)
    for k in range(effort.count(200, 6)):
        data = mixture.sample(n, key=jax.random.key(500 + k))
        good = good_start(start, data, **known)
        if not good_start_conditions(good, num_steps=STEPS, step_size=step, generalization=True)[
            2
        ].holds:
            raise AssertionError("the hypotheses of Corollary 4 fail where they should hold")
        gaps.append(_gap(follower.follow(start, data, step_size=step, num_steps=STEPS), fresh))
        g0 = reach(good, STEPS)
        bounds.append(4 / n * (2 + 9 * g0**2 / (4 * step)))
        tally.broken += step <= g0**2 and bounds[-1] > 17 * g0**2 / (step * n)
    error = half_width(gaps)
    tally.add(max(np.mean(gaps), 0.0), np.mean(bounds), noise=error)
    # one mean, of as many data sets
    tally.trials = len(gaps)
    return tally.finding(f"mean gap {np.mean(gaps):.2g} ± {error:.1g} over {len(gaps)} data sets")


COROLLARY_4 = Statement(
    id="cor4",
    place="Corollary 4 of the appendix (C.2), which we do not have: ours",
    title="generalization under realizability",
    printed="Theorem 2 specialized to Assumption 2 (main text only)",
    ours="with θ = θ_(1/K), almost surely over samples: gap ≤ (4/n)(2 + 9g_0²/(4η)) ≤ 17g_0²/(ηn) if η ≤ g_0²",
    proof="docs/theory/initialization.md#corollaries-3-and-4",
    remark="on the mixture, mean over data sets, at a number of heads where the hypotheses are true: the bound is "
    "vacuous there",
    check=check_corollary_4,
    tightness=1.2e-5,
    used_by=("cor2",),
)
