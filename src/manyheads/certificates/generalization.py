r"""Theorem 2 before a run, Lemma 3 and the leave-one-out certificate after several.

Statements about expectations hold over samples: they are compared as means with two standard errors, and they need a
start,
a step size, a number of heads and a number of steps that do not depend on the sample. Proofs:
docs/theory/generalization.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from manyheads.certificates.targets import train_loss
from manyheads.certificates.verdict import EXPLICIT, OURS, PRINTED, Bound, Certificate, Hypothesis
from manyheads.data.dataset import Dataset
from manyheads.measures.stability import leave_one_out
from manyheads.model.attention import MultiHead
from manyheads.papers.deora2023.derivatives import HEADS_GENERALIZATION, Shape
from manyheads.papers.deora2023.setting import require_scope
from manyheads.papers.deora2023.training import Case, Conditions, heads_needed, training_conditions
from manyheads.training.descent import train

INDEPENDENT = "start, step size, heads and number of steps do not depend on the training sample"


def independence(holds: bool) -> Hypothesis:
    """The hypothesis that the plan did not look at the sample."""
    return Hypothesis(
        INDEPENDENT, holds, "" if holds else "choose them on data split off before training, as `plan` does"
    )


def gap_bound(case: Case, num_examples: int) -> float:
    r"""(5): $\frac4n\big(2K\hat L(\theta)+\frac{9D^2}{4\eta}\big)$."""
    K, D, eta = case.num_steps, case.distance, case.step_size
    return 4 / num_examples * (2 * K * case.target_loss + 9 * D**2 / (4 * eta))


def stability_bound(case: Case, num_examples: int, *, printed: bool = False) -> float:
    r"""Average stability: $\frac{2\eta b_1(M)}n\big(2K\hat L(\theta)+\frac{9D^2}{4\eta}\big)$; printed with
    $\tilde\beta_1=\beta_1(\|\theta\|_{2,\infty}+3D)$."""
    lipschitz = case.shape.b1(case.radius)
    if printed:
        lipschitz = case.shape.beta1(case.target_norm + 3 * case.distance)
    return case.step_size * lipschitz / 2 * gap_bound(case, num_examples)


def generalization_conditions(case: Case, num_examples: int, *, independent: bool) -> tuple[Conditions, ...]:
    """Theorem 2 on a case: printed (constant 1), explicit, ours. `independent`: the plan ignored the sample."""
    free = independence(independent)
    versions = []
    for conditions in training_conditions(case):
        extra = [free]
        if conditions.variant == OURS:
            need = heads_needed(case, OURS, HEADS_GENERALIZATION)
            extra.append(
                Hypothesis.at_least(
                    "enough heads for the gap: sqrt(H) >= 8 D^2 b3(M)",
                    math.sqrt(case.num_heads),
                    math.sqrt(need),
                    f"use {need:.3g} heads or more",
                )
            )
            limit = 1 / case.shape.b1(case.radius) ** 2
            extra.append(
                Hypothesis.at_most("eta <= 1/b1(M)^2", case.step_size, limit, f"use a step size of {limit:.3g} or less")
            )
        needed = max(conditions.heads_needed, need) if conditions.variant == OURS else conditions.heads_needed
        versions.append(
            Conditions(
                conditions.variant,
                (*conditions.hypotheses, *extra),
                gap_bound(case, num_examples),
                conditions.largest_step,
                needed,
                conditions.variant in (PRINTED, EXPLICIT),
            )
        )
    return tuple(versions)


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """What the n + 1 runs on one sample give: distances, left-out losses, Lipschitz constants of the segments."""

    distances: np.ndarray  # |theta_K - theta_K^{-i}|
    left_out_losses: np.ndarray  # loss_i(theta_K^{-i})
    lipschitz: np.ndarray  # b1(M_i)
    train_loss: float
    test_loss: float  # NaN where no test data were given
    independent: bool = True

    @property
    def stability(self) -> float:
        """Average model stability."""
        return float(np.mean(self.distances))

    @property
    def lemma3(self) -> float:
        """Right-hand side of Lemma 3 on this sample."""
        return 2 * float(np.mean(self.lipschitz * self.distances))

    @property
    def test_certificate(self) -> float:
        r"""$\frac1n\sum_i\ell_i(\theta_K^{-i})+\frac1n\sum_ib_1(M_i)\|\theta_K-\theta_K^{-i}\|$."""
        return float(np.mean(self.left_out_losses) + np.mean(self.lipschitz * self.distances))


def measure_leave_one_out(
    start: MultiHead,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: int,
    test: Dataset | None = None,
    token_radius: float | None = None,
    independent: bool = False,
    progress: bool = False,
) -> LeaveOneOut:
    """Train on the sample and once without each sequence (weights 1/n), and measure what Lemma 3 needs.

    `token_radius` is R where it is known; else the largest norm seen, in the sample and in `test`, is assumed. Ctrl-C
    gives no result: the average over a part of the twins is another number.
    """
    require_scope(start)
    shape = Shape.of(dataset, token_radius, test)
    twins = leave_one_out(start, dataset, step_size=step_size, num_steps=num_steps, progress=progress)
    if twins.status != "finished":  # Ctrl-C: a part of the twins is no average over all
        raise KeyboardInterrupt
    larger = np.maximum(twins.readout_norm[:, -1], twins.reference_readout_norm[-1])
    test_loss = math.nan
    if test is not None:
        run = train(start, dataset, step_size=step_size, num_steps=num_steps, record=[num_steps], dtype="float64")
        if run.status == "interrupted":
            raise KeyboardInterrupt
        test_loss = train_loss(run.final, test) if run.status == "finished" else math.nan
    return LeaveOneOut(
        twins.distance[:, -1], twins.left_out_loss[:, -1], shape.b1(larger), float(twins.reference_loss[-1]), test_loss,
        independent,
    )  # fmt: skip


def certify_generalization(samples: Sequence[LeaveOneOut], cases: Sequence[Case] = ()) -> tuple[Certificate, ...]:
    """Lemma 3 and the leave-one-out certificate in expectation, as means over samples with two standard errors.

    With `cases`, Theorem 2's numbers on each sample, Theorem 2 (thm2) too. With less than three samples the values are
    shown and the verdict is SILENT.
    """
    if not samples:
        raise ValueError("no samples: pass at least one LeaveOneOut, better ten or more")
    if cases and len(cases) != len(samples):
        raise ValueError(f"{len(cases)} cases for {len(samples)} samples; pass one Case for each sample, or none")
    several = Hypothesis.at_least(
        "the expectation is estimated from several data sets", len(samples), 3, "repeat on fresh samples, ten or more"
    )
    measured = Hypothesis("test loss was measured", all(math.isfinite(s.test_loss) for s in samples), "pass test data")
    finite = Hypothesis(
        "every run stayed finite",
        all(math.isfinite(s.train_loss + s.test_certificate) for s in samples),
        "use a smaller step size",
    )
    common = (several, measured, finite)
    free = independence(all(s.independent for s in samples))
    gaps = np.array([s.test_loss - s.train_loss for s in samples])
    tests = np.array([s.test_loss for s in samples])
    found = [
        _expectation(
            "lemma3", "mean generalization gap against 2·mean(b1·stability)", gaps,
            {OURS: np.array([s.lemma3 for s in samples])}, {OURS: (*common, free)},
            **{"average stability": float(np.mean([s.stability for s in samples]))},
        ),
        _expectation(
            "loo", "mean test loss against the leave-one-out certificate", tests,
            {OURS: np.array([s.test_certificate for s in samples])}, {OURS: (*common, free)},
            **{"left-out loss": float(np.mean([s.left_out_losses.mean() for s in samples]))},
        ),
    ]  # fmt: skip
    if cases:
        found.append(_theorem2(samples, cases, gaps, common))
    return tuple(found)


def _theorem2(samples, cases, gaps, common) -> Certificate:
    """(5) in three versions: mean gap against mean bound, with the hypotheses of the sample that misses most."""
    every = [
        generalization_conditions(case, len(s.distances), independent=s.independent)
        for case, s in zip(cases, samples, strict=True)
    ]
    values, hypotheses = {}, {}
    for versions in zip(*every, strict=True):
        variant = versions[0].variant
        values[variant] = np.array([v.bound for v in versions])
        worst = max(versions, key=lambda v: (len(v.missing), max((h.factor for h in v.missing), default=1.0)))
        hypotheses[variant] = (*common, *worst.hypotheses)
    return _expectation("thm2", "mean generalization gap against (5)", gaps, values, hypotheses)


def _expectation(statement, claim, left, right, hypotheses, **details) -> Certificate:
    """`right` and `hypotheses` by version; only the version of ours is without a hidden constant here."""
    noise = 0.0
    if len(left) > 1:
        noise = 2 * float(np.std(left - right[OURS], ddof=1)) / math.sqrt(len(left))
    bounds = tuple(Bound(v, float(np.mean(right[v])), hypotheses[v], v != OURS) for v in right)
    return Certificate(
        statement, f"in expectation over data sets: {claim}", float(np.mean(left)), bounds, noise=noise,
        noise_source=f"2 standard errors over {len(left)} data sets", details=details,
    )  # fmt: skip
