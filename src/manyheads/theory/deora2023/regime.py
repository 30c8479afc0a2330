r"""The literal regime: how many heads make the hypotheses of Theorem 1 true, and a run with that many.

Heads enter through multiplicities, so a run with $10^{10}$ heads costs as much as one with two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize

from manyheads._check import check, many, none, positive, whole
from manyheads.data.dataset import is_dataset
from manyheads.model.attention import is_multi_head
from manyheads.model.loss import LOGISTIC, Loss, get_loss, is_loss
from manyheads.theory import targets
from manyheads.theory import walk as follower
from manyheads.theory.deora2023 import initialization
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.problem import Problem, small_problem, small_problems
from manyheads.theory.deora2023.setting import require_scope
from manyheads.theory.deora2023.sharper import (
    LARGEST,
    Features,
    Terms,
    least_bound,
    sharp_conclusions,
    sharp_conditions,
)
from manyheads.theory.deora2023.training import (
    Case,
    Conditions,
    case_of,
    conclusions,
    heads_needed,
    largest_step,
    training_conditions,
)
from manyheads.theory.finding import Effort
from manyheads.theory.targets import is_direction
from manyheads.theory.verdict import EXPLICIT, OURS, Certificate
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.theory.targets import Direction
    from manyheads.theory.walk import Walk


MOST_HEADS = 1e24
STEPS = (300, 3000, 30_000)


@dataclass(frozen=True, eq=False)
class Threshold:
    """The smallest number of heads found for a goal, with its target and plan."""

    num_heads: float
    scale: float
    direction: Direction
    case: Case
    bound: float  # the certified mean train loss

    def __str__(self) -> str:
        case = self.case
        lines = [
            f"{self.num_heads:,.6g} heads, for the target {self.scale:.4g} times θ_* "
            f"({self.direction.name}) from the start",
            f"target: train loss {case.target_loss:.4g}, distance {case.distance:.4g}",
        ]
        if not math.isnan(case.step_size):
            lines.append(f"plan: step size {case.step_size:.4g}, {case.num_steps:,.0f} steps")
        if not math.isnan(self.bound):
            lines.append(f"certified mean train loss: {self.bound:.4g}")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class LiteralRun:
    """Theorem 1 where all its hypotheses hold: the plan, the run, and its conclusions as certificates."""

    case: Case
    conditions: Conditions
    walk: Walk
    certificates: tuple[Certificate, ...]

    def __str__(self) -> str:
        head = (
            f"{self.case.num_heads:,.0f} heads, step size {self.case.step_size:.4g}, "
            f"{self.case.num_steps:,} steps: "
            f"certified mean loss {self.case.train_bound():.4g}, measured {self.walk.mean_loss:.4g}"
        )
        return "\n".join([head, *map(str, self.certificates)])


class Ray:
    """Targets θ_0 + cθ_* along one direction, for any number of heads."""

    def __init__(
        self,
        start: MultiHead,
        dataset: Dataset,
        direction: Direction,
        token_radius: float | None = None,
        loss: Loss = LOGISTIC,
    ):
        self.start, self.dataset, self.direction = start, dataset, direction
        self.shape = Shape.of(dataset, token_radius, decoder=start.decoder, loss=loss)
        self.start_readout = targets.readout_norm(start, dataset)

    def case(
        self,
        num_heads: float,
        scale: float,
        num_steps: float,
        loss: float = 0.0,
        start_loss: float = 0.0,
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

    def start_loss(self, num_heads: float) -> float:
        """The loss at the start."""
        return targets.train_loss(
            targets.with_heads(self.start, num_heads), self.dataset, self.shape.loss
        )

    def scale_for_loss(self, level: float, num_heads: float) -> float:
        """The smallest scale c with train loss at most `level`; infinite where none is found."""
        model, grid = targets.with_heads(self.start, num_heads), np.geomspace(1e-3, 1e4, 71)

        def loss(scales):
            return targets.losses_along(
                self.direction, scales, model, self.dataset, self.shape.loss
            )

        below = np.flatnonzero(loss(grid) <= level)
        if not len(below):
            return math.inf
        if below[0] == 0:
            return float(grid[0])
        low, high = math.log(grid[below[0] - 1]), math.log(grid[below[0]])
        root = optimize.brentq(
            lambda x: float(loss(np.array([math.exp(x)]))[0]) - level, low, high, xtol=1e-12
        )
        return math.exp(root) * (1 + 1e-10)

    @cached_property
    def features(self) -> Features | None:
        """The tangent features at the start, which do not depend on the number of heads."""
        return Features.of(self.start, self.dataset)

    def best(
        self, num_heads: float, num_steps: int, step_size: float | None = None
    ) -> Threshold | None:
        """The target and the step size with the smallest bound of Theorem 1′; None where its hypotheses fail."""
        model = targets.with_heads(self.start, num_heads)
        start_loss = self.start_loss(num_heads)
        largest = math.sqrt(
            LARGEST * math.sqrt(num_heads) / self.shape.b3(self.start_readout) / 2
        )  # D^2 = 2 scale^2
        terms = Terms(
            self.shape,
            num_heads,
            num_steps,
            math.nan,
            math.nan,
            start_loss,
            math.nan,
            self.start_readout,
            step_size,
            math.nan,
            self.features,
        )
        found = least_bound(terms, lambda scales: self._along(scales, model), min(largest, 1e4))
        if found is None:
            return None
        bound, scale, step = found
        loss = float(self._along(np.array([scale]), model)[0][0])
        case = replace(self.case(num_heads, scale, num_steps, loss, start_loss), step_size=step)
        return Threshold(num_heads, scale, self.direction, case, bound)

    def best_scale(self, num_heads: float, num_steps: int, step_size: float) -> list[float]:
        """The scale with the smallest bound of Theorem 1′ for a given plan; none where its hypotheses fail."""
        found = self.best(num_heads, num_steps, step_size)
        return [] if found is None else [found.scale]

    def _along(self, scales: np.ndarray, model: MultiHead) -> tuple[np.ndarray, np.ndarray]:
        """Loss and readout norm of the targets at these scales."""
        U, V = (
            np.asarray(heads.readout, np.float64)
            for heads in (self.start.heads, self.direction.heads)
        )
        V = V / math.sqrt(model.num_heads)
        squares = (np.sum(a * b, axis=tuple(range(1, a.ndim))) for a, b in ((U, U), (U, V), (V, V)))
        c = scales[:, None]
        first, mixed, last = squares
        readouts = np.sqrt(np.max(first + 2 * c * mixed + c**2 * last, axis=1)) * self.shape.repeat
        return targets.losses_along(
            self.direction, scales, model, self.dataset, self.shape.loss
        ), readouts


def heads_to_realize(
    ray: Ray, *, num_steps: int, need: Callable[[Case], float], level: float | None = None
) -> Threshold:
    r"""Smallest $H \ge$ `need(case)` for the target on the ray with $\hat L\le$ `level` (by default $1/K$).

    $H$ is a real number, found by bisection in $\log H$; the target is chosen again for every $H$.
    """
    level = 1 / num_steps if level is None else level

    def enough(log_heads: float) -> Threshold | None:
        H = math.exp(log_heads)
        scale = ray.scale_for_loss(level, H)
        if not math.isfinite(scale):
            return None
        case = ray.case(H, scale, num_steps, level, ray.start_loss(H))
        return Threshold(H, scale, ray.direction, case, math.nan) if need(case) <= H else None

    found = _bisect(enough, 1e-6)
    if found is None:
        raise ValueError(
            f"no number of heads was found, up to {MOST_HEADS:g} in the shares of the start, that "
            "makes a target along "
            f"{ray.direction.name} with train loss {level:.3g} meet the condition; ask for a "
            "larger loss, or use a "
            "start whose scores cancel"
        )
    return found


@check(
    start=is_multi_head,
    dataset=is_dataset,
    directions=many(is_direction),
    certified=positive,
    num_steps=whole() | many(whole()),
    token_radius=positive | none,
    loss=is_loss,
)
def smallest_heads(
    start: MultiHead,
    dataset: Dataset,
    directions: Sequence[Direction],
    *,
    certified: float = 0.5,
    num_steps: int | Sequence[int] = STEPS,
    token_radius: float | None = None,
    loss: str | Loss = "logistic",
) -> Threshold:
    r"""Smallest $H$ at which Theorem 1′ certifies a mean train loss below `certified`.

    The theorem holds for every target, so the best direction, scale and number of steps may be
    chosen. Of two plans with nearly the same number of heads the one with fewer steps is returned.
    """
    require_scope(start)
    steps = (num_steps,) if isinstance(num_steps, int) else tuple(num_steps)
    best: Threshold | None = None
    for direction in directions:
        ray = Ray(start, dataset, direction, token_radius, get_loss(loss))
        for K in sorted(steps):
            found = _bisect(
                lambda x, K=K, ray=ray: _certifies(ray, math.exp(x), K, certified), 1e-4
            )
            if found is not None and (best is None or found.num_heads < 0.995 * best.num_heads):
                best = found
    if best is None:
        raise ValueError(
            f"no number of heads was found, up to {MOST_HEADS:g}, that certifies a mean loss below "
            f"{certified:g} "
            f"within {max(steps):,} steps on these data; allow more steps or a larger loss"
        )
    return best


def _certifies(ray: Ray, num_heads: float, num_steps: int, certified: float) -> Threshold | None:
    found = ray.best(num_heads, num_steps)
    return found if found is not None and found.bound < certified else None


def _bisect(goal: Callable[[float], Threshold | None], accuracy: float) -> Threshold | None:
    """The smallest x in [0, log MOST_HEADS] that reaches the goal, which larger x reach too.

    Where the largest x fails (copies of heads whose scores do not cancel: the start gets worse with
    their number) the first power of ten that reaches the goal is taken, and x is found below it.
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


