"""Theorem 2, Lemma 3 and the leave-one-out certificate: silent where they must be, right where they speak."""

import math
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.measures import stability
from manyheads.model.loss import Weighted
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.generalization import (
    LeaveOneOut,
    certify_generalization,
    gap_bound,
    generalization_conditions,
    measure_leave_one_out,
    stability_bound,
)
from manyheads.theory.deora2023.training import Case, largest_step
from manyheads.theory.verdict import Verdict
from manyheads.training.descent import train
from manyheads.training.rules import GD
from manyheads.training.start import first_phase, gaussian_start


def good_case() -> Case:
    shape = Shape(4, 6, 1.2)
    case = Case(shape, 1e9, 100, 2.0, 0.05, 0.4, 0.5, 0.69, 0.35)
    return replace(case, step_size=min(largest_step(case), 1 / shape.b1(case.radius) ** 2))


def test_the_bounds_by_hand():
    case = good_case()
    inner = 2 * 100 * 0.05 + 9 * 4 / (4 * case.step_size)
    assert abs(gap_bound(case, 16) - 4 / 16 * inner) < 1e-12
    assert (
        abs(
            stability_bound(case, 16) - 2 * case.step_size * case.shape.b1(case.radius) / 16 * inner
        )
        < 1e-12
    )


@pytest.mark.parametrize(
    "text, changes, independent",
    [
        ("do not depend on the training sample", {}, False),
        ("enough heads for the gap", {"num_heads": 5e3}, True),
        ("eta <= 1/b1(M)^2", {"step_size": 0.5}, True),
        ("eta <= D^2/(K L(theta))", {"num_steps": 1e5}, True),
        ("eta <= D^2/L(theta_0)", {"start_loss": 1e4}, True),
    ],
)
def test_breaking_each_hypothesis_of_theorem_2_is_named(text, changes, independent):
    assert generalization_conditions(good_case(), 16, independent=True)[2].holds
    broken = generalization_conditions(
        replace(good_case(), **changes), 16, independent=independent
    )[2]
    assert any(text in h.text for h in broken.missing), [h.text for h in broken.missing]


def test_the_gap_needs_more_heads_than_training():
    ours = generalization_conditions(good_case(), 16, independent=True)[2]
    assert ours.heads_needed == (8 * 4 * good_case().shape.b3(good_case().radius)) ** 2


@pytest.fixture(scope="module")
def samples():
    """Six samples of the mixture, one plan for all; every twin trained."""
    mixture = TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.0,
        noise_mu=0.05,
        noise_nu=0.05,
        noise_norm=0.3,
        key=jax.random.key(0),
    )
    start = first_phase(mixture.sample(200, key=jax.random.key(1)), 4)
    fresh = mixture.sample(500, key=jax.random.key(2))
    plan = {
        "step_size": 0.5,
        "num_steps": 60,
        "test": fresh,
        "token_radius": mixture.token_radius,
        "independent": True,
    }
    data = [mixture.sample(16, key=jax.random.key(k)) for k in range(10, 16)]
    return mixture, start, data, [measure_leave_one_out(start, d, **plan) for d in data]


def test_twins_are_those_of_separate_training(samples):
    """One twin, trained by the library with the sequence's weight set to zero."""
    mixture, start, data, twins = samples
    plan = {"rule": GD(0.5), "num_steps": 60, "dtype": "float64"}
    whole = train(start, data[0], **plan)
    other = train(start, data[0], loss=Weighted(np.where(np.arange(16) == 3, 0.0, 1 / 16)), **plan)
    square = sum(
        ((a - b) ** 2).reshape(start.num_classes, -1).sum(1)
        for a, b in zip(whole.displacement, other.displacement, strict=True)
    )
    assert abs(twins[0].distances[3] - math.sqrt(start.multiplicity @ square)) < 1e-12
    left = np.logaddexp(0.0, -data[0].labels[3] * other.final.scores(data[0])[3])
    assert abs(twins[0].left_out_losses[3] - left) < 1e-12
    norms = [
        np.linalg.norm(m.readout.reshape(2, -1), axis=1).max() for m in (whole.final, other.final)
    ]
    assert abs(twins[0].lipschitz[3] - Shape(4, 6, mixture.token_radius).b1(max(norms))) < 1e-12
    assert abs(twins[0].train_loss - whole.train_loss[-1]) < 1e-12


def test_lemma_3_and_the_certificate_hold_in_expectation(samples):
    lemma, loo = certify_generalization(samples[3])
    for certificate in (lemma, loo):
        assert certificate.verdict is Verdict.HOLDS
        assert "in expectation over data sets" in certificate.claim
        assert "95% interval over 6 data sets" in certificate.noise_source
        assert certificate.noise > 0
    assert loo.details["left-out loss"] < loo.bound().value
    assert abs(lemma.measured - np.mean([s.test_loss - s.train_loss for s in samples[3]])) < 1e-15


def test_one_sample_is_silent(samples):
    for certificate in certify_generalization(samples[3][:1]):
        assert certificate.verdict is Verdict.SILENT
        assert "several data sets" in certificate.reason


def test_a_plan_that_saw_the_sample_is_silent(samples):
    peeked = [replace(s, independent=False) for s in samples[3]]
    assert {c.verdict for c in certify_generalization(peeked)} == {Verdict.SILENT}


