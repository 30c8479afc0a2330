"""Section 6.2, (19) to (22): how far a gradient step moves two points, or a run and its leave-one-out twin, apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.theory import walk as follower
from manyheads.theory.deora2023 import convexity
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.training import loop
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.training.loop import View


# points on the segment between twins
GRID = 9


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


def _place(view: View) -> tuple:
    """The displacement of a step, and the loss of each sequence."""
    return view.displacement, view.problem.method.loss.value(view.scores * view.objective.labels)


def _beside(view: View, path) -> tuple:
    """The displacement of a step of the twin, and its loss on the segment from the run at the same step."""
    problem, run = view.problem, jax.tree.map(lambda leaf: leaf[view.row], path)

    def between(share):
        place = jax.tree.map(
            lambda o, x, y: o + (x + share * (y - x)), problem.start, run, view.displacement
        )
        return problem.objective.loss_and_gradient(
            place, problem.sample_weight, loss=problem.method.loss
        )[0]

    return view.displacement, jax.lax.map(between, jnp.linspace(0.0, 1.0, GRID))


def _squares(path) -> np.ndarray:
    """Squared norms of arrays (steps, classes, ...)."""
    return (path**2).reshape(*path.shape[:2], -1).sum(-1)


def twin_steps(
    start: MultiHead, data: Dataset, index: int, step_size: float, length: int, shape: Shape
) -> list[Step]:
    """Every step of a run beside its leave-one-out twin."""
    n, H = data.num_examples, start.num_heads
    without = np.where(np.arange(n) == index, 0.0, 1 / n)
    plan: dict[str, Any] = {"step_size": step_size, "num_steps": length}
    run = follower.follow(start, data, **plan, observe={"place": loop.Observer(_place)})
    a, losses = run.observed["place"]
    beside = {"beside": loop.Observer(_beside, None, (a,))}
    b, on_segment = follower.follow(
        start, data, **plan, sample_weight=without, observe=beside
    ).observed["beside"]
    left_out = losses[:, index]
    apart = np.sqrt(sum(_squares(x - y) @ start.multiplicity for x, y in zip(a, b, strict=True)))

    def norms(path):
        u = _squares(np.asarray(start.readout) + path.readout)
        w = _squares(np.asarray(start.key_query) + path.key_query)
        return np.sqrt(u.max(1)), np.sqrt((u + w).max(1))

    (xa, wa), (xb, wb) = norms(a), norms(b)
    steps = []
    for k in range(length):
        x, whole, root = max(xa[k], xb[k]), max(wa[k], wb[k]), math.sqrt(H)
        top, ends = on_segment[k].max(), on_segment[k][[0, -1]]
        rate, printed_rate = step_size * shape.b3(x) / root, step_size * shape.beta3(whole) / root
        b2, beta2 = shape.b2(x, H), shape.beta2(whole, H)
        steps.append(
            Step(
                before=apart[k],
                after=apart[k + 1],
                top_loss=top,
                end_loss=ends.max(),
                sum_loss=ends.sum(),
                rate=rate,
                printed_rate=printed_rate,
                push=step_size * shape.b1(xa[k]) / n * left_out[k],
                printed_push=step_size * shape.beta1(wa[k]) / n * left_out[k],
                expansion=max(1 + rate * top, step_size * b2 - 1),
                printed_expansion=max(1 + printed_rate * top, step_size * beta2),
                kappa=rate / step_size * apart[k] ** 2,
                printed_kappa=printed_rate / step_size * apart[k] ** 2,
                small_step=step_size * b2 <= 1,
            )
        )
    return steps


@cache
def leave_one_out_runs(effort: Effort) -> tuple[Step, ...]:
    """Steps of leave-one-out twins on the mixture: few heads with a small step, and a fast run with a large one."""
    mixture, data, fresh = small_problem(effort.seed)
    shape = Shape(4, 6, mixture.token_radius)
    steps: list[Step] = []
    for heads, eta in ((2, 0.2), (64, 0.2), (2, 2.0)):
        start = starts.first_phase(fresh, heads)
        for i in range(effort.count(8, 2)):
            steps += twin_steps(start, data, i, eta, effort.count(150, 60), shape)
    return tuple(steps)


def check_expansiveness(effort: Effort) -> Finding:
    """(19): random pairs of points, steps up to three times 1/b2."""
    tally, s = Tally(), convexity.segments_for(effort)
    for i, (length, eta) in enumerate(zip(s.length, s.step, strict=True)):
        top = s.loss[i].max()
        ours = max(1 + eta * s.kappa[i] / length**2 * top, eta * s.smoothness[i] - 1)
        printed = max(1 + eta * s.printed_kappa[i] / length**2 * top, eta * s.printed_smoothness[i])
        tally.add(s.expanded[i], ours * length, printed * length, noise=1e-13 * length)
    worst = max(0.0, np.max(s.expanded / s.length))
    return tally.finding(f"largest expansion factor of a step between random points {worst:.4f}")


EXPANSIVENESS = Statement(
    id="eq19",
    place="Section 6.2, Eq. (19)",
    title="expansiveness of one gradient step",
    printed="‖G(θ) − G(θ')‖ ≤ max_α{(1 + ηβ3(θ_α)L̂(θ_α)/√H) ∨ ηβ2(θ_α)} ‖θ−θ'‖, G(θ) = θ − η∇L̂(θ)",
    corrected="as printed",
    ours="‖G(θ) − G(θ')‖ ≤ max_α max(1 + ηb3 L̂/√H, ηb2 − 1) ‖θ−θ'‖",
    proof="docs/theory/generalization.md#expansiveness",
    remark="along leave-one-out runs descent was non-expansive; negative curvature shows between random points",
    check=check_expansiveness,
    tightness=0.98,
    used_by=("eq20",),
)


def check_recursion(effort: Effort) -> Finding:
    """(20)."""
    tally = Tally()
    for step in leave_one_out_runs(effort):
        printed = step.printed_expansion * step.before + step.printed_push
        tally.add(step.after, step.expansion * step.before + step.push, printed)
    return tally.finding("distance of the twins after a step over the right-hand side")


RECURSION = Statement(
    id="eq20",
    place="Section 6.2, Eq. (20)",
    title="one step of the leave-one-out distance",
    printed="‖θ_{k+1}−θ^{-i}_{k+1}‖ ≤ max_α{(1 + ηβ3 L̂^{-i}/√H) ∨ ηβ2} ‖θ_k−θ_k^{-i}‖ + (ηβ1(θ_k)/n) ℓ_i(θ_k)",
    corrected="as printed",
    ours="with b1, b2, b3",
    proof="docs/theory/generalization.md#leave-one-out-recursion",
    remark="along leave-one-out runs",
    check=check_recursion,
    tightness=0.95,
    used_by=("eq21",),
)


def check_small_step(effort: Effort) -> Finding:
    """(21) as corrected, for η ≤ 1/b2."""
    tally = Tally()
    for step in leave_one_out_runs(effort):
        if step.small_step:
            printed = (1 + step.printed_rate * step.top_loss) * step.before + step.printed_push
            tally.add(
                step.after, (1 + step.rate * step.top_loss) * step.before + step.push, printed
            )
    return tally.finding("distance of the twins after a step over the right-hand side, η ≤ 1/b2")


SMALL_STEP = Statement(
    id="eq21",
    place="Section 6.2, Eq. (21)",
    title="the recursion when the step size is small",
    printed="‖θ_{k+1}−θ^{-i}_{k+1}‖ ≤ (1 + ηβ̃3/√H) max_α L̂^{-i} ‖θ_k−θ_k^{-i}‖ + (ηβ1/n) ℓ_i(θ_k)",
    corrected="(1 + (ηβ̃3/√H) max_α L̂^{-i}) ‖θ_k−θ_k^{-i}‖ + (ηβ1/n) ℓ_i(θ_k): the parenthesis is misplaced",
    ours="with b1(M), b3(M), for η ≤ 1/b2(M)",
    proof="docs/theory/generalization.md#leave-one-out-recursion",
    remark="along leave-one-out runs",
    check=check_small_step,
    tightness=0.95,
    errata=("E10",),
    used_by=("eq22",),
)


def check_glqc_recursion(effort: Effort) -> Finding:
    """(22): the largest loss on the segment replaced by the ends."""
    tally = Tally()
    for step in leave_one_out_runs(effort):
        if not step.small_step or step.kappa >= math.pi**2:
            continue
        ours = (
            1 + step.rate * step.end_loss * convexity.glqc_factor(step.kappa)
        ) * step.before + step.push
        printed = None
        if step.printed_kappa <= 0.5:
            printed = (
                1 + 4 / 3 * step.printed_rate * step.sum_loss
            ) * step.before + step.printed_push
        tally.add(step.after, ours, printed)
    return tally.finding("distance of the twins after a step over the right-hand side")


GLQC_RECURSION = Statement(
    id="eq22",
    place="Section 6.2, Eq. (22)",
    title="the recursion after GLQC",
    printed="‖θ_{k+1}−θ^{-i}_{k+1}‖ ≤ (1 + α_{k,i}) ‖θ_k−θ_k^{-i}‖ + (ηβ̃1/n) ℓ_i(θ_k), α_{k,i} = "
    "(4ηβ̃3/(3√H))(L̂^{-i}(θ_k) + L̂^{-i}(θ_k^{-i}))",
    corrected="as printed",
    ours="α_{k,i} = (ηb3(M)/√H)(L̂^{-i}(θ_k) ∨ L̂^{-i}(θ_k^{-i}))/cos(√κ/2), κ = (b3(M)/√H)‖θ_k−θ_k^{-i}‖² < π²",
    proof="docs/theory/generalization.md#leave-one-out-recursion",
    remark="along leave-one-out runs",
    check=check_glqc_recursion,
    tightness=0.95,
    used_by=("stability",),
)
