"""Good initialization: P1 to P3 with a certified margin on the mixture, on random labels and on real data."""

import math

import jax
import numpy as np
import pytest
from paper_settings import setting

from manyheads.data.dataset import Dataset
from manyheads.data.planted import RandomLabels
from manyheads.data.real import digits
from manyheads.measures.kernel import tangent_kernel
from manyheads.theory.deora2023.corollaries import (
    good_start_conditions,
    heads_for_good_start,
    largest_good_step,
    train_bound,
)
from manyheads.theory.deora2023.initialization import good_start, reach, realize
from manyheads.theory.targets import mixture_direction, tangent_margins
from manyheads.theory.verdict import EXPLICIT, OURS, PRINTED, Verdict
from manyheads.theory.walk import follow
from manyheads.training.start import first_phase, gaussian_start


def direction_norm(good):
    share = good.start.multiplicity / good.start.num_heads
    squares = sum(
        (np.asarray(leaf) ** 2).reshape(len(leaf), -1).sum(1) for leaf in good.direction.heads
    )
    return math.sqrt(float(share @ squares))


def check_certified(good):
    """The direction has norm √2 and attains a margin inside the interval; the dual point proves the upper end."""
    low, high = good.interval.p3_interval
    assert good.holds and abs(direction_norm(good) - math.sqrt(2)) < 1e-12
    assert low * (1 - 1e-9) <= good.margin <= high * (1 + 1e-9)
    assert good.interval.relative_gap < 1e-6
    K = tangent_kernel(good.start, good.dataset).matrix
    lam = good.interval.weights * good.dataset.labels
    assert good.interval.weights.min() >= 0 and abs(good.interval.weights.sum() - 1) < 1e-12
    assert math.sqrt(2 * lam @ K @ lam) <= high * (1 + 1e-9)
    assert [c.verdict for c in good.certificates()] == [Verdict.HOLDS] * 3


@pytest.mark.parametrize("heads", [2, 1e10])
def test_the_mixture_after_the_first_phase(heads):
    s = setting("A")
    good = good_start(first_phase(s.fresh, heads), s.dataset)
    check_certified(good)
    assert good.model_bound < 1e-9  # balanced signs
    paper = tangent_margins(mixture_direction(good.start, s.mixture), good.start, s.dataset).min()
    assert 1 <= good.margin / paper < 1.4


def test_gaussian_tokens_with_random_labels_may_fail_with_a_dual_proof():
    """More sequences than tangent features: P3 fails, and the simplex point proves it."""
    data = RandomLabels(num_tokens=2, dim=2).sample(60, key=jax.random.key(0))
    good = good_start(gaussian_start(1, num_tokens=2, dim=2, key=jax.random.key(1)), data)
    assert not good.holds and good.interval.verdict == "not separable"
    lam = good.interval.weights * data.labels
    K = tangent_kernel(good.start, data).matrix
    assert math.sqrt(max(lam @ K @ lam, 0.0)) <= 1e-6 * math.sqrt(K.diagonal().max())
    p3 = good.certificates()[2]
    assert p3.verdict is Verdict.SILENT and "no margin above" in p3.reason
    with pytest.raises(ValueError, match="P3 fails"):
        realize(good, 0.1)


def test_gaussian_tokens_with_random_labels_can_be_separated_by_enough_heads():
    data = RandomLabels(num_tokens=4, dim=4).sample(30, key=jax.random.key(0))
    check_certified(
        good_start(gaussian_start(16, num_tokens=4, dim=4, key=jax.random.key(1)), data)
    )


def test_real_data_from_a_gaussian_start():
    data, _ = digits(3, 8).split(120, key=jax.random.key(0))
    check_certified(
        good_start(gaussian_start(16, num_tokens=16, dim=4, key=jax.random.key(1)), data)
    )


def test_real_data_are_not_separable_after_the_first_phase():
    """At W = 0 the tangent features of 16 four-dimensional tokens span at most 20 dimensions: too few."""
    data, fresh = digits(3, 8).split(150, key=jax.random.key(0))
    good = good_start(first_phase(fresh, 2), data)
    assert not good.holds
    assert good.interval.upper < 1e-5 * good.interval.scale


