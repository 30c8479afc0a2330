"""Checks of Section 4.3 and what it leads to: Definition 1, Assumption 2, Proposition 7, Corollaries 2, 3, 4."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import scipy.optimize

from manyheads.certificates.finding import Effort, Finding, Tally
from manyheads.certificates.initialization import (
    GoodStart,
    gap_bound,
    good_start,
    good_start_conditions,
    heads_for_good_start,
    largest_good_step,
    reach,
    realize,
    train_bound,
)
from manyheads.certificates.targets import mixture_direction
from manyheads.certificates.verdict import Verdict
from manyheads.certificates.walk import Walk, follow
from manyheads.data.dataset import Dataset
from manyheads.data.planted import RandomLabels
from manyheads.measures.kernel import tangent_kernel
from manyheads.papers.deora2023.derivatives import HEADS_GENERALIZATION
from manyheads.papers.deora2023.problem import small_problem
from manyheads.training.start import first_phase, gaussian_start

STEPS = 100


@cache
def starts(effort: Effort) -> tuple[GoodStart, ...]:
    """Definition 1 on the mixture (first phase, few and many heads) and on random labels (Gaussian heads)."""
    found = []
    for k in range(effort.count(3, 1)):
        mixture, data, fresh = small_problem(effort.seed + k)
        for heads in (2, 7, 1e10):
            found.append(good_start(first_phase(fresh, heads), data, token_radius=mixture.token_radius))
    noisy = RandomLabels(num_tokens=4, dim=6).sample(24, key=jax.random.key(effort.seed))
    found.append(good_start(gaussian_start(4, num_tokens=4, dim=6, key=jax.random.key(1)), noisy))
    return tuple(found)


def parameter_bound(effort: Effort) -> Finding:
    """P1: the largest head norm, against explicit loops."""
    tally = Tally()
    for good in starts(effort):
        W, U = good.start.heads
        norms = [math.sqrt(np.sum(np.square(w)) + np.sum(np.square(u))) for w, u in zip(W, U, strict=True)]
        tally.add(max(norms), good.parameter_bound)
    return tally.finding("largest head norm over the reported B_2")


def model_bound(effort: Effort) -> Finding:
    """P2: scores at the start by the plain formula."""
    tally, plain = Tally(), jax.jit(jax.vmap(lambda model, X: model(X), in_axes=(None, 0)))
    for good in starts(effort):
        with jax.enable_x64(True):
            scores = np.asarray(plain(good.start, good.dataset.tokens))
        rounding = 1e-14 * math.sqrt(good.num_heads)
        tally.add(np.abs(scores).max(), good.model_bound, noise=rounding)
    return tally.finding("scores at the start by the plain formula over the reported B_Φ; 0 for balanced signs")


def kernel_separability(effort: Effort) -> Finding:
    """P3: the interval against nonnegative least squares, and a data set that is not separable."""
    tally = Tally()
    for good in starts(effort):
        low, high = good.interval.p3_interval
        tally.add(good.margin, high)
        tally.add(low, good.margin * (1 + 1e-9))
        tally.add(_margin_by_nnls(good), high * (1 + 1e-6))
        tally.add(_margin_by_nnls(good), low * (1 - 1e-4), sense=">=")
    contradicting = _contradicting(effort)
    tally.add(contradicting.interval.upper, 1e-6 * contradicting.interval.scale)
    tally.broken += contradicting.holds
    return tally.finding(
        "certified interval against nonnegative least squares; contradicting labels refuted with a dual point"
    )


def _margin_by_nnls(good: GoodStart) -> float:
    """√2·dist(0, conv{y_i g_i}) by Lawson-Hanson on a square root of the Gram matrix."""
    K = tangent_kernel(good.start, good.dataset).matrix * np.outer(good.dataset.labels, good.dataset.labels)
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    n = len(K)
    scale = 1e3 * math.sqrt(K.diagonal().max())
    weights, _ = scipy.optimize.nnls(np.vstack([root.T, scale * np.ones(n)]), np.r_[np.zeros(n), scale])
    return math.sqrt(2) * float(np.linalg.norm(root.T @ weights) / weights.sum())


def _contradicting(effort: Effort) -> GoodStart:
    """The same sequence with both labels: no margin."""
    mixture, data, fresh = small_problem(effort.seed)
    labels = data.labels.copy()
    tokens = data.tokens.copy()
    tokens[1], labels[1] = tokens[0], -labels[0]
    return good_start(first_phase(fresh, 4), Dataset.from_arrays(tokens, labels))


def realizability(effort: Effort) -> Finding:
    """Assumption 2: (i) loss, (ii) distance, (iii) norm of θ_(ε) for a range of ε, at a huge number of heads."""
    tally = Tally()
    for good in starts(effort):
        if good.num_heads < 1e9:
            continue
        for loss in (0.5, 0.1, 1e-2, 1e-4, 1e-6):
            target, certificate = realize(good, loss)
            tally.broken += certificate.verdict is not Verdict.HOLDS
            tally.add(target.loss, loss, noise=1e-9)
            tally.add(target.distance, reach(good, 1 / loss))
            scale = target.distance / math.sqrt(2)
            size = good.parameter_bound + scale * good.theta_star().head_norm() / math.sqrt(good.num_heads)
            tally.add(target.parameter_norm, size)
    return tally.finding("loss, distance and norm of the target over ε, g_0(ε), g(ε)")


def realizable_target(effort: Effort) -> Finding:
    """Proposition 7 at the smallest number of heads it allows (to a tenth of a percent), for several allowances E."""
    tally = Tally()
    for k in range(effort.count(3, 1)):
        mixture, data, fresh = small_problem(effort.seed + k)
        start = first_phase(fresh, 2)
        base = good_start(start, data, direction=mixture_direction(start, mixture), token_radius=mixture.token_radius)
        for allowance in (0.02, 9 / 80, 1.0):
            for loss in (0.3, 0.01):

                def at(heads, base=base, fresh=fresh, loss=loss, allowance=allowance):
                    # with balanced signs nothing but the start itself depends on an even number of heads
                    return realize(replace(base, start=first_phase(fresh, 2 * math.ceil(heads / 2))), loss, allowance)

                low, high = 0.0, math.log(1e14)
                while high - low > 1e-3:
                    middle = (low + high) / 2
                    low, high = (middle, high) if at(math.exp(middle))[1].bound().failing else (low, middle)
                target, certificate = at(math.exp(high))
                tally.broken += certificate.verdict is not Verdict.HOLDS
                tally.add(target.loss, loss)
    return tally.finding("train loss of θ_(ε) over ε at the smallest H allowed")


@cache
def corollary_runs(effort: Effort) -> tuple[tuple[GoodStart, Walk, float], ...]:
    """Runs at the head count and step size of Corollary 2 (with the constant of the gap), on the mixture."""
    runs = []
    for k in range(effort.count(3, 1)):
        mixture, data, fresh = small_problem(effort.seed + k)
        start = first_phase(fresh, 1e12)
        direction = mixture_direction(start, mixture)
        probe = good_start(start, data, direction=direction, token_radius=mixture.token_radius)
        heads = 2 * math.ceil(heads_for_good_start(probe, STEPS, constant=HEADS_GENERALIZATION) / 2)
        good = good_start(first_phase(fresh, heads), data, direction=direction, token_radius=mixture.token_radius)
        step = largest_good_step(good, STEPS)
        ours = good_start_conditions(good, num_steps=STEPS, step_size=step, generalization=True)[2]
        if not ours.holds:
            raise AssertionError(f"the hypotheses of Corollary 2 fail where they were arranged: {ours.missing}")
        target, _ = realize(good, 1 / STEPS)
        runs.append((good, follow(good.start, data, step_size=step, num_steps=STEPS, targets=[target]), step))
    return tuple(runs)


def good_start_bounds(effort: Effort) -> Finding:
    """Corollary 2: train loss on runs whose hypotheses are literally true; the gap against fresh data."""
    tally = Tally()
    for k, (good, walk, step) in enumerate(corollary_runs(effort)):
        tally.add(walk.loss[-1], train_bound(good, STEPS, step), train_bound(good, STEPS, step, "printed"))
        mixture, data, _ = small_problem(effort.seed + k)
        fresh = mixture.sample(400, key=jax.random.key(3000 + k))
        test = np.logaddexp(0.0, -fresh.labels * walk.final.scores(fresh)).mean()
        tally.add(max(test - walk.loss[-1], 0.0), gap_bound(good, STEPS, step, data.num_examples))
    heads = corollary_runs(effort)[0][0].num_heads
    return tally.finding(f"run at {heads:.3g} heads; true and vacuous at {STEPS} steps")


def realizable_training(effort: Effort) -> Finding:
    """Corollary 3: train ≤ 2/K + 5g_0²/(4ηK)."""
    tally = Tally()
    for good, walk, step in corollary_runs(effort):
        tally.add(walk.loss[-1], 2 / STEPS + 5 * reach(good, STEPS) ** 2 / (4 * step * STEPS))
    return tally.finding("last train loss over the bound")


def realizable_generalization(effort: Effort) -> Finding:
    """Corollary 4: mean gap over data sets against (4/n)(2 + 9g_0²/(4η)) ≤ 17g_0²/(ηn), with two standard errors."""
    tally = Tally()
    mixture, _, first = small_problem(effort.seed)
    gaps, bounds = [], []
    start = first_phase(first, 1e12)
    fresh = mixture.sample(400, key=jax.random.key(77))
    direction = mixture_direction(start, mixture)
    # heads and step size are fixed before the samples are seen, from the formula of Proposition 2
    probe = good_start(
        start, mixture.sample(24, key=jax.random.key(76)), direction=direction, token_radius=mixture.token_radius
    )
    heads = 2 * math.ceil(2 * heads_for_good_start(probe, STEPS, constant=HEADS_GENERALIZATION) / 2)
    start = first_phase(first, heads)
    step = 0.5 * largest_good_step(probe, STEPS)
    for k in range(effort.count(20, 6)):
        data = mixture.sample(24, key=jax.random.key(500 + k))
        good = good_start(start, data, direction=direction, token_radius=mixture.token_radius)
        if not good_start_conditions(good, num_steps=STEPS, step_size=step, generalization=True)[2].holds:
            raise AssertionError("the hypotheses of Corollary 4 fail where they were arranged")
        walk = follow(start, data, step_size=step, num_steps=STEPS)
        test = np.logaddexp(0.0, -fresh.labels * walk.final.scores(fresh)).mean()
        gaps.append(test - walk.loss[-1])
        g0 = reach(good, STEPS)
        bounds.append(4 / 24 * (2 + 9 * g0**2 / (4 * step)))
        tally.broken += step <= g0**2 and bounds[-1] > 17 * g0**2 / (step * 24)
    error = np.std(gaps, ddof=1) / math.sqrt(len(gaps))
    tally.add(max(np.mean(gaps), 0.0), np.mean(bounds), noise=2 * error)
    return tally.finding(f"mean gap {np.mean(gaps):.2g} ± {error:.1g} over {len(gaps)} data sets")
