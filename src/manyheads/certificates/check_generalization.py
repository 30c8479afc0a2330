"""Checks of Sections 4.2 and 6.2: Lemma 3, (19) to (22), stability, Theorem 2, the leave-one-out certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.certificates.finding import Effort, Finding, Tally
from manyheads.certificates.generalization import (
    LeaveOneOut,
    certify_generalization,
    generalization_conditions,
    measure_leave_one_out,
    stability_bound,
)
from manyheads.certificates.targets import along, mixture_direction
from manyheads.certificates.verdict import Verdict
from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare
from manyheads.model.loss import LOGISTIC
from manyheads.papers.deora2023.convexity import glqc_factor, segments
from manyheads.papers.deora2023.derivatives import HEADS_GENERALIZATION, Shape
from manyheads.papers.deora2023.problem import small_problem
from manyheads.papers.deora2023.regime import Ray
from manyheads.papers.deora2023.training import Case, case_of, largest_step
from manyheads.training.start import first_phase

GRID = 9  # points on the segment between twins
EXAMPLES = 16  # per sample of the checks in expectation


@dataclass(frozen=True)
class Step:
    """One step of a run and of its leave-one-out twin, with both sides of (20), (21) and (22)."""

    before: float
    after: float
    top_loss: float  # largest L^{-i} on the segment
    end_loss: float  # larger L^{-i} of the two ends
    sum_loss: float  # their sum
    rate: float  # eta b3/sqrt(H)
    printed_rate: float
    push: float  # (eta b1/n) loss of the left-out sequence
    printed_push: float
    expansion: float  # max(1 + rate * top_loss, eta b2 - 1)
    printed_expansion: float
    kappa: float
    printed_kappa: float
    small_step: bool  # eta <= 1/b2


@partial(jax.jit, static_argnames="length")
def _twins(start, weights, batch, full, without, eta, *, length):
    """Displacements of the run and its twin at every step, and what (20) to (22) need."""

    def at(displacement, sample):
        point = jax.tree.map(jnp.add, start, displacement)
        return loss_and_gradient(point, weights, batch, sample)

    def step(carry, _):
        a, b = carry
        _, scores, slope_a = at(a, full)
        _, _, slope_b = at(b, without)
        margins = scores * batch.labels.reshape(-1)[: scores.shape[0]]
        left_out = jnp.sum(jnp.where(without == 0, LOGISTIC.value(margins), 0.0))

        def between(s):
            return at(jax.tree.map(lambda x, y: x + s * (y - x), a, b), without)[0]

        on_segment = jax.lax.map(between, jnp.linspace(0.0, 1.0, GRID))
        new_a = jax.tree.map(lambda x, g: x - eta * g, a, slope_a)
        new_b = jax.tree.map(lambda x, g: x - eta * g, b, slope_b)
        return (new_a, new_b), (a, b, left_out, on_segment)

    zero = jax.tree.map(jnp.zeros_like, start)
    _, seen = jax.lax.scan(step, (zero, zero), None, length=length)
    return seen


def _distances(counts, a: Heads, b: Heads) -> np.ndarray:
    total = 0.0
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        total = total + ((x - y) ** 2).reshape(*x.shape[:2], -1).sum(-1) @ counts
    return np.sqrt(total)


def twin_steps(start: MultiHead, data: Dataset, index: int, step_size: float, length: int, shape: Shape) -> list[Step]:
    """Every step of a run beside its leave-one-out twin."""
    n, H = data.num_examples, start.num_heads
    full = np.full(n, 1 / n)
    without = np.where(np.arange(n) == index, 0.0, 1 / n)
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start.heads)
        seen = _twins(heads, head_weights(start), prepare(data, start), full, without, step_size, length=length + 1)
        a, b, left_out, on_segment = jax.tree.map(np.asarray, seen)
    apart = _distances(start.multiplicity, a, b)

    def norms(path):
        U = np.asarray(start.readout)[None] + path.readout
        W = np.asarray(start.key_query)[None] + path.key_query
        u = (U**2).reshape(*U.shape[:2], -1).sum(-1)
        return np.sqrt(u.max(1)), np.sqrt((u + (W**2).reshape(*W.shape[:2], -1).sum(-1)).max(1))

    (xa, wa), (xb, wb) = norms(a), norms(b)
    steps = []
    for k in range(length):
        x, whole, root = max(xa[k], xb[k]), max(wa[k], wb[k]), math.sqrt(H)
        top, ends = on_segment[k].max(), on_segment[k][[0, -1]]
        rate, printed_rate = step_size * shape.b3(x) / root, step_size * shape.beta3(whole) / root
        b2, beta2 = shape.b2(x, H), shape.beta2(whole, H)
        steps.append(
            Step(
                apart[k],
                apart[k + 1],
                top,
                ends.max(),
                ends.sum(),
                rate,
                printed_rate,
                step_size * shape.b1(xa[k]) / n * left_out[k],
                step_size * shape.beta1(wa[k]) / n * left_out[k],
                max(1 + rate * top, step_size * b2 - 1),
                max(1 + printed_rate * top, step_size * beta2),
                rate / step_size * apart[k] ** 2,
                printed_rate / step_size * apart[k] ** 2,
                step_size * b2 <= 1,
            )  # fmt: skip
        )
    return steps


@cache
def leave_one_out_runs(effort: Effort) -> tuple[Step, ...]:
    """Steps of leave-one-out twins on the mixture: few heads with a small step, and a lively run with a large one."""
    mixture, data, fresh = small_problem(effort.seed)
    shape = Shape(4, 6, mixture.token_radius)
    steps: list[Step] = []
    for heads, eta in ((2, 0.2), (64, 0.2), (2, 2.0)):
        start = first_phase(fresh, heads)
        for i in range(effort.count(8, 2)):
            steps += twin_steps(start, data, i, eta, effort.count(150, 60), shape)
    return tuple(steps)


def expansiveness(effort: Effort) -> Finding:
    """(19): random pairs of points, steps up to three times 1/b2."""
    tally, s = Tally(), segments(effort.count(600, 100), effort.seed)
    worst = 0.0
    for i in range(len(s.length)):
        top, eta = s.loss[i].max(), s.step[i]
        ours = max(1 + eta * s.kappa[i] / s.length[i] ** 2 * top, eta * s.smoothness[i] - 1)
        printed = max(1 + eta * s.printed_kappa[i] / s.length[i] ** 2 * top, eta * s.printed_smoothness[i])
        tally.add(s.expanded[i], ours * s.length[i], printed * s.length[i], noise=1e-13 * s.length[i])
        worst = max(worst, s.expanded[i] / s.length[i])
    return tally.finding(f"largest expansion factor of a step between random points {worst:.4f}")


def recursion(effort: Effort) -> Finding:
    """(20)."""
    tally = Tally()
    for step in leave_one_out_runs(effort):
        printed = step.printed_expansion * step.before + step.printed_push
        tally.add(step.after, step.expansion * step.before + step.push, printed)
    return tally.finding("distance of the twins after a step over the right-hand side")


def small_step_recursion(effort: Effort) -> Finding:
    """(21) as corrected, for η ≤ 1/b2."""
    tally = Tally()
    for step in leave_one_out_runs(effort):
        if step.small_step:
            printed = (1 + step.printed_rate * step.top_loss) * step.before + step.printed_push
            tally.add(step.after, (1 + step.rate * step.top_loss) * step.before + step.push, printed)
    return tally.finding("distance of the twins after a step over the right-hand side, η ≤ 1/b2")


def glqc_recursion(effort: Effort) -> Finding:
    """(22): the largest loss on the segment replaced by the ends."""
    tally = Tally()
    for step in leave_one_out_runs(effort):
        if not step.small_step or step.kappa >= math.pi**2:
            continue
        ours = (1 + step.rate * step.end_loss * glqc_factor(step.kappa)) * step.before + step.push
        printed = None
        if step.printed_kappa <= 0.5:
            printed = (1 + 4 / 3 * step.printed_rate * step.sum_loss) * step.before + step.printed_push
        tally.add(step.after, ours, printed)
    return tally.finding("distance of the twins after a step over the right-hand side")


@cache
def _problem(effort: Effort) -> tuple[TokenizedMixture, Dataset, Dataset]:
    """Mixture, first-phase data and fresh test data of the checks in expectation."""
    mixture = small_problem(effort.seed)[0]
    return (
        mixture,
        mixture.sample(200, key=jax.random.key(effort.seed + 10)),
        mixture.sample(1000, key=jax.random.key(effort.seed + 12)),
    )


@cache
def stability_runs(effort: Effort) -> tuple[tuple[Case, LeaveOneOut], ...]:
    """Theorem 2 where its hypotheses are literally true: H and η are fixed before the samples are drawn; all twins."""
    mixture, first, fresh = _problem(effort)
    K = 60
    small = first_phase(first, 2)
    direction = mixture_direction(small, mixture)
    plan = mixture.sample(EXAMPLES, key=jax.random.key(effort.seed + 11))
    ray = Ray(small, plan, direction, mixture.token_radius)
    scale = 1.2 * ray.scale_for_loss(1 / K, 1e10)
    case = ray.case(1e10, scale, K)
    heads = 2 * math.ceil(1.5 * (HEADS_GENERALIZATION * case.distance**2 * ray.shape.b3(case.radius)) ** 2 / 2)
    start = first_phase(first, heads)
    probe = case_of(start, plan, along(direction, scale, start, plan), num_steps=K, token_radius=mixture.token_radius)
    eta = 0.5 * min(largest_step(probe), 1 / ray.shape.b1(probe.radius) ** 2)
    runs = []
    for k in range(effort.count(12, 4)):
        data = mixture.sample(EXAMPLES, key=jax.random.key(100 + k + effort.seed))
        target = along(direction, scale, start, data)
        case = case_of(start, data, target, num_steps=K, token_radius=mixture.token_radius, step_size=eta)
        if not generalization_conditions(case, EXAMPLES, independent=True)[2].holds:
            raise AssertionError("the hypotheses of Theorem 2 fail where they were arranged")
        runs.append((case, _twins_of(start, data, eta, K, fresh, mixture)))
    return tuple(runs)


@cache
def lively_runs(effort: Effort) -> tuple[LeaveOneOut, ...]:
    """The same without Theorem 2's hypotheses: few heads, a step size at which training gets somewhere."""
    mixture, first, fresh = _problem(effort)
    start = first_phase(first, 4)
    samples = (mixture.sample(EXAMPLES, key=jax.random.key(100 + k + effort.seed)) for k in range(effort.count(20, 6)))
    return tuple(_twins_of(start, data, 0.5, 60, fresh, mixture) for data in samples)