def test_a_radius_that_is_only_the_largest_seen_is_silent(samples):
    _, start, data, _ = samples
    plan = {"step_size": 0.5, "num_steps": 5, "independent": True}
    drawn = [
        Dataset.from_arrays(d.tokens, d.labels) for d in data[:3]
    ]  # the same tokens, of a law unknown

    def certified(samples, **radius):
        return certify_generalization(
            [measure_leave_one_out(start, d, test=d, **plan, **radius) for d in samples]
        )

    found = certified(drawn)
    assert {c.verdict for c in found} == {Verdict.SILENT}
    assert (
        "every token of the distribution" in found[0].reason and "token_radius=" in found[0].reason
    )
    assert {c.verdict for c in certified(drawn, token_radius=5.0)} == {Verdict.HOLDS}
    assert {c.verdict for c in certified(data[:3])} == {
        Verdict.HOLDS
    }  # the mixture's samples carry it
    told = [replace(d, norm_bound=5.0) for d in drawn]
    assert [c.bound().value for c in certified(told)] == [
        c.bound().value for c in certified(drawn, token_radius=5.0)
    ]


def test_three_data_sets_allow_more_than_two_standard_errors():
    three = [
        replace(s, test_loss=gap + s.train_loss)
        for s, gap in zip(fakes(0.0, 3), (0.1, 0.2, 0.3), strict=True)
    ]
    noise = certify_generalization(three)[0].noise
    factor = 0.95 / math.sqrt(
        2 * 0.975 * 0.025
    )  # Student's law with two degrees of freedom has a closed form
    assert abs(noise - factor * 0.1 / math.sqrt(3)) < 1e-12


def test_without_test_data_it_is_silent(samples):
    blind = [replace(s, test_loss=math.nan) for s in samples[3]]
    assert {c.verdict for c in certify_generalization(blind)} == {Verdict.SILENT}


def test_a_planted_lipschitz_constant_is_violated():
    """Constants a thousand times too small and a real gap: VIOLATED."""
    rng = np.random.default_rng(0)
    fake = [
        LeaveOneOut(
            np.full(8, 0.1),
            np.full(8, 0.2),
            np.full(8, 1e-3),
            0.1,
            0.4 + 0.01 * rng.standard_normal(),
            bounded=True,
        )
        for _ in range(10)
    ]
    assert {c.verdict for c in certify_generalization(fake)} == {Verdict.VIOLATED}


def fakes(gap: float, count: int = 4) -> list[LeaveOneOut]:
    return [
        LeaveOneOut(
            np.full(16, 0.1),
            np.full(16, 0.2),
            np.full(16, 9.0),
            0.1,
            0.1 + gap + 0.001 * k,
            bounded=True,
        )
        for k in range(count)
    ]


def test_theorem_2_in_expectation_holds_is_violated_and_is_silent():
    case, bound = good_case(), gap_bound(good_case(), 16)
    *_, held = certify_generalization(fakes(0.1), [case] * 4)
    assert (
        held.statement == "thm2"
        and held.verdict is Verdict.HOLDS
        and held.bound().value == pytest.approx(bound)
    )
    assert "95% interval over 4 data sets" in held.noise_source and 0 < held.noise < 0.01
    assert certify_generalization(fakes(1.01 * bound), [case] * 4)[2].verdict is Verdict.VIOLATED
    alone = certify_generalization(fakes(0.1, 1), [case])[2]
    assert alone.verdict is Verdict.SILENT and "several data sets" in alone.reason
    weak = certify_generalization(fakes(0.1), [case] * 3 + [replace(case, num_heads=5e3)])[2]
    assert weak.verdict is Verdict.SILENT and "enough heads for the gap" in weak.reason
    seen = certify_generalization([replace(s, independent=False) for s in fakes(0.1)], [case] * 4)[
        2
    ]
    assert seen.verdict is Verdict.SILENT
    with pytest.raises(ValueError, match="3 cases for 4 samples"):
        certify_generalization(fakes(0.1), [case] * 3)


def test_a_run_that_diverged_is_silent_not_violated():
    lost = [replace(s, distances=np.full(16, np.nan)) for s in fakes(0.1)]
    found = certify_generalization(lost)
    assert {c.verdict for c in found} == {Verdict.SILENT} and "stayed finite" in found[0].reason


def test_interrupted_twins_are_no_result(samples, monkeypatch):
    mixture, start, data, _ = samples
    monkeypatch.setattr(
        stability, "leave_one_out", lambda *a, **k: SimpleNamespace(status="interrupted")
    )
    with pytest.raises(KeyboardInterrupt):
        measure_leave_one_out(start, data[0], step_size=0.5, num_steps=60)


def test_assumption_1_covers_the_test_data_and_the_setting_is_the_paper_s(samples):
    mixture, start, data, _ = samples
    far = Dataset.from_arrays(5 * data[0].tokens, data[0].labels)
    plan = {"step_size": 0.5, "num_steps": 60}
    with pytest.raises(ValueError, match="below the largest token norm"):
        measure_leave_one_out(start, data[0], test=far, token_radius=mixture.token_radius, **plan)
    factors = gaussian_start(2, num_tokens=4, dim=6, rank=2, key=jax.random.key(0))
    with pytest.raises(ValueError, match="key-query matrix W itself is trained; with W = Q K"):
        measure_leave_one_out(factors, data[0], **plan)


def test_nothing_to_certify_is_refused():
    with pytest.raises(ValueError, match="no samples"):
        certify_generalization([])
