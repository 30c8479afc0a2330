r"""Theorem 1′: Theorem 1 with its constants left free, for any $\kappa<\pi^2/4$ and any step size that descends.

With $A=\sqrt\kappa/\sin\sqrt\kappa$, $B=\sqrt\kappa\cot\sqrt\kappa$, $\tau=\eta K\hat
L(\theta)/D^2$ and $\sigma=\eta\hat L(\theta_0)/D^2$ the iterates stay within $rD$ of the target,
$r^2=1+2A\tau+2(1-B)\sigma$. Proof: docs/theory/training.md. `Terms` works on arrays of cases, so
that the best of many cases is found at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from manyheads.measures import kernel as kernels
from manyheads.theory.deora2023 import training
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.training import Case, Conditions, step_at_most
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis, Verdict

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination
    from manyheads.theory.walk import Walk


# kappa below it, so that B > 0
LARGEST = math.pi**2 / 4
KAPPAS = np.concatenate([np.geomspace(1e-4, 0.1, 12, endpoint=False), np.linspace(0.1, 2.3, 45)])
ENLARGE = (
    # relative, for bounds computed from data: ten thousand times the float64 rounding here
    1e-9
)
# sequences whose tangent kernel is computed
EXACT_UP_TO = 3000


@dataclass(frozen=True)
class Features:
    r"""The tangent features at the start: $\sqrt{\lambda_{\max}(K_0)/n}$ and the largest norm of one."""

    top: float
    largest: float

    @classmethod
    def of(cls, start: MultiHead, dataset: Dataset) -> Features | None:
        """None for many sequences, whose kernel would be too large."""
        if dataset.num_examples > EXACT_UP_TO:
            return None
        K = kernels.tangent_kernel(start, dataset).matrix
        top = float(np.linalg.eigvalsh(K)[-1]) / len(K)
        return cls(
            math.sqrt(max(top, 0.0)) * (1 + ENLARGE),
            math.sqrt(float(K.diagonal().max())) * (1 + ENLARGE),
        )


@dataclass(frozen=True)
class Terms:
    """The quantities in the theorem; every field may be an array, and they are broadcast."""

    shape: Shape
    num_heads: Any
    num_steps: Any
    distance: Any
    target_loss: Any
    start_loss: Any
    target_readout: Any
    start_readout: Any
    step_size: Any
    kappa: Any
    features: Features | None = None

    @cached_property
    def constants(self):
        r"""$A$ and $B$."""
        root = np.sqrt(self.kappa)
        return root / np.sin(root), root / np.tan(root)

    @cached_property
    def times(self):
        r"""$\tau$ and $\sigma$."""
        square = np.square(self.distance)
        return (
            self.step_size * self.num_steps * self.target_loss / square,
            self.step_size * self.start_loss / square,
        )

    @cached_property
    def reach(self):
        r"""$r$: iterates stay within $rD$ of the target."""
        (A, B), (tau, sigma) = self.constants, self.times
        return np.sqrt(1 + 2 * A * tau + 2 * (1 - B) * sigma)

    @cached_property
    def radius(self):
        r"""$M$: no head's readout leaves this ball."""
        (A, B), (tau, sigma) = self.constants, self.times
        drift = (
            self.shape.drift(np.square(self.distance))
            * (0.5 + A * tau + sigma)
            / (B * np.sqrt(self.num_heads))
        )
        return np.maximum(self.target_readout, self.start_readout + drift)

    @cached_property
    def bend(self):
        r"""$g(M)/\sqrt H$, which bounds the Hessian of a score; $b_3=g$ for the logistic loss."""
        return self.shape.bend(self.radius) / np.sqrt(self.num_heads)

    @cached_property
    def smoothness(self):
        r"""The curvature along a step: $b_2(M)$, or less by the tangent kernel at the start."""
        loss = self.shape.loss
        worst = loss.lipschitz * self.bend + loss.smoothness * self.shape.features(self.radius) ** 2
        if self.features is None:
            return worst
        away = (1 + self.reach) * self.distance
        last = (
            self.step_size
            * self.start_loss
            * loss.self_bound
            * (self.features.largest + self.bend * away)
        )
        near = (self.features.top + self.bend * (away + last)) ** 2
        return np.minimum(worst, loss.lipschitz * self.bend + loss.smoothness * near)

    @cached_property
    def root_heads(self):
        r"""The $\sqrt H$ required, with M at the case's own number of heads."""
        return np.square(self.reach * self.distance) * self.shape.b3(self.radius) / self.kappa

    @cached_property
    def bound(self):
        """The certified mean loss."""
        A, B = self.constants
        K = self.num_steps
        rest = np.square(self.distance) / (2 * B * self.step_size * K)
        return A / B * self.target_loss + rest + (1 - B) / B * self.start_loss / K

    @property
    def holds(self):
        """Whether the hypotheses hold."""
        enough = np.sqrt(self.num_heads) >= self.root_heads
        return enough & (self.step_size * self.smoothness <= 1) & (np.asarray(self.distance) > 0)