def _twins_of(start: MultiHead, data: Dataset, eta: float, steps: int, fresh: Dataset, mixture) -> LeaveOneOut:
    return measure_leave_one_out(
        start, data, step_size=eta, num_steps=steps, test=fresh, token_radius=mixture.token_radius, independent=True
    )


def average_stability(effort: Effort) -> Finding:
    """(1/n)Σ‖θ_K−θ_K^{-i}‖ against its bound, sample by sample."""
    tally, runs = Tally(), stability_runs(effort)
    for case, twins in runs:
        tally.add(twins.stability, stability_bound(case, EXAMPLES), stability_bound(case, EXAMPLES, printed=True))
    return tally.finding(f"run at {runs[0][0].num_heads:.2g} heads, all twins")


def generalization_theorem(effort: Effort) -> Finding:
    """(5): mean gap over samples against the mean bound, with two standard errors."""
    tally, (cases, samples) = Tally(), zip(*stability_runs(effort), strict=True)
    certificate = certify_generalization(samples, cases)[2]
    bound = certificate.bound().value
    tally.add(max(certificate.measured, 0.0), bound, noise=certificate.noise)
    tally.broken += certificate.verdict is not Verdict.HOLDS
    return tally.finding(
        f"gap {certificate.measured:.2g} against {bound:.3g}, {certificate.noise_source}: {certificate.noise:.1g}"
    )


def stability_lemma(effort: Effort) -> Finding:
    """Lemma 3 on lively runs (few heads): mean gap against 2·mean(b1·stability), with two standard errors."""
    tally, certificate = Tally(), certify_generalization(lively_runs(effort))[0]
    tally.add(max(certificate.measured, 0.0), certificate.bound().value, noise=certificate.noise)
    tally.broken += certificate.verdict is not Verdict.HOLDS
    return tally.finding(
        f"gap {certificate.measured:.3g} against {certificate.bound().value:.3g}, {certificate.noise_source}, 4 heads"
    )


def leave_one_out(effort: Effort) -> Finding:
    """The leave-one-out certificate on lively runs: mean test loss against its mean, with two standard errors."""
    tally, certificate = Tally(), certify_generalization(lively_runs(effort))[1]
    tally.add(certificate.measured, certificate.bound().value, noise=certificate.noise)
    tally.broken += certificate.verdict is not Verdict.HOLDS
    plain = certificate.details["left-out loss"]
    return tally.finding(
        f"test loss {certificate.measured:.3g}, left-out loss {plain:.3g}, certificate {certificate.bound().value:.3g}"
    )
