"""A run under examination: targets, the repetition in float64, and a certificate for each statement about it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from manyheads.certificates.bounds import Shape
from manyheads.certificates.decomposition import SCALES, decompose, judge
from manyheads.certificates.generalization import (
    certify_generalization,
    generalization_conditions,
    independence,
    measure_leave_one_out,
)
from manyheads.certificates.initialization import (
    GoodStart,
    gap_bound,
    good_start,
    good_start_conditions,
    realize,
)
from manyheads.certificates.ledger import entry
from manyheads.certificates.provenance import check_data, compare
from manyheads.certificates.regime import conclusions, rounding
from manyheads.certificates.scope import REMEDY, model_scope
from manyheads.certificates.targets import (
    Target,
    along,
    attention_target,
    measure_target,
    mixture_direction,
    parameter_norm,
    proximal_target,
    train_loss,
)
from manyheads.certificates.training import Case, case_of, training_conditions
from manyheads.certificates.verdict import OURS, PRINTED, Bound, Certificate, Hypothesis
from manyheads.certificates.walk import Walk, follow
from manyheads.measures.curvature import loss_curvature


class Examination:
    """One run under examination: what several statements share is computed once."""

    def __init__(self, run, dataset, test, mixture, token_radius, independent, progress):
        self.run, self.dataset, self.test, self.mixture = run, dataset, test, mixture
        check_data(run, dataset)
        self.shape = Shape.of(dataset, token_radius, test)
        self.radius = self.shape.token_radius
        self.independent, self.progress = independent, progress
        self.eta, self.num_steps = run.settings.get("step_size"), int(run.last_step)
        self._good: GoodStart | None = None
        self._walk: Walk | None = None
        self._ends = None
        self._twins: tuple[Certificate, ...] | None = None

    def scope(self) -> tuple[Hypothesis, ...]:
        """What every statement assumes about model and optimizer; the rest has not been examined."""
        settings = self.run.settings
        if self.num_steps < 1:
            raise ValueError("the run has no finite step; there is nothing to certify")
        return (
            Hypothesis("plain gradient descent with a constant step", settings.get("optimizer") == "gd", REMEDY),
            Hypothesis("logistic loss", settings.get("loss") == "logistic", REMEDY),
            *model_scope(self.run.start),
        )

    @property
    def good(self) -> GoodStart:
        if self._good is None:
            self.progress("tangent kernel and its margin")
            self._good = good_start(self.run.start, self.dataset, token_radius=self.radius)
        return self._good

    @property
    def walk(self) -> Walk:
        """The run again, in float64, watched from every target."""
        if self._walk is None:
            start, data = self.run.start, self.dataset
            self.progress("targets")
            targets = [proximal_target(start, data, step_size=self.eta, num_steps=self.num_steps)]
            if self.good.holds:
                targets += [along(self.good.theta_star(), float(c), start, data) for c in SCALES / self.good.margin]
            if self.mixture is not None:
                direction = mixture_direction(start, self.mixture)
                targets += [along(direction, float(c), start, data) for c in SCALES]
                targets.append(attention_target(start, data, self.mixture))
            self.progress(f"{3 * self.num_steps:,} steps in float64")
            end = follow(start, data, step_size=self.eta, num_steps=2 * self.num_steps).displacement
            targets.append(measure_target("the end of a run twice as long", start, data, end))
            self._walk = follow(start, data, step_size=self.eta, num_steps=self.num_steps, targets=targets)
            compare(self.run, self._walk.loss, self._walk.gradient_norm, self.num_steps)
        return self._walk

    def case(self, target: Target) -> Case:
        return case_of(
            self.run.start,
            self.dataset,
            target,
            num_steps=self.num_steps,
            step_size=self.eta,
            token_radius=self.radius,
            start_loss=float(self.walk.loss[0]),
        )

    def best_target(self) -> int:
        """The target on which our Theorem 1 says most: smallest bound where it speaks, else fewest missing heads."""
        cases = [self.case(t) for t in self.walk.targets]
        spoken = [i for i, c in enumerate(cases) if training_conditions(c)[2].holds]
        if spoken:
            return min(spoken, key=lambda i: cases[i].train_bound())
        useful = [i for i, c in enumerate(cases) if c.train_bound() < math.log(2)] or list(range(len(cases)))
        return min(useful, key=lambda i: max(h.factor for h in training_conditions(cases[i])[2].hypotheses))

    def certificates(self, statement: str) -> list[Certificate]:
        if statement.startswith("def1."):
            return [c for c in self.good.certificates() if c.statement == statement]
        if statement in ("descent", "iterates", "thm1"):
            return self._theorem(statement)
        if statement == "identity":
            return self._identity()
        if statement == "cor1.1":
            return [self._self_bounded()]
        if statement in ("cor1.2", "cor1.3"):
            return [self._curvature(statement)]
        if statement in ("prop7", "cor2") and not self.good.holds:
            return [self._without_margin(statement)]
        if statement == "prop7":
            return [realize(self.good, 1 / self.num_steps)[1]]
        if statement == "cor2":
            return self._corollary()
        if statement == "thm2":
            return [self._theorem2()]
        return [c for c in self._leave_one_out() if c.statement == statement]

    def _theorem(self, statement: str) -> list[Certificate]:
        if statement == "descent":
            return [self._descent()]
        index = self.best_target()
        case = self.case(self.walk.targets[index])
        found = conclusions(case, self.walk, training_conditions(case), index)
        return [
            replace(c, details={**c.details, "target": str(self.walk.targets[index])})
            for c in found
            if c.statement == statement
        ]

    def _descent(self) -> Certificate:
        walk, shape = self.walk, self.shape
        M, H = float(walk.readout_norm.max()), self.run.start.num_heads
        limit = 1 / shape.b2(M, H)
        step = Hypothesis.at_most(
            "eta <= 1/b2(M), M the largest readout norm seen",
            self.eta,
            limit,
            f"use a step size of {limit:.3g} or less",
        )
        defect = float(np.max(np.diff(walk.loss) + self.eta / 2 * walk.gradient_norm[:-1] ** 2))
        case = self.case(walk.targets[0])
        return Certificate(
            "descent",
            "largest L_{k+1} - L_k + (eta/2)|grad L_k|^2 is at most 0",
            defect,
            (Bound(OURS, 0.0, (step,)),),
            noise=rounding(case, walk),
            noise_source="rounding of the loss",
            details={"descended in fact": bool(defect <= rounding(case, walk))},
        )

    def _self_bounded(self) -> Certificate:
        walk, shape = self.walk, self.shape
        bound = shape.b1(walk.readout_norm) * walk.loss
        share = np.where(walk.gradient_norm > 0, math.inf, 0.0)  # where the loss underflows to 0
        np.divide(walk.gradient_norm, bound, out=share, where=bound > 0)
        worst = int(np.argmax(share))
        return Certificate(
            "cor1.1",
            f"|grad L| at most b1 L at every step (worst: step {worst})",
            float(walk.gradient_norm[worst]),
            (Bound(OURS, float(bound[worst])),),
        )

    def _curvature(self, statement: str) -> Certificate:
        walk, shape, H = self.walk, self.shape, self.run.start.num_heads
        if self._ends is None:
            self.progress("extreme eigenvalues of the Hessian at the end of the run")
            self._ends = loss_curvature(walk.final, self.dataset)
        least, most = self._ends.smallest, self._ends.largest
        found = (
            Hypothesis(
                "the eigenvalue was found: the iteration converged",
                self._ends.converged,
                "use fewer heads of different kinds, or loss_curvature with more products",
            ),
        )
        x, whole, loss = float(walk.readout_norm[-1]), parameter_norm(walk.final.heads), float(walk.loss[-1])
        if statement == "cor1.2":
            size = max(abs(least.value), abs(most.value))
            bounds = (Bound(PRINTED, shape.beta2(whole, H), found), Bound(OURS, shape.b2(x, H), found))
            return Certificate(
                "cor1.2",
                "norm of the Hessian at the end of the run",
                size,
                bounds,
                noise=max(least.residual, most.residual),
                noise_source="residual",
            )
        root = math.sqrt(H)
        bounds = (
            Bound(PRINTED, -shape.beta3(whole) / root * loss, found),
            Bound(OURS, -shape.b3(x) / root * loss, found),
        )
        return Certificate(
            "cor1.3",
            "smallest eigenvalue of the Hessian at the end of the run",
            least.value,
            bounds,
            ">=",
            least.residual,
            "residual",
        )

    def _identity(self) -> list[Certificate]:
        return judge(decompose(self.walk))

    def _without_margin(self, statement: str) -> Certificate:
        return Certificate(
            statement, entry(statement).title, math.nan, (Bound(OURS, math.nan, self.good.hypotheses()),)
        )

    def _corollary(self) -> list[Certificate]:
        good, K, eta = self.good, self.num_steps, self.eta
        versions = good_start_conditions(good, num_steps=K, step_size=eta)
        found = [
            Certificate(
                "cor2", "train loss after K steps", float(self.walk.loss[-1]), tuple(v.as_bound() for v in versions)
            )
        ]
        if self.test is not None:
            free = independence(self.independent)
            versions = good_start_conditions(good, num_steps=K, step_size=eta, generalization=True)
            n = self.dataset.num_examples
            bounds = tuple(
                Bound(
                    v.variant,
                    gap_bound(good, K, eta, n, v.variant),
                    (*v.hypotheses, free, _one_sample()),
                    v.up_to_constant,
                )
                for v in versions
            )
            gap = train_loss(self.walk.final, self.test) - float(self.walk.loss[-1])
            found.append(Certificate("cor2", "generalization gap, in expectation over samples", gap, bounds))
        return found

    def _theorem2(self) -> Certificate:
        case = self.case(self.walk.targets[self.best_target()])
        versions = generalization_conditions(case, self.dataset.num_examples, independent=self.independent)
        measured = Hypothesis("test data are given", self.test is not None, "pass test=")
        gap = math.nan if self.test is None else train_loss(self.walk.final, self.test) - float(self.walk.loss[-1])
        bounds = tuple(
            Bound(v.variant, v.bound, (*v.hypotheses, measured, _one_sample()), v.up_to_constant) for v in versions
        )
        return Certificate("thm2", "generalization gap, in expectation over samples", gap, bounds)

    def _leave_one_out(self) -> tuple[Certificate, ...]:
        if self._twins is None:
            self.progress(f"{self.dataset.num_examples} leave-one-out runs")
            twins = measure_leave_one_out(
                self.run.start,
                self.dataset,
                step_size=self.eta,
                num_steps=self.num_steps,
                test=self.test,
                token_radius=self.radius,
                independent=self.independent,
            )
            self._twins = certify_generalization([twins])
        return self._twins


def _one_sample() -> Hypothesis:
    return Hypothesis(
        "the expectation over samples is estimated",
        False,
        "one sample is one draw: use certify_generalization on several (`verify thm2` does)",
    )