def fixed_plan(ray: Ray, variant: str, certified: float) -> Threshold:
    r"""Smallest $H$, with step size and steps, at which a version of Theorem 1 certifies a mean loss by (4).

    With the step size at its limit (4) is 3.25 times the target's loss after $D^2/(\eta\hat
    L(\theta))$ steps: so the target's loss is certified/3.25, and the steps follow.
    """
    level = certified / 3.25
    found = heads_to_realize(
        ray, num_steps=1, level=level, need=lambda case: heads_needed(case, variant)
    )
    heads = whole_heads(found.num_heads, ray.start)
    case = ray.case(heads, ray.scale_for_loss(level, heads), 1, level, ray.start_loss(heads))
    step = largest_step(replace(case, num_steps=0), variant)
    steps = math.ceil(case.distance**2 / (step * level))
    case = replace(case, num_steps=steps, step_size=min(step, case.distance**2 / (steps * level)))
    return Threshold(heads, case.distance / math.sqrt(2), ray.direction, case, case.train_bound())


def whole_heads(num_heads: float, start: MultiHead) -> float:
    """That many heads or a few more, rounded up to whole numbers with the same count of each kind."""
    return float(start.num_classes * math.ceil(num_heads / start.num_classes))


def run_literally(
    start: MultiHead,
    dataset: Dataset,
    threshold: Threshold,
    token_radius: float | None = None,
    *,
    variant: str | None = None,
) -> LiteralRun:
    """Run at the threshold, rounded up to whole heads in the shares of `start`, and check every conclusion.

    By default those of Theorem 1′ with the threshold's step size; with `variant` those of Theorem 1
    in that version, with the largest step size that it allows.
    """
    require_scope(start)
    counts = np.ceil(start.multiplicity * (threshold.num_heads / start.num_heads))
    model = type(start)(start.key_query, start.readout, counts, start.decoder, start.exponent)
    loss = threshold.case.shape.loss
    target = targets.along(threshold.direction, threshold.scale, model, dataset, loss)
    K = int(threshold.case.num_steps)
    case = case_of(model, dataset, target, num_steps=K, token_radius=token_radius, loss=loss)
    step = threshold.case.step_size if variant is None else largest_step(case, variant)
    case = replace(case, step_size=step)
    walk = follower.follow(model, dataset, step_size=step, num_steps=K, targets=[target], loss=loss)
    if variant is None:
        conditions = sharp_conditions(case, Features.of(model, dataset))
        return LiteralRun(case, conditions, walk, sharp_conclusions(case, walk, conditions))
    versions = training_conditions(case)
    (conditions,) = (version for version in versions if version.variant == variant)
    return LiteralRun(case, conditions, walk, conclusions(case, walk, versions))


