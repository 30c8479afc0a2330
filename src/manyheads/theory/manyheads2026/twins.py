r"""Theorem S: how far leaving out one sequence can move a run, bounded along the run itself.

The distance of a run from its leave-one-out twin grows in one step by at most the norm of
$I-\eta\nabla^2\hat L^{-i}$ on the segment between them. The Hessian at the run is computed, and
over the ball in which the twin is known to be it changes by no more than a local bound on the third
derivative allows. It uses no worst-case constant and trains no twin. Proof:
docs/theory/generalization.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from manyheads.measures import hessian as hessians
from manyheads.measures import neighborhood, stability
from manyheads.model import autodiff
from manyheads.model import loss as losses
from manyheads.theory import targets
from manyheads.theory.deora2023.derivatives import Shape
from manyheads.theory.deora2023.generalization import bounded_norms, independence, one_sample
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.deora2023.setting import require_scope
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.manyheads2026.region import ENLARGE
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis
from manyheads.training import descent
from manyheads.training import start as starts
from manyheads.training.rules import GD

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination


# trained to compare their distances with the bounds
TWINS = 6
PROVED_FOR = "Theorem S is proved for the full readout and the logistic loss"


@dataclass(frozen=True, eq=False)
class TwinBound:
    r"""What is proved about the leave-one-out twins of one run.

    `distance` (n,) bounds $\|\theta_K-\theta_K^{-i}\|$, `left_out_loss` (n,) the loss of sequence i
    under the run that did not see it, `readout_norm` (n,) the largest $\|U\|_{2,\infty}$ on the
    segments. `expansion` (K,) is the largest factor by which a step moved twins apart, `train_loss`
    that of the run at the end. Infinite where nothing is proved.
    """

    distance: np.ndarray
    left_out_loss: np.ndarray
    readout_norm: np.ndarray
    expansion: np.ndarray
    train_loss: float
    num_tokens: int
    dim: int

    @property
    def total_expansion(self) -> float:
        """The product of all expansions; it may be infinite."""
        with np.errstate(over="ignore"):
            return float(np.prod(self.expansion))

    def test_loss(self, token_radius: float) -> float:
        r"""$\frac1n\sum_i\ell_i(\theta_K^{-i})+\frac1n\sum_ib_1(M_i)\|\theta_K-\theta_K^{-i}\|$, bounded from above."""
        shape = Shape(self.num_tokens, self.dim, token_radius)
        return float(np.mean(self.left_out_loss + shape.b1(self.readout_norm) * self.distance))


def _slope(m: np.ndarray) -> np.ndarray:
    return losses.LOGISTIC.slope_at(m)


def bound_twins(
    start: MultiHead, dataset: Dataset, *, step_size: float, num_steps: int
) -> TwinBound:
    """Bounds on all leave-one-out twins of the run of plain descent from `start`, from that run alone."""
    require_scope(start)
    if start.decoder != "full":
        raise ValueError(f"the start has the {start.decoder} readout; {PROVED_FOR}")
    eta, n = step_size, dataset.num_examples
    steps = list(range(num_steps + 1))
    run = descent.train(
        start,
        dataset,
        rule=GD(eta),
        num_steps=num_steps,
        snapshots=steps,
        record=10**9,
        dtype="float64",
    )
    if run.status == "interrupted":
        raise KeyboardInterrupt
    apart, factors = np.zeros(n), []
    # overflowing bounds become infinite below
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(run.last_step):
            here = Place(run.model(k), dataset, float(apart.max()))
            factor = here.expansion(apart, eta)
            factors.append(float(factor.max()))
            apart = (factor * apart + eta / n * here.slope * here.norms) * (1 + ENLARGE)
            if not np.isfinite(apart).all():
                break
        known = run.status == "finished" and bool(np.isfinite(apart).all())
        end = Place(run.final, dataset, float(apart.max()) if known else 0.0)
        lost = end.norms * apart + apart**2 / 2 * end.drift.curvature
        left_out = np.logaddexp(0.0, lost - end.margins) * (1 + ENLARGE)
        readout = np.sqrt(np.sum(np.asarray(run.final.readout, float) ** 2, axis=(1, 2)))
        largest = np.max(readout[:, None] + apart / np.sqrt(start.multiplicity)[:, None], axis=0)
    loss = float(np.mean(np.logaddexp(0.0, -end.margins)))
    apart, left_out, largest = (
        np.where(known & np.isfinite(values), values, math.inf)
        for values in (apart, left_out, largest)
    )
    return TwinBound(
        apart, left_out, largest, np.array(factors), loss, dataset.num_tokens, dataset.dim
    )


class Place:
    """One step of the run: its values, and bounds over the ball around it that holds all twins."""

    def __init__(self, model: MultiHead, dataset: Dataset, radius: float):
        self.model, self.dataset, self.radius = (
            model,
            dataset,
            np.float64(radius),
        )  # its square may overflow
        self.margins = dataset.labels * model.scores(dataset)
        self.norms = autodiff.gradient_norms(model, dataset) * (1 + ENLARGE)
        self.slope = _slope(self.margins)
        self.ball = neighborhood.Neighborhood(model, dataset)
        self.drift = self.ball.drift(self.radius)

    def third_derivative(self) -> float:
        r"""A bound on $\nabla^3\hat L^{-i}$ over the ball, for every i."""
        h, far = self.drift.curvature, self.norms + self.drift.gradient
        width = (self.radius * self.norms + self.radius**2 / 2 * h) * (1 + ENLARGE)
        nearest = np.clip(0.0, self.margins - width, self.margins + width)
        bend = _slope(nearest) * _slope(
            -nearest
        )  # bounds the second and the third derivative of the loss
        terms = (
            bend * far**3
            + 3 * bend * far * h
            + _slope(self.margins - width) * self.ball.third(self.radius)
        )
        return float(np.mean(terms)) * (1 + ENLARGE)

    def expansion(self, apart: np.ndarray, eta: float) -> np.ndarray:
        r"""Per twin, a bound on $\|I-\eta\nabla^2\hat L^{-i}\|$, on average over the segment of length `apart`."""
        n = len(apart)
        with jax.enable_x64(True):
            values = np.linalg.eigvalsh(
                hessians.HessianOperator.of_loss(self.model, self.dataset, losses.LOGISTIC).dense()
            )
        rounding = ENLARGE * float(np.abs(values).max())
        curved = self.slope * self.ball.drift(0.0).curvature / n
        own = self.slope * (1 - self.slope) * self.norms**2 / n + curved
        change = self.third_derivative() * apart / 2
        below = max(0.0, -float(values[0])) + rounding + own + change
        above = float(values[-1]) + rounding + curved + change
        return np.maximum(1 + eta * below, eta * above - 1) * (1 + ENLARGE)


def certify_twins(work: Examination) -> list[Certificate]:
    """Distances of some twins over their bounds, and the certificate of the test loss, from the run alone."""
    if work.run.start.decoder != "full" or work.loss.name != "logistic":
        other = Hypothesis("full readout and logistic loss", False, PROVED_FOR)
        return [
            Certificate("twins", TWIN_BOUND.title, math.nan, (Bound(OURS, math.nan, (other,)),))
        ]
    work.progress("bounds on the leave-one-out twins")
    plan: dict[str, Any] = {"step_size": work.step_size, "num_steps": work.num_steps}
    found = bound_twins(work.run.start, work.dataset, **plan)
    n = work.dataset.num_examples
    chosen = np.unique(np.linspace(0, n - 1, TWINS).astype(int))
    real = stability.leave_one_out(work.run.start, work.dataset, indices=chosen.tolist(), **plan)
    share = float(np.max(real.distance[:, -1] / found.distance[real.indices]))
    noise = real.accuracy / float(found.distance[real.indices].min())
    claim = f"largest distance of {len(chosen)} leave-one-out twins over its bound"
    test = math.nan if work.test is None else targets.train_loss(work.run.final, work.test)
    given = Hypothesis("test data are given", work.test is not None, "pass test=")
    finite = Hypothesis(
        "the bounds are finite",
        bool(np.isfinite(found.distance).all()),
        "use smaller or fewer steps",
    )
    needed = (independence(work.independent), bounded_norms(work.bounded), given, one_sample())
    details = {
        "average stability, bounded": float(np.mean(found.distance)),
        "product of expansions": found.total_expansion,
        "left-out loss, bounded": float(np.mean(found.left_out_loss)),
    }
    bound = Bound(OURS, found.test_loss(work.radius), (finite, *needed))
    return [
        Certificate(
            "twins",
            claim,
            share,
            (Bound(OURS, 1.0, (finite,)),),
            noise=noise,
            noise_source="rounding of the twins",
        ),
        Certificate(
            "twins", "test loss, in expectation over samples", test, (bound,), details=details
        ),
    ]


def check_twins(effort: Effort) -> Finding:
    """Trained twins against their bounds, and the third derivatives at adversarial points."""
    # which measures these bounds
    from manyheads.theory.manyheads2026 import attack as attacks

    tally = Tally()
    shares = attacks.local_bounds(tally, effort, attacks.THIRDS)
    expansions = []
    cases = [(1, 0.5), (2, 1.0), (8, 1.0), (64, 2.0), (1e6, 1.0)]
    for k in range(effort.count(8, 1)):
        _, data, fresh = small_problem(effort.seed + k)
        for heads, eta in cases[: effort.count(len(cases), 2)]:
            start, steps = starts.first_phase(fresh, heads), effort.count(20, 5)
            found = bound_twins(start, data, step_size=eta, num_steps=steps)
            some = None if not effort.quick else range(0, data.num_examples, 8)
            real = stability.leave_one_out(
                start, data, indices=some, step_size=eta, num_steps=steps
            )
            for distance, loss, i in zip(
                real.distance[:, -1], real.left_out_loss[:, -1], real.indices, strict=True
            ):
                tally.add(distance, found.distance[i], noise=real.accuracy)
                tally.add(loss, found.left_out_loss[i], noise=real.loss_accuracy)
            expansions.append(found.total_expansion)
    text = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    return tally.finding(
        f"largest shares: {text}; expansions multiply to {min(expansions):.3g} to "
        f"{max(expansions):.3g}"
    )


TWIN_BOUND = Statement(
    id="twins",
    place="ours, Theorem S",
    title="leave-one-out distances and the test loss, from one run",
    ours="ρ_0 = 0, ρ_{k+1} = x_k ρ_k + (η/n) w_i‖∇Φ̃_i(θ_k)‖ bounds ‖θ_k − θ_k^{-i}‖, where x_k = max(1 + η(a_k + "
    "(ℓ_i''‖φ_i‖² + w_i h_i)/n + τ_k ρ_k/2), η(λ_max(∇²L̂(θ_k)) + w_i h_i/n + τ_k ρ_k/2) − 1), a_k "
    "= max(0, "
    "−λ_min(∇²L̂(θ_k))) and τ_k bounds ∇³L̂ over B(θ_k, max_i ρ_k); E[L(θ_K)] ≤ E[(1/n)Σ_i(ℓ(m_i − "
    "ρ_K‖φ_i‖ − "
    "½ρ_K² h_i) + b1(M_i)ρ_K)], computable from one run, for every H",
    proof="docs/theory/generalization.md#theorem-s",
    remark="distances and left-out losses of trained twins over their bounds; third derivatives attacked by ascent",
    check=check_twins,
    about=certify_twins,
    on_request=True,
    aliases=("stability.local", "theorem-s"),
    used_by=("certify",),
)
