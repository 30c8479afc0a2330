"""Theorem S: trained twins against their bounds, the third derivatives by ascent, and the certificate of the test loss."""

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.measures.neighborhood import Neighborhood
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026 import attack, twins
from manyheads.theory.manyheads2026.twins import bound_twins
from manyheads.theory.targets import train_loss
from manyheads.theory.verdict import Verdict

PLAN = {"step_size": 1.0, "num_steps": 6}


@pytest.fixture(scope="module")
def found():
    _, data, fresh = small_problem(0)
    start = mh.first_phase(fresh, 8)
    return start, data, bound_twins(start, data, **PLAN)


def test_every_twin_is_within_its_bound_and_the_bound_is_near(found):
    start, data, bound = found
    real = mh.measures.leave_one_out(start, data, indices=range(0, 24, 6), **PLAN)
    share = real.distance[:, -1] / bound.distance[real.indices]
    assert np.all(share <= 1) and share.max() > 0.4
    assert np.all(real.left_out_loss[:, -1] <= bound.left_out_loss[real.indices])
    assert np.all(real.readout_norm[:, -1] <= bound.readout_norm[real.indices])
    assert bound.train_loss == pytest.approx(real.reference_loss[-1], rel=1e-12)


def test_one_step_from_the_start_is_exact(found):
    """The first move apart is (eta/n) times the gradient of the loss left out: no bound enters."""
    start, data, _ = found
    bound = bound_twins(start, data, step_size=0.7, num_steps=1)
    real = mh.measures.leave_one_out(start, data, indices=[0, 5], step_size=0.7, num_steps=1)
    assert bound.distance[[0, 5]] == pytest.approx(real.distance[:, -1], rel=1e-8)


def test_a_bound_that_is_too_small_is_violated(found, monkeypatch):
    start, data, _ = found
    real = mh.measures.leave_one_out(start, data, indices=[0, 6], **PLAN)
    monkeypatch.setattr(twins.Place, "expansion", lambda self, apart, eta: np.full_like(apart, 0.6))
    assert np.any(real.distance[:, -1] > bound_twins(start, data, **PLAN).distance[real.indices])


@pytest.mark.full
def test_a_bound_on_third_derivatives_that_is_too_small_is_violated(monkeypatch):
    actual = attack.problem
    monkeypatch.setattr(
        attack, "problem", lambda rng: (p := actual(rng)) | {"third": 0.05 * p["third"]}
    )
    tally = Tally()
    attack.local_bounds(tally, Effort(quick=True, seed=0), attack.THIRDS)
    assert tally.finding().verdict is Verdict.VIOLATED


@pytest.mark.parametrize("name", ["third derivative of a score", "third derivative of the loss"])
@pytest.mark.full
def test_third_derivatives_are_attacked_by_ascent_and_a_tenth_less_is_caught(name):
    """In balls of almost no radius, where the bounds are tightest."""
    rng = np.random.default_rng(1)
    size = attack.CLASSES * attack.DIM * (attack.DIM + attack.TOKENS)
    points = [
        attack.problem(rng, 1e-4)
        | {"raw": rng.standard_normal(size), "turn": rng.standard_normal(size)}
        for _ in range(60)
    ]
    share = attack.ascend(attack.THIRDS[name], points, steps=300, rate=0.1)[1]
    assert 0.3 < share <= 1
    field = "third" if "score" in name else "loss_third"
    less = [p | {field: p[field] * share * 0.9} for p in points]
    assert attack.ascend(attack.THIRDS[name], less, steps=300, rate=0.1)[1] > 1


def test_bounds_that_outgrow_the_numbers_are_infinite(found, monkeypatch):
    start, data, _ = found
    for factor in (1e3, 1e200):
        monkeypatch.setattr(
            twins.Place, "expansion", lambda self, apart, eta, f=factor: np.full_like(apart, f)
        )
        bound = bound_twins(start, data, **PLAN)
        assert np.all(bound.distance > 1e9) and bound.test_loss(2.0) > 1e9 and bound.train_loss < 1
    assert np.isinf(bound.test_loss(2.0))
    with np.errstate(all="ignore"):
        assert not twins.Place(start, data, 1e200).third_derivative() < 1e300


def test_certify_shows_the_share_and_the_certificate():
    mixture, data, fresh = small_problem(0)
    start = mh.first_phase(fresh, 8)
    test = mixture.sample(200, key=jax.random.key(9))
    run = mh.train(start, data, rule=mh.GD(1.0), num_steps=6, dtype="float64")
    radius = {"token_radius": mixture.token_radius, "independent": True}
    apart, loss = mh.certify(run, data, ["twins"], test=test, **radius)
    assert apart.verdict is Verdict.HOLDS and 0.3 < apart.measured <= 1
    assert loss.verdict is Verdict.SILENT and "one sample is one draw" in loss.reason
    assert train_loss(run.final, test) == loss.measured < loss.bounds[0].value < 10 * loss.measured


def test_models_outside_the_setting_are_refused():
    data = mh.data.RandomLabels(num_tokens=4, dim=3).sample(6, key=jax.random.key(1))
    with pytest.raises(ValueError, match="full readout"):
        bound_twins(mh.zero_start(2, num_tokens=4, dim=3, decoder="pooled"), data, **PLAN)


def test_a_larger_ball_has_a_larger_bound_on_the_third_derivative():
    rng = np.random.default_rng(0)
    for _ in range(3):
        p = attack.problem(rng)
        model = mh.MultiHead.create(p["W"], p["U"], multiplicity=p["N"])
        bound = Neighborhood(model, mh.Dataset.from_arrays(p["X"], p["y"])).third(0.0)
        assert np.all(bound <= p["third"] * (1 + 1e-9))


@pytest.mark.full
def test_the_certificate_holds_over_samples_and_is_below_log_2():
    mixture, _, fresh = small_problem(0)
    start, test = mh.first_phase(fresh, 8), mixture.sample(2000, key=jax.random.key(5))
    excess = []
    for k in range(6):
        data = mixture.sample(100, key=jax.random.key(50 + k))
        bound = bound_twins(start, data, step_size=1.0, num_steps=20)
        final = mh.train(start, data, rule=mh.GD(1.0), num_steps=20, dtype="float64").final
        excess.append(train_loss(final, test) - bound.test_loss(mixture.token_radius))
        assert bound.test_loss(mixture.token_radius) < np.log(2)
    assert np.mean(excess) < 0