def test_proposition_7_realizes_and_is_silent_with_few_heads():
    s = setting("A")
    many = good_start(first_phase(s.fresh, 1e10), s.dataset)
    for loss in (0.3, 1e-2, 1e-4):
        target, certificate = realize(many, loss)
        assert certificate.verdict is Verdict.HOLDS and target.loss <= loss
        assert (
            abs(
                target.distance
                - math.sqrt(2) * (9 / 80 + math.log(1 / loss) + many.model_bound) / many.margin
            )
            < 1e-9
        )
    few = realize(good_start(first_phase(s.fresh, 2), s.dataset), 1e-2)[1]
    assert few.verdict is Verdict.SILENT and "sqrt(H) >= b3(M)" in few.reason


def test_proposition_7_is_silent_about_starts_that_were_not_examined():
    s = setting("A")
    other = good_start(first_phase(s.fresh, 1e10, exponent=0.6), s.dataset)
    assert other.holds
    found = realize(other, 0.1)[1]
    assert found.verdict is Verdict.SILENT and "scaling 1/sqrt(H)" in found.reason
    assert not good_start_conditions(other, num_steps=50, step_size=1e-3)[2].holds


@pytest.mark.parametrize("decoder, loss", [("pooled", "logistic"), ("last", "hyperbolic")])
def test_proposition_7_speaks_of_every_readout_and_loss(decoder, loss):
    s = setting("A")
    good = good_start(first_phase(s.fresh, 1e12, decoder=decoder, loss=loss), s.dataset, loss=loss)
    target, found = realize(good, 0.1)
    assert found.verdict is Verdict.HOLDS and found.tightness > 0.5
    margin = {"logistic": math.log(10), "hyperbolic": (10 - 0.1) / 2}[loss]
    assert (
        abs(target.distance - math.sqrt(2) * (good.model_bound + 9 / 80 + margin) / good.margin)
        < 1e-9
    )


def test_proposition_7_with_a_planted_margin_is_violated():
    """Claim twice the margin: the target is too near, its loss too large, and the certificate says so."""
    from dataclasses import replace

    s = setting("A")
    honest = good_start(first_phase(s.fresh, 1e10), s.dataset)
    assert realize(replace(honest, margin=2 * honest.margin), 1e-2)[1].verdict is Verdict.VIOLATED


def test_corollary_2_run_at_its_own_number_of_heads():
    s, K = setting("A"), 50
    probe = good_start(first_phase(s.fresh, 1e10), s.dataset)
    heads = 2 * math.ceil(heads_for_good_start(probe, K) / 2)
    good = good_start(first_phase(s.fresh, heads), s.dataset)
    step = largest_good_step(good, K)
    printed, explicit, ours = good_start_conditions(good, num_steps=K, step_size=step)
    assert (
        ours.holds
        and not explicit.holds
        and (printed.variant, explicit.variant) == (PRINTED, EXPLICIT)
    )
    walk = follow(good.start, s.dataset, step_size=step, num_steps=K)
    assert walk.loss[-1] <= train_bound(good, K, step) == ours.bound
    fewer = good_start(first_phase(s.fresh, heads / 2 - heads / 2 % 2), s.dataset)
    missing = good_start_conditions(fewer, num_steps=K, step_size=step)[2].missing
    assert any("enough heads" in h.text for h in missing)


def test_the_radius_of_the_print_lacks_a_factor_root_two():
    s = setting("A")
    good = good_start(first_phase(s.fresh, 1e10), s.dataset)
    K = 1e12  # where log K dominates
    assert abs(reach(good, K, OURS) / reach(good, K, PRINTED) - math.sqrt(2)) < 0.1


@pytest.mark.parametrize(
    "text, changes", [("eta <= 1/b2", 100.0), ("eta <= 1/b1", 0.2), ("eta <= D^2", 1e6)]
)
def test_each_step_size_condition_of_corollary_2_is_named(text, changes):
    s = setting("A")
    good = good_start(first_phase(s.fresh, 1e8), s.dataset)
    ours = good_start_conditions(good, num_steps=50, step_size=changes)[2]
    assert any(text in h.text for h in ours.missing)


def test_contradicting_labels_are_refuted():
    s = setting("A")
    tokens, labels = s.dataset.tokens.copy(), s.dataset.labels.copy()
    tokens[1], labels[1] = tokens[0], -labels[0]
    good = good_start(first_phase(s.fresh, 4), Dataset.from_arrays(tokens, labels))
    assert not good.holds and "no margin above" in str(good)