@cache
def literal_runs(effort: Effort) -> tuple[LiteralRun, ...]:
    """Runs where all hypotheses of our Theorem 1 hold and its bound is not vacuous."""
    return tuple(
        _small_run(problem, OURS) for problem in small_problems(effort.seed, effort.count(100, 1))
    )


@cache
def explicit_runs(effort: Effort) -> tuple[LiteralRun, ...]:
    """Runs at the head count and step size of Section 6.1's route."""
    runs = tuple(
        _small_run(problem, EXPLICIT)
        for problem in small_problems(effort.seed, effort.count(100, 1))
    )
    for run in runs:
        if not run.conditions.holds:
            raise AssertionError(
                f"the explicit hypotheses fail where they should hold: {run.conditions.missing}"
            )
    return runs


@cache
def sharp_runs(effort: Effort) -> tuple[LiteralRun, ...]:
    """Runs at the smallest number of heads for which Theorem 1′ certifies a loss, over data, directions and goals."""
    return tuple(_sharp_run(effort.seed + k, k) for k in range(effort.count(200, 4)))


def _small_run(problem: Problem, variant: str) -> LiteralRun:
    mixture, data, fresh = problem
    start = starts.first_phase(fresh, 2)
    ray = Ray(start, data, targets.mixture_direction(start, mixture), mixture.token_radius)
    if variant == OURS:
        found = fixed_plan(ray, OURS, 0.5)
    else:
        found = heads_to_realize(ray, num_steps=300, need=lambda case: heads_needed(case, variant))
    return run_literally(start, data, found, mixture.token_radius, variant=variant)


def _sharp_run(seed: int, k: int) -> LiteralRun:
    mixture, data, fresh = small_problem(seed)
    start = starts.first_phase(fresh, 2)
    direction = initialization.good_start(start, data).direction if k % 2 else None
    direction = direction or targets.mixture_direction(start, mixture)
    goal, steps = (0.55, 0.4, 0.3)[k % 3], (100, 300, 1000)[k // 3 % 3]
    found = smallest_heads(
        start, data, [direction], certified=goal, num_steps=steps, token_radius=mixture.token_radius
    )
    return run_literally(start, data, found, mixture.token_radius)
