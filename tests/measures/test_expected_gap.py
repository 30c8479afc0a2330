"""The first-order gap against runs done again, and against exact expectations where these can be listed."""

from math import comb

import jax
import numpy as np
import pytest

import manyheads as mh

PLAN = {"step_size": 0.3, "num_steps": 20}


@pytest.fixture(scope="module")
def mixture():
    return mh.TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.5,
        noise_mu=0.1,
        noise_nu=0.1,
        noise_norm=0.5,
        key=jax.random.key(0),
    )


@pytest.fixture(scope="module")
def start(mixture):
    return mh.first_phase(mixture.sample(60, key=jax.random.key(2)), 6)


def losses(start, data, weight, **changed):
    """Of all examples after descent with these weights."""
    plan = {**PLAN, **changed}
    rule = mh.GD(plan.pop("step_size"))
    run = mh.train(start, data, rule=rule, loss=mh.Weighted(weight), dtype="float64", **plan)
    return np.logaddexp(0.0, -data.labels * run.final.scores(data))


def test_the_trace_is_that_of_runs_with_slightly_other_weights(mixture, start):
    data, n, small = mixture.sample(5, key=jax.random.key(1)), 5, 1e-4
    weight, influence = np.full(n, 1 / n), np.zeros((n, n))
    for j in range(n):
        ends = [losses(start, data, weight + sign * small * np.eye(n)[j]) for sign in (-1, 1)]
        influence[:, j] = (ends[0] - ends[1]) / (2 * small)
    expected = np.trace(influence) / n - influence.sum() / n**2
    found = mh.measures.optimism(start, data, **PLAN, steps=[7])
    assert found.trace[-1] == pytest.approx(
        expected, rel=1e-6
    )  # central differences: small² relative to the curvature
    assert found.steps.tolist() == [7, 20] and (found.standard_error == 0).all()
    assert found.train_loss[-1] == pytest.approx(losses(start, data, weight).mean(), rel=1e-12)
    assert found.gap == pytest.approx(found.trace / n)
    # the second sum is what a longer step gains
    longer = [
        losses(start, data, weight, step_size=0.3 * (1 + sign * small)).mean() for sign in (-1, 1)
    ]
    assert influence.sum() / n**2 == pytest.approx((longer[0] - longer[1]) / (2 * small), rel=1e-6)


def test_n_times_the_exact_gap_tends_to_the_trace_of_the_distribution(mixture, start):
    """Two sequences, drawn with equal chance: samples of n are counts, so the expected gap is a sum over n + 1 runs."""
    atoms = mixture.sample(2, key=jax.random.key(5))
    limit = mh.measures.optimism(start, atoms, step_size=0.3, num_steps=8).trace[-1]
    scaled = []  # n times the expected gap
    for n in (16, 32):
        gap = 0.0
        for k in range(n + 1):
            weight = np.array([k / n, 1 - k / n])
            gap += comb(n, k) / 2**n * (losses(start, atoms, weight, num_steps=8) @ (0.5 - weight))
        scaled.append(n * gap)
    off = np.array(scaled) - limit
    assert off[1] / off[0] == pytest.approx(
        0.5, abs=0.02
    )  # an error of order 1/n is halved, up to terms of order 1/n²
    assert 2 * scaled[1] - scaled[0] == pytest.approx(
        limit, rel=0.005
    )  # and cancels, up to terms of that order


def test_probes_estimate_the_trace_with_the_error_that_they_state(mixture, start):
    data = mixture.sample(5, key=jax.random.key(1))
    exact = mh.measures.optimism(start, data, **PLAN)
    found = mh.measures.optimism(start, data, **PLAN, num_probes=100, key=jax.random.key(3))
    assert 0 < found.standard_error[-1] < 0.2 * exact.trace[-1]
    assert abs(found.trace[-1] - exact.trace[-1]) < 3 * found.standard_error[-1]
    assert "±" in str(found) and "±" not in str(exact)
    with pytest.raises(ValueError, match="num_probes=4 directions are drawn at random: pass key="):
        mh.measures.optimism(start, data, **PLAN, num_probes=4)


def test_leaving_one_out_at_a_longer_step_is_training_on_the_others(mixture, start):
    data, n = mixture.sample(5, key=jax.random.key(1)), 5
    twins = mh.measures.leave_one_out(start, data, step_size=0.3 * n / (n - 1), num_steps=20)
    for i in range(n):
        others = np.where(np.arange(n) == i, 0.0, 1 / (n - 1))
        assert twins.left_out_loss[i, -1] == pytest.approx(losses(start, data, others)[i], rel=1e-9)