def terms_of(case: Case, kappa: Any, features: Features | None) -> Terms:
    return Terms(
        case.shape,
        case.num_heads,
        case.num_steps,
        case.distance,
        case.target_loss,
        case.start_loss,
        case.target_readout,
        case.start_readout,
        case.step_size,
        kappa,
        features,
    )


def best_kappa(case: Case, features: Features | None) -> float:
    r"""The $\kappa$ with the smallest bound among those whose hypotheses hold; else the one nearest to that."""
    with np.errstate(all="ignore"):
        terms = terms_of(case, KAPPAS, features)
        missing = np.maximum(
            terms.root_heads / math.sqrt(case.num_heads), case.step_size * terms.smoothness
        )
        first = int(np.argmax(missing <= 1))
        if not missing[first] <= 1:
            lacking = np.where(np.isfinite(missing), missing, math.inf)
            return float(KAPPAS[int(np.argmin(lacking))])
        if first == 0:
            return float(KAPPAS[0])
        low, high = KAPPAS[first - 1], KAPPAS[first]
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if terms_of(case, middle, features).holds else (middle, high)
    return float(high)


def sharp_conditions(case: Case, features: Features | None = None) -> Conditions:
    """Theorem 1′ on a case, with the best κ."""
    kappa = best_kappa(case, features)
    with np.errstate(all="ignore"):
        terms = terms_of(case, kappa, features)
        need, limit = float(terms.root_heads), 1 / float(terms.smoothness)
        reach, radius, bound = float(terms.reach), float(terms.radius), float(terms.bound)
    count = f"{math.ceil(need**2):,}" if need**2 < 1e9 else f"{need**2:.3g}"
    heads = Hypothesis.at_least(
        f"enough heads: sqrt(H) >= (r^2/kappa) D^2 b3(M), kappa = {kappa:.3g}",
        math.sqrt(case.num_heads),
        need,
        f"use {count} heads or more, a smaller step size, or a target nearer to the start",
    )
    moved = Hypothesis.at_least(
        "the target differs from the start: D > 0", case.distance, 1e-300, "choose another target"
    )
    which = (
        "1/b2(M)"
        if features is None
        else "1/b2(M), or its bound by the tangent kernel at the start"
    )
    step = step_at_most(f"descent: eta <= {which}", case.step_size, limit)
    return Conditions(OURS, (moved, heads, step), bound, limit, need**2, radius=radius, reach=reach)


def least_bound(
    terms: Terms, along: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], largest: float
) -> tuple[float, float, float] | None:
    """The smallest bound over targets, step sizes and κ, with its scale and step size; None where none is certified.

    `along(scales)` gives the loss and the readout norm of the targets at these scales, at most
    `largest` (their distance is sqrt(2) times the scale). A step size that `terms` has is kept.
    """
    shape, features = terms.shape, terms.features
    square = (
        shape.features(terms.start_readout) ** 2 if features is None else features.top**2 + 1e-300
    )
    top = 1 / shape.loss.smoothness / square
    free = terms.step_size is None
    axes = [np.geomspace(1e-3 * largest, largest, 25), top * np.geomspace(1e-6, 1, 37), KAPPAS[::3]]
    best = None
    # a coarse grid, then finer ones around the best
    for _ in range(5):
        if not free:
            axes[1] = np.array([terms.step_size])
        scales, steps, kappas = axes
        losses, readouts = along(scales)
        with np.errstate(all="ignore"):
            grid = replace(
                terms,
                distance=math.sqrt(2) * scales[:, None, None],
                target_loss=losses[:, None, None],
                target_readout=readouts[:, None, None],
                step_size=steps[:, None],
                kappa=kappas,
            )
            bounds = np.where(grid.holds, grid.bound, math.inf)
        at = np.unravel_index(int(np.argmin(bounds)), bounds.shape)
        if np.isfinite(bounds[at]) and (best is None or bounds[at] < best[0]):
            best = float(bounds[at]), float(scales[at[0]]), float(steps[at[1]])
        elif best is None:
            return None
        axes = [_between(axis, int(i)) for axis, i in zip(axes, at, strict=True)]
    return best


def _between(axis: np.ndarray, i: int) -> np.ndarray:
    """A finer grid between the neighbors of an entry, that entry included."""
    low, high = axis[max(i - 1, 0)], axis[min(i + 1, len(axis) - 1)]
    return np.unique([*np.geomspace(low, high, 9), axis[i]])


