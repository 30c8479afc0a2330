r"""Theorem 1: its hypotheses on a concrete case, in three versions side by side, and its conclusions on a run.

*Printed*: (3) and the order of $\rho$ with their hidden constants taken as 1, and marked so.
*Explicit*: the route of Section 6.1 with its own constants. *Ours*: docs/theory/training.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from manyheads.model.loss import LOGISTIC, Loss
from manyheads.theory import decomposition, provenance, targets
from manyheads.theory import walk as follower
from manyheads.theory.deora2023 import convexity, initialization
from manyheads.theory.deora2023.constants import HEADS_TRAINING, Shape
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import (
    EXPLICIT,
    OURS,
    PRINTED,
    Bound,
    Certificate,
    Hypothesis,
    Verdict,
)

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination
    from manyheads.theory.targets import Target
    from manyheads.theory.walk import Walk


@dataclass(frozen=True)
class Case:
    """The numbers in Theorems 1 and 2: data, start, target and plan."""

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
        return self.shape.radius(
            self.start_readout, self.target_readout, self.distance, self.num_heads
        )

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
    radius: float = math.nan  # of the readouts along the run, M
    reach: float = math.nan  # iterates stay within this many D of the target

    @property
    def holds(self) -> bool:
        return not self.missing

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
    loss: Loss = LOGISTIC,
) -> Case:
    """Collect the numbers of a case. `token_radius` is R where it is known; else the largest norm seen is assumed."""
    return Case(
        Shape.of(dataset, token_radius, decoder=start.decoder, loss=loss),
        start.num_heads,
        num_steps,
        target.distance,
        target.loss,
        target.readout_norm,
        target.parameter_norm,
        targets.train_loss(start, dataset, loss) if start_loss is None else start_loss,
        targets.readout_norm(start, dataset),
        step_size,
    )


def step_at_most(text: str, step_size: float, limit: float) -> Hypothesis:
    """A limit on the step size."""
    return Hypothesis.at_most(text, step_size, limit, f"use a step size of {limit:.3g} or less")


def step_limits(case: Case, variant: str = OURS) -> dict[str, float]:
    """What a version of Theorem 1 allows as step size, by condition."""
    shape, D, H = case.shape, case.distance, case.num_heads
    if variant == OURS:
        limits = {"descent: eta <= 1/b2(M)": 1 / shape.b2(case.radius, H)}
    elif variant == EXPLICIT:
        rho = shape.rho_explicit(case.target_norm, D, H)
        limits = {"eta <= 1": 1.0, "descent: eta <= 1/rho, rho of Section 6.1": _over(1.0, rho)}
    else:
        rho = shape.rho_printed(case.target_norm, D)
        limits = {
            "eta <= 1": 1.0,
            "descent: eta <= 1/rho, rho of the printed order with constant 1": _over(1.0, rho),
        }
    return limits | {
        "eta <= D^2/(K L(theta))": _over(D**2, case.num_steps * case.target_loss),
        "eta <= D^2/L(theta_0)": _over(D**2, case.start_loss),
    }


def largest_step(case: Case, variant: str = OURS) -> float:
    """The largest step size that a version of Theorem 1 allows."""
    return float(np.min(list(step_limits(case, variant).values())))


def heads_needed(case: Case, variant: str = OURS, constant: float = HEADS_TRAINING) -> float:
    """The number of heads that a version requires on this case (with M at the case's own number of heads)."""
    if variant == OURS:
        return (constant * case.distance**2 * case.shape.b3(case.radius)) ** 2
    if variant == EXPLICIT:
        return case.shape.heads_explicit(case.target_norm, case.distance) ** 2
    return case.shape.heads_printed(case.target_norm, case.distance) ** 2


def training_conditions(case: Case) -> tuple[Conditions, Conditions, Conditions]:
    """The printed, the explicit and our version of Theorem 1 on a case; `case.step_size` is the step size used."""
    return _conditions(case, PRINTED), _conditions(case, EXPLICIT), _conditions(case, OURS)


HEADS_FORMULA = {
    PRINTED: "(3): sqrt(H) >= d sqrt(T) R^5 |theta|_{2,inf} D^3, constant read as 1",
    EXPLICIT: "sqrt(H) >= 18 D^2 beta3(|theta|_{2,inf} + 3D)",
    OURS: "sqrt(H) >= (40/9) D^2 b3(M)",
}


def _conditions(case: Case, variant: str) -> Conditions:
    need = heads_needed(case, variant)
    count = f"{math.ceil(need):,}" if need < 1e9 else f"{need:.3g}"
    remedy = f"use {count} heads or more, or a target nearer to the start"
    text = f"enough heads: {HEADS_FORMULA[variant]}"
    heads = Hypothesis.at_least(text, math.sqrt(case.num_heads), math.sqrt(need), remedy)
    text = "the target differs from the start: D > 0"
    moved = Hypothesis.at_least(text, case.distance, 1e-300, "choose another target")
    steps = [
        step_at_most(text, case.step_size, limit)
        for text, limit in step_limits(case, variant).items()
    ]
    step = largest_step(case, variant)
    outside = () if variant == OURS else case.shape.unprinted()
    hypotheses = (moved, heads, *steps, *outside)
    return Conditions(variant, hypotheses, case.train_bound(), step, need, variant == PRINTED)


def _over(top: float, bottom: float) -> float:
    """top/bottom; infinite if the bottom is 0, and NaN if it is NaN."""
    return math.inf if bottom <= 0 else top / bottom


def conclusions(
    case: Case, walk: Walk, versions: Sequence[Conditions], index: int = 0
) -> tuple[Certificate, ...]:
    """The conclusions of Theorem 1 on a run, for the target number `index`."""
    printed, explicit, ours = versions
    noise, mean, D = rounding(case, walk), walk.mean_loss, case.distance

    def certificate(statement, claim, measured, bound, noise=0.0, wide=None):
        bounds = [Bound(ours.variant, bound, ours.hypotheses)]
        if wide is not None:
            bounds.insert(0, Bound(explicit.variant, wide, explicit.hypotheses))
            bounds.insert(0, Bound(printed.variant, wide, printed.hypotheses, up_to_constant=True))
        source = "rounding of the loss" if noise else ""
        return Certificate(
            statement, claim, float(measured), tuple(bounds), noise=noise, noise_source=source
        )

    return (
        certificate("descent", f"every step descends: {DEFECT}", descent_defect(walk), 0.0, noise),
        certificate(
            "iterates",
            "iterates stay within 2D of the target",
            walk.target_distance[index].max(),
            2 * D,
            wide=3 * D,
        ),
        certificate(
            "iterates",
            "iterates stay within 3D of the start",
            walk.distance.max(),
            3 * D,
            wide=4 * D,
        ),
        certificate(
            "thm1", "no head's readout norm exceeds M", walk.readout_norm.max(), case.radius
        ),
        certificate(
            "thm1", "the last train loss is at most the mean", walk.loss[-1], mean, noise, mean
        ),
        certificate(
            "thm1",
            "the mean train loss is at most 2 L(theta) + 5 D^2/(4 eta K)",
            mean,
            case.train_bound(),
            noise,
            case.train_bound(),
        ),
    )


DEFECT = "largest L_{k+1} - L_k + (eta/2)|grad L_k|^2 is at most 0"


def descent_defect(walk: Walk) -> float:
    """The largest descent defect of a run: at most 0 where (13) holds at every step."""
    return float(np.max(np.diff(walk.loss) + walk.step_size / 2 * walk.gradient_norm[:-1] ** 2))


def rounding(case: Case, walk: Walk) -> float:
    r"""How far a computed loss can be off: the score adds terms of size $\sqrt{HT}R\|U\|_{2,\infty}$ that cancel."""
    size = (
        math.sqrt(case.num_heads * case.shape.num_tokens)
        * case.shape.token_radius
        * float(walk.readout_norm.max())
    )
    return 4 * np.finfo(float).eps * case.shape.loss.lipschitz * (1 + size)


def repetition(work: Examination) -> Walk:
    """The run repeated in float64, measured against every available target."""
    # which searches with these conditions
    from manyheads.theory.deora2023 import regime

    start, data, eta, K = work.run.start, work.dataset, work.step_size, work.num_steps
    loss, scales = work.loss, decomposition.SCALES
    along = partial(targets.along, start=start, dataset=data, loss=loss)
    work.progress("targets")
    points = [targets.proximal_target(start, data, step_size=eta, num_steps=K, loss=loss)]
    good, directions = work.shared(initialization.start_of), []
    if good.holds:
        directions.append(good.theta_star())
        points += [along(good.theta_star(), float(c)) for c in scales / good.margin]
    if work.mixture is not None and start.decoder == "full":
        direction = targets.mixture_direction(start, work.mixture)
        points += [along(direction, float(c)) for c in scales]
        points.append(targets.attention_target(start, data, work.mixture, loss=loss))
        directions.append(direction)
    for direction in directions:
        ray = regime.Ray(start, data, direction, work.radius, loss)
        points += [along(direction, scale) for scale in ray.best_scale(start.num_heads, K, eta)]
    work.progress(f"{3 * K:,} steps in float64")
    end = follower.follow(start, data, step_size=eta, num_steps=2 * K, loss=loss).displacement
    points.append(targets.measure_target("the end of a run twice as long", start, data, end, loss))
    walk = follower.follow(start, data, step_size=eta, num_steps=K, targets=points, loss=loss)
    provenance.compare(work.run, data, walk.loss, walk.gradient_norm, K)
    return walk


def best_case(work: Examination) -> tuple[int, Case]:
    """The best target for our Theorem 1: the smallest bound if it applies, else the fewest missing heads."""
    walk = work.shared(repetition)
    cases = [
        case_of(
            work.run.start,
            work.dataset,
            target,
            num_steps=work.num_steps,
            step_size=work.step_size,
            token_radius=work.radius,
            start_loss=float(walk.loss[0]),
            loss=work.loss,
        )
        for target in walk.targets
    ]
    spoken = [i for i, case in enumerate(cases) if _conditions(case, OURS).holds]
    useful = [i for i, case in enumerate(cases) if case.train_bound() < work.loss.at(0.0)] or range(
        len(cases)
    )
    if spoken:
        index = min(spoken, key=lambda i: cases[i].train_bound())
    else:
        index = min(
            useful, key=lambda i: max(h.factor for h in _conditions(cases[i], OURS).hypotheses)
        )
    return index, cases[index]


def concluded(work: Examination) -> tuple[Certificate, ...]:
    """The conclusions of Theorem 1 about the run, from the best target."""
    (index, case), walk = work.shared(best_case), work.shared(repetition)
    details = {"target": str(walk.targets[index])}
    return tuple(
        replace(c, details=details)
        for c in conclusions(case, walk, training_conditions(case), index)
    )


def certify_theorem_1(work: Examination) -> list[Certificate]:
    return [c for c in work.shared(concluded) if c.statement == "thm1"]


def check_theorem_1(effort: Effort) -> Finding:
    """(4) on literal runs, ours and the explicit route."""
    # which searches with these conditions
    from manyheads.theory.deora2023 import regime

    tally = Tally()
    literal, explicit = regime.literal_runs(effort), regime.explicit_runs(effort)
    for run in literal:
        tally.broken += sum(c.verdict is not Verdict.HOLDS for c in run.certificates)
        tally.add(run.walk.mean_loss, run.case.train_bound())
    for run in explicit:
        tally.broken += sum(
            c.verdict_of(EXPLICIT) is not Verdict.HOLDS
            for c in run.certificates
            if len(c.bounds) > 1
        )
        tally.add(run.walk.mean_loss, run.case.train_bound(), run.case.train_bound())
    few, many = (pick(run.case.num_heads for run in literal) for pick in (min, max))
    return tally.finding(
        f"{len(literal)} runs at {few:,.0f} to {many:,.0f} heads (ours, certified below .5) and "
        f"{len(explicit)} at "
        f"{explicit[0].case.num_heads:.2g} or so (Section 6.1), all conclusions hold"
    )


THEOREM_1 = Statement(
    id="thm1",
    place="Section 4.1, Theorem 1 with (3) and (4)",
    title="training loss",
    printed="√H ≳ d √T R⁵ ‖θ‖_{2,∞} ‖θ−θ_0‖³ (3) and η ≤ 1 ∧ 1/ρ ∧ D²/(K L̂(θ)) ∧ D²/L̂(θ_0) with "
    "ρ ≲ d^{3/2}T^{3/2}R^{13}‖θ‖²_{2,∞}D² imply L̂(θ_K) ≤ (1/K)Σ_{k=1}^K L̂(θ_k) ≤ 2L̂(θ) + "
    "5D²/(4ηK) (4) and "
    "‖θ_K−θ_0‖ ≤ 4D",
    corrected="Section 6.1 with its constants written out: √H ≥ 18 D² β3(‖θ‖_{2,∞} + 3D) and "
    "η ≤ 1 ∧ 1/ρ ∧ …, ρ = (2√T d R³/√H + TR²/4) α²; the same conclusions",
    ours="M ≥ max(‖U_θ‖_{2,∞}, ‖U_0‖_{2,∞} + 3.93 D²√T R/√H), √H ≥ (40/9) D² b3(M) and "
    "η ≤ min(1/b2(M), D²/(K L̂(θ)), D²/L̂(θ_0)) imply descent at every step, ‖θ_k−θ‖ ≤ 2D, "
    "‖θ_k−θ_0‖ ≤ 3D, "
    "‖U_k‖_{2,∞} ≤ M and (4). Heads grow like D⁴ instead of D⁶, with no power of d",
    proof="docs/theory/training.md#theorem-1",
    remark="run where all its hypotheses hold; the bound is about 5 times the measured mean loss at the "
    "smallest such H",
    check=check_theorem_1,
    about=certify_theorem_1,
    tightness=0.2,
    errata=("E4", "E6", "E7"),
    aliases=("eq3", "eq4", "theorem1"),
    used_by=("thm2", "cor2", "cor3", "plan", "certify"),
)


def certify_descent(work: Examination) -> list[Certificate]:
    walk, case = work.shared(repetition), work.shared(best_case)[1]
    limit = 1 / case.shape.b2(float(walk.readout_norm.max()), case.num_heads)
    step = step_at_most("eta <= 1/b2(M), M the largest readout norm seen", work.step_size, limit)
    defect, noise = descent_defect(walk), rounding(case, walk)
    return [
        Certificate(
            "descent",
            DEFECT,
            defect,
            (Bound(OURS, 0.0, (step,)),),
            noise=noise,
            noise_source="rounding of the loss",
            details={"descended in fact": bool(defect <= noise)},
        )
    ]


def check_descent(effort: Effort) -> Finding:
    """(13) from random points, with the largest step size allowed by ours and by the printed constant."""
    tally, trials = Tally(), effort.count(600, 100)
    rng = np.random.default_rng(effort.seed)
    first = rng.standard_normal((trials, convexity.SIZE)) * 10.0 ** rng.uniform(
        -2, 0.5, (trials, 1)
    )
    X = rng.standard_normal((trials, convexity.EXAMPLES, convexity.TOKENS, convexity.DIM))
    y = rng.choice([-1.0, 1.0], (trials, convexity.EXAMPLES))
    shapes = convexity.shapes_of(X)
    H = convexity.HEADS
    with jax.enable_x64(True):
        slope = np.asarray(jax.jit(jax.vmap(jax.grad(convexity.flat_loss)))(first, X, y))
        value = jax.jit(jax.vmap(convexity.flat_loss))
        loss = np.asarray(value(first, X, y))

        def after(norm, constant):
            """Step sizes and the loss after the step."""
            eta = [
                _largest_descent_step(a, g, lambda x, s=s: constant(s, x, H), norm)
                for a, g, s in zip(first, slope, shapes, strict=True)
            ]
            eta = np.array(eta)
            return eta, np.asarray(value(first - eta[:, None] * slope, X, y))

        eta, ours = after(convexity.largest_readout, Shape.b2)
        printed_eta, printed = after(convexity.largest_head, Shape.beta2)
    square = np.sum(slope**2, axis=1)
    for i in range(trials):
        tally.add(ours[i], loss[i] - eta[i] / 2 * square[i], noise=4e-16 * (1 + loss[i]))
        tally.printed = max(
            tally.printed or 0.0, printed[i] / (loss[i] - printed_eta[i] / 2 * square[i])
        )
    promised = float(np.max(eta / 2 * square / (loss - ours), where=square > 1e-6, initial=0.0))
    return tally.finding(
        f"loss after the step over L_k − (η/2)‖∇L_k‖²; promised over actual decrease {promised:.3f}"
    )


def _largest_descent_step(first, slope, smoothness, norm) -> float:
    """The largest η ≤ 1/β2 at both ends of the step, by iteration from the start's own smoothness."""
    eta = 1 / smoothness(norm(first[None])[0])
    for _ in range(100):
        x = max(norm(first[None])[0], norm((first - eta * slope)[None])[0])
        if eta <= 1 / smoothness(x):
            return eta
        eta = 0.99 / smoothness(x)
    return eta * 0.5


DESCENT = Statement(
    id="descent",
    place="Section 6.1, Eq. (13)",
    title="descent lemma",
    printed="η_k ≤ 1/(β2(θ_k) ∨ β2(θ_{k+1})) implies L̂(θ_{k+1}) ≤ L̂(θ_k) − (η_k/2)‖∇L̂(θ_k)‖²",
    corrected="as printed",
    ours="η ≤ 1/b2(M) with M ≥ ‖U_k‖_{2,∞}, ‖U_{k+1}‖_{2,∞} suffices",
    proof="docs/theory/training.md#descent",
    remark="share of the allowed value L̂_k − (η/2)‖∇L̂_k‖² that is used, at the largest allowed step: trivially "
    "near 1 where the gradient is small; the promised decrease is up to 0.51 of the actual one",
    check=check_descent,
    about=certify_descent,
    tightness=0.999,
    aliases=("eq13", "lemma7"),
    used_by=("thm1", "eq17"),
)


def certify_iterates(work: Examination) -> list[Certificate]:
    return [c for c in work.shared(concluded) if c.statement == "iterates"]


def check_iterates(effort: Effort) -> Finding:
    """‖θ_k−θ‖ ≤ 2D and ‖θ_k−θ_0‖ ≤ 3D (ours); 3D and 4D (printed)."""
    # which searches with these conditions
    from manyheads.theory.deora2023 import regime

    tally = Tally()
    for run in (*regime.literal_runs(effort), *regime.explicit_runs(effort)):
        D = run.case.distance
        tally.add(run.walk.target_distance[0].max(), 2 * D, 3 * D)
        tally.add(run.walk.distance.max(), 3 * D, 4 * D)
    return tally.finding("largest distance along literal runs over 2D (target) and 3D (start)")


ITERATES = Statement(
    id="iterates",
    place="Theorem 1 (last line), Section 6.1 (Lemma 10 of the appendix)",
    title="iterates stay near the start and the target",
    printed="‖θ_K−θ_0‖ ≤ 4‖θ−θ_0‖ and ‖θ_k−θ‖ ≤ 3‖θ−θ_0‖",
    corrected="as printed; the paper's own route gives √(13/3)·D for the second",
    ours="‖θ_k−θ‖ ≤ 2D and ‖θ_k−θ_0‖ ≤ 3D under our hypotheses",
    proof="docs/theory/training.md#theorem-1",
    remark="on runs where all hypotheses hold the iterates never leave the ball of radius D around the target",
    check=check_iterates,
    about=certify_iterates,
    tightness=0.5,
    aliases=("lemma10",),
    used_by=("thm1", "thm2"),
)
