"""The screening estimate against exact retraining."""

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.measures import stability
from manyheads.measures.stability_estimate import _segments


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


def estimate(mixture, heads, **options):
    data, first = (
        mixture.sample(16, key=jax.random.key(1)),
        mixture.sample(60, key=jax.random.key(2)),
    )
    return mh.measures.estimate_leave_one_out(
        mh.first_phase(first, heads),
        data,
        step_size=0.3,
        num_steps=60,
        num_exact=16,
        key=jax.random.key(3),
        **options,
    )


def test_with_very_many_heads_the_kernel_stands_still_and_the_estimate_is_exact(mixture):
    found = estimate(mixture, 10**10, num_kernels=1)
    assert found.relative_error.max() < 1e-6
    assert np.abs(found.left_out_loss - found.exact.left_out_loss[:, -1]).max() < 1e-6


def test_with_few_heads_it_ranks_and_its_error_is_stated(mixture):
    found = estimate(mixture, 16)
    exact = found.exact.distance[:, -1]
    assert np.array_equal(found.relative_error, np.abs(found.distance / exact - 1))
    assert found.correlation == pytest.approx(np.corrcoef(found.distance, exact)[0, 1])
    assert found.correlation > 0.99
    assert "on 16 examples done exactly" in str(found)


@pytest.mark.parametrize(
    "steps,count", [(60, 8), (8, 8), (9, 8), (200, 1), (5, 3), (1000, 20), (100, 20), (30, 8)]
)
def test_stretches_cover_the_run(steps, count):
    ends, middles = _segments(steps, count)
    assert len(ends) == len(middles) == count and ends[-1] == steps
    starts = np.concatenate([[0], ends[:-1]])
    assert np.all(ends > starts) and np.all((starts <= middles) & (middles < ends))
    assert np.max(ends - starts) <= 2 * steps / count + 1  # as with squares that do not collide
    assert np.all(np.diff(ends - starts) >= -1)  # and never much shorter later on, but for rounding


@pytest.mark.parametrize("done", [0, 1, 3])
def test_what_an_interruption_leaves_is_used(mixture, monkeypatch, done):
    original, calls = stability.twin_runs, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) > done:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(stability, "twin_runs", interrupted)
    found = estimate(mixture, 16)
    assert found.exact.status == "interrupted" and len(found.relative_error) == done
    assert np.isfinite(found.correlation) == (done > 1)
    assert ("error not measured" in str(found)) == (done == 0)
    assert ("no run was finished" in str(found.exact)) == (done == 0)


def test_bad_numbers_are_answered(mixture):
    with pytest.raises(ValueError, match="num_kernels=61 must be between 1 and num_steps=60"):
        estimate(mixture, 2, num_kernels=61)


def test_examples_that_move_nothing_have_no_relative_error():
    # at a margin of thousands no slope is left: every twin is the run itself
    data = mh.Dataset(
        np.ones((4, 1, 1)) * np.array([1.0, -1.0, 1.0, -1.0])[:, None, None],
        np.array([1.0, -1, 1, -1]),
    )
    model = mh.MultiHead(np.zeros((1, 1, 1)), np.full((1, 1, 1), 5e3), np.ones(1))
    found = mh.measures.estimate_leave_one_out(
        model, data, step_size=0.1, num_steps=3, num_kernels=1, num_exact=2, key=jax.random.key(0)
    )
    assert found.relative_error.tolist() == [0.0, 0.0] and "nan" not in str(found)