def sharp_conclusions(
    case: Case, walk: Walk, conditions: Conditions, index: int = 0
) -> tuple[Certificate, ...]:
    """The conclusions of Theorem 1′ on a run, for the target number `index`."""
    noise, mean, D, r = (
        training.rounding(case, walk),
        walk.mean_loss,
        case.distance,
        conditions.reach,
    )
    claims = (
        (
            "the mean train loss is at most (A/B) L(theta) + D^2/(2 B eta K) + (1/B - 1) "
            "L(theta_0)/K",
            mean,
            conditions.bound,
            noise,
        ),
        ("every step descends: " + training.DEFECT, training.descent_defect(walk), 0.0, noise),
        ("iterates stay within r D of the target", walk.target_distance[index].max(), r * D, 0.0),
        ("iterates stay within (1 + r) D of the start", walk.distance.max(), (1 + r) * D, 0.0),
        ("no head's readout norm exceeds M", walk.readout_norm.max(), conditions.radius, 0.0),
    )
    return tuple(
        Certificate(
            "thm1.sharp",
            claim,
            float(measured),
            (Bound(OURS, bound, conditions.hypotheses),),
            noise=noise,
            noise_source="rounding of the loss" if noise else "",
            details={"target": str(walk.targets[index])},
        )
        for claim, measured, bound, noise in claims
    )


def certify_sharp(work: Examination) -> list[Certificate]:
    """For the target with the smallest bound if the theorem applies, else for the one that misses it by least."""
    walk, features = work.shared(training.repetition), Features.of(work.run.start, work.dataset)
    found = []
    for index, target in enumerate(walk.targets):
        case = training.case_of(
            work.run.start,
            work.dataset,
            target,
            num_steps=work.num_steps,
            step_size=work.step_size,
            token_radius=work.radius,
            start_loss=float(walk.loss[0]),
            loss=work.loss,
        )
        conditions = sharp_conditions(case, features)
        lacking = 0.0 if conditions.holds else max(h.factor for h in conditions.hypotheses)
        useless = lacking > 0 and not conditions.bound < work.loss.at(0.0)
        found.append((useless, lacking, conditions.bound, index, case, conditions))
    *_, index, case, conditions = min(found, key=lambda entry: entry[:4])
    return list(sharp_conclusions(case, walk, conditions, index))


def check_sharp(effort: Effort) -> Finding:
    """Runs at the smallest number of heads and at the largest step size that the theorem allows."""
    # which searches with these conditions
    from manyheads.theory.deora2023 import regime

    tally = Tally()
    runs = regime.sharp_runs(effort)
    for run in runs:
        tally.broken += sum(
            c.verdict is not Verdict.HOLDS for c in run.certificates if c.statement == "thm1.sharp"
        )
        tally.add(run.walk.mean_loss, run.conditions.bound)
    few, many = (pick(run.case.num_heads for run in runs) for pick in (min, max))
    return tally.finding(
        f"{len(runs)} runs at {few:,.0f} to {many:,.0f} heads, each at its limit, all conclusions "
        "hold"
    )


THEOREM_1_SHARP = Statement(
    id="thm1.sharp",
    place="ours, Theorem 1′",
    title="training loss, with free constants",
    ours="for any κ < π²/4, A = √κ/sin√κ, B = √κ cot√κ, τ = ηK L̂(θ)/D², σ = η L̂(θ_0)/D², r² = 1 + 2Aτ + 2(1−B)σ and "
    "M ≥ max(‖U_θ‖_{2,∞}, ‖U_0‖_{2,∞} + D²√T R(½ + Aτ + σ)/(B√H)): √H ≥ (r²/κ) D² b3(M) and η ≤ "
    "1/b2(M) imply descent "
    "at every step, ‖θ_k−θ‖ ≤ rD, ‖θ_k−θ_0‖ ≤ (1+r)D, ‖U_k‖_{2,∞} ≤ M and mean loss ≤ (A/B)L̂(θ) + "
    "D²/(2BηK) + "
    "((1−B)/B) L̂(θ_0)/K. In b2, b1²/4 may be ¼(√(λ_max(K_0)/n) + (b3/√H)ρ)² with K_0 the tangent "
    "kernel at the start "
    "and ρ = (1+r)D + η L̂(θ_0)(max_i‖∇Φ̃_i(θ_0)‖ + (b3/√H)(1+r)D)",
    proof="docs/theory/training.md#theorem-1-sharp",
    remark="runs at the smallest number of heads whose bound is below a goal, with the matching step size",
    check=check_sharp,
    about=certify_sharp,
    tightness=0.3,
    aliases=("theorem1-sharp", "theorem-1-prime"),
    used_by=("plan", "certify"),
)
