r"""The literal regime: how many heads make the hypotheses of Theorem 1 true, and a run with that many.

Heads enter through multiplicities, so a run with $10^{10}$ heads costs as much as one with two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from manyheads._lazy import lazy
from manyheads.certificates.finding import Effort
from manyheads.certificates.verdict import EXPLICIT, OURS, Certificate
from manyheads.data.door import guarded
from manyheads.papers.deora2023.derivatives import HEADS_TRAINING, Shape
from manyheads.papers.deora2023.problem import small_problem
from manyheads.papers.deora2023.setting import require_scope
from manyheads.papers.deora2023.training import (
    Case,
    Conditions,
    case_of,
    conclusions,
    heads_needed,
    largest_step,
    training_conditions,
)

if TYPE_CHECKING:
    from manyheads.certificates.targets import Direction
    from manyheads.certificates.walk import Walk
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead

optimize, starts = lazy("scipy.optimize"), lazy("manyheads.training.start")
targets, follower = lazy("manyheads.certificates.targets"), lazy("manyheads.certificates.walk")

MOST_HEADS = 1e24
NUM_SCALES = 60
STEPS = (100, 300, 1000, 3000, 10_000)


@dataclass(frozen=True, eq=False)
class Threshold:
    """The smallest number of heads found for a goal, with the target and the plan that go with it."""

    num_heads: float
    scale: float
    direction: Direction
    case: Case

    @property
    def bound(self) -> float:
        """The certified mean train loss, (4)."""
        return self.case.train_bound()


@dataclass(frozen=True, eq=False)
class LiteralRun:
    """Theorem 1 where its hypotheses are literally true: the plan, the run, and its conclusions as certificates."""

    case: Case
    conditions: Conditions
    walk: Walk
    certificates: tuple[Certificate, ...]

    def __str__(self) -> str:
        head = (
            f"{self.case.num_heads:,.0f} heads, step size {self.case.step_size:.4g}, {self.case.num_steps:,} steps: "
            f"certified mean loss {self.case.train_bound():.4g}, measured {self.walk.mean_loss:.4g}"
        )
        return "\n".join([head, *map(str, self.certificates)])


class Ray:
    """Targets θ_0 + cθ_* along one direction, for any number of heads."""

    def __init__(self, start: MultiHead, dataset: Dataset, direction: Direction, token_radius: float | None = None):
        self.start, self.dataset, self.direction = start, dataset, direction
        self.shape = Shape.of(dataset, token_radius)
        self.start_readout = targets.readout_norm(start, dataset)

    def case(
        self, num_heads: float, scale: float, num_steps: float, loss: float = 0.0, start_loss: float = 0.0
    ) -> Case:
        """The case of one target; losses are those given (they do not enter the condition on the heads)."""
        moved = self.start.displaced(self.direction.displacement(scale, num_heads))
        return Case(
            self.shape,
            num_heads,
            num_steps,
            math.sqrt(2) * scale,
            loss,
            targets.readout_norm(moved, self.dataset),
            targets.parameter_norm(moved.heads),
            start_loss,
            self.start_readout,
        )

    def scale_for_loss(self, level: float, num_heads: float) -> float:
        """The smallest scale c with train loss at most `level`; infinite where none is found."""
        model, grid = targets.with_heads(self.start, num_heads), np.geomspace(1e-3, 1e4, 71)

        def loss(scales):
            return targets.losses_along(self.direction, scales, model, self.dataset)

        below = np.flatnonzero(loss(grid) <= level)
        if not len(below):
            return math.inf
        if below[0] == 0:
            return float(grid[0])
        low, high = math.log(grid[below[0] - 1]), math.log(grid[below[0]])
        root = optimize.brentq(lambda x: float(loss(np.array([math.exp(x)]))[0]) - level, low, high, xtol=1e-12)
        return math.exp(root) * (1 + 1e-10)

    def best(self, num_heads: float, num_steps: int, constant: float) -> tuple[Case, float] | None:
        """The case with the smallest bound (4) among the scales whose hypotheses hold, with the largest step."""
        top = self._largest_scale(num_heads, constant)
        if top is None:
            return None
        model = targets.with_heads(self.start, num_heads)
        start_loss = targets.train_loss(model, self.dataset)
        scales = np.geomspace(min(top, 1e-2), top, NUM_SCALES)
        losses = targets.losses_along(self.direction, scales, model, self.dataset)
        cases = []
        for scale, loss in zip(scales.tolist(), losses.tolist(), strict=True):
            case = self.case(num_heads, scale, num_steps, loss, start_loss)
            cases.append((replace(case, step_size=largest_step(case)), scale))
        return min(cases, key=lambda pair: pair[0].train_bound())

    def _largest_scale(self, num_heads: float, constant: float) -> float | None:
        def allowed(scale):
            case = self.case(num_heads, scale, 1)
            return math.sqrt(num_heads) >= constant * case.distance**2 * self.shape.b3(case.radius)

        high = min(1e4, math.sqrt(math.sqrt(num_heads) / (constant * self.shape.b3(0.0)) / 2))  # D^2 at M = 0
        low = 1e-6 * high
        if not allowed(low):
            return None
        if allowed(high):
            return high
        while high > low * (1 + 1e-12):
            middle = (low + high) / 2
            low, high = (middle, high) if allowed(middle) else (low, middle)
        return low


def heads_to_realize(
    ray: Ray, *, num_steps: int, need: Callable[[Case], float], level: float | None = None
) -> Threshold:
    r"""Smallest $H \ge$ `need(case)` for the target on the ray with $\hat L\le$ `level` (by default $1/K$).

    $H$ is a real number, found by bisection in $\log H$; the target is chosen anew for every $H$.
    """
    level = 1 / num_steps if level is None else level

    def enough(log_heads: float) -> Threshold | None:
        H = math.exp(log_heads)
        scale = ray.scale_for_loss(level, H)
        if not math.isfinite(scale):
            return None
        case = ray.case(H, scale, num_steps, level, targets.train_loss(targets.with_heads(ray.start, H), ray.dataset))
        return Threshold(H, scale, ray.direction, case) if need(case) <= H else None

    found = _bisect(enough, 1e-6)
    if found is None:
        raise ValueError(
            f"no number of heads was found, up to {MOST_HEADS:g} in the shares of the start, that makes a target along "
            f"{ray.direction.name} with train loss {level:.3g} meet the condition; ask for a larger loss, or use a "
            "start whose scores cancel"
        )
    return found


@guarded()
def smallest_heads(
    start: MultiHead,
    dataset: Dataset,
    directions: Sequence[Direction],
    *,
    certified: float = 0.5,
    num_steps: int | Sequence[int] = STEPS,
    constant: float = HEADS_TRAINING,
    token_radius: float | None = None,
) -> Threshold:
    r"""Smallest $H$ at which our Theorem 1 certifies a mean train loss below `certified`.

    The theorem holds for every target, so the best direction, scale and number of steps may be chosen. Of two plans
    with nearly the same number of heads the one with fewer steps is returned.
    """
    require_scope(start)
    steps = (num_steps,) if isinstance(num_steps, int) else tuple(num_steps)
    best: Threshold | None = None
    for direction in directions:
        ray = Ray(start, dataset, direction, token_radius)
        for K in sorted(steps):
            found = _bisect(lambda x, K=K, ray=ray: _certifies(ray, math.exp(x), K, constant, certified), 1e-6)
            if found is not None and (best is None or found.num_heads < 0.995 * best.num_heads):
                best = found
    if best is None:
        raise ValueError(
            f"no number of heads was found, up to {MOST_HEADS:g}, that certifies a mean loss below {certified:g} "
            f"within {max(steps):,} steps on these data; allow more steps or a larger loss"
        )
    return best


def _certifies(ray: Ray, num_heads: float, num_steps: int, constant: float, certified: float) -> Threshold | None:
    found = ray.best(num_heads, num_steps, constant)
    if found is None or not found[0].train_bound() < certified:
        return None
    return Threshold(num_heads, found[1], ray.direction, found[0])


def _bisect(goal: Callable[[float], Threshold | None], accuracy: float) -> Threshold | None:
    """The smallest x in [0, log MOST_HEADS] that reaches the goal, which larger x reach too.

    Where the largest x fails (copies of heads whose scores do not cancel: the start gets worse with their number) the
    first power of ten that reaches the goal is taken, and x is found below it.
    """
    low, high = 0.0, math.log(MOST_HEADS)
    best = goal(high)
    if best is None:
        for decade in range(round(math.log10(MOST_HEADS))):
            high = decade * math.log(10)
            best = goal(high)
            if best is not None:
                low = max(0.0, high - math.log(10))
                break
        else:
            return None
    while high - low > accuracy:
        middle = (low + high) / 2
        found = goal(middle)
        low, high, best = (middle, high, best) if found is None else (low, middle, found)
    return best


@guarded()
def run_literally(
    start: MultiHead,
    dataset: Dataset,
    threshold: Threshold,
    token_radius: float | None = None,
    *,
    variant: str = OURS,
) -> LiteralRun:
    """Run at the threshold, rounded up to whole heads in the shares of `start`, and check every conclusion.

    The step size is the largest that the version `variant` of the theorem allows.
    """
    require_scope(start)
    counts = np.ceil(start.multiplicity * (threshold.num_heads / start.num_heads))
    model = type(start)(start.key_query, start.readout, counts, start.decoder, start.exponent)
    target = targets.along(threshold.direction, threshold.scale, model, dataset)
    K = int(threshold.case.num_steps)
    case = case_of(model, dataset, target, num_steps=K, token_radius=token_radius)
    case = replace(case, step_size=largest_step(case, variant))
    walk = follower.follow(model, dataset, step_size=case.step_size, num_steps=K, targets=[target])
    versions = training_conditions(case)
    (conditions,) = (version for version in versions if version.variant == variant)
    return LiteralRun(case, conditions, walk, conclusions(case, walk, versions))


@cache
def literal_runs(effort: Effort) -> tuple[LiteralRun, ...]:
    """Runs where the hypotheses of our Theorem 1 are literally true and its bound is not vacuous."""
    return tuple(_small_run(effort.seed + k, OURS) for k in range(effort.count(4, 1)))


@cache
def explicit_runs(effort: Effort) -> tuple[LiteralRun, ...]:
    """Runs at the head count and step size of Section 6.1's route."""
    runs = tuple(_small_run(effort.seed + k, EXPLICIT) for k in range(effort.count(3, 1)))
    for run in runs:
        if not run.conditions.holds:
            raise AssertionError(f"the explicit hypotheses fail where they were arranged: {run.conditions.missing}")
    return runs


def _small_run(seed: int, variant: str) -> LiteralRun:
    mixture, data, fresh = small_problem(seed)
    start = starts.first_phase(fresh, 2)
    direction = targets.mixture_direction(start, mixture)
    if variant == OURS:
        found = smallest_heads(start, data, [direction], num_steps=300, token_radius=mixture.token_radius)
    else:
        ray = Ray(start, data, direction, mixture.token_radius)
        found = heads_to_realize(ray, num_steps=300, need=lambda case: heads_needed(case, variant))
    return run_literally(start, data, found, mixture.token_radius, variant=variant)
