"""Kernel drift along a run and the limit of many heads."""

import jax
import numpy as np
import pytest
from measures.test_kernel import reference_parts

import manyheads as mh


@pytest.fixture(scope="module")
def mixture():
    return mh.TokenizedMixture(
        num_tokens=4, dim=5, num_patterns=2, sparsity=0.5, signal=1.5, key=jax.random.key(0)
    )


def test_a_lazy_run_does_not_move_the_kernel_and_a_rich_one_does(mixture):
    data, first = (
        mixture.sample(12, key=jax.random.key(1)),
        mixture.sample(30, key=jax.random.key(2)),
    )
    change = {}
    for heads in (2, 1e4, 1e8):
        run = mh.train(
            mh.first_phase(first, heads),
            data,
            rule=mh.GD(0.5),
            num_steps=40,
            dtype="float64",
            snapshots=[20],
        )
        drift = mh.measures.kernel_drift(run, data)
        assert drift.steps.tolist() == [0, 20, 40] and drift.relative_change[0] == 0
        assert np.all(drift.alignment <= 1 + 1e-12)
        change[heads] = drift.relative_change[-1]
    # each head moves by an amount of order 1/sqrt(H), and to first order the two classes of opposite sign cancel
    assert change[2] > 0.1
    assert change[1e4] / change[1e8] == pytest.approx(1e4, rel=0.01)
    assert "step       20" in str(drift)


def test_drift_is_the_distance_of_the_two_kernels(mixture):
    data = mixture.sample(9, key=jax.random.key(3))
    start = mh.gaussian_start(3, num_tokens=4, dim=5, key=jax.random.key(4))
    run = mh.train(start, data, rule=mh.GD(0.5), num_steps=10, dtype="float64")
    before, after = (mh.measures.tangent_kernel(model, data).matrix for model in (start, run.final))
    drift = mh.measures.kernel_drift(run, data, steps=[10])
    assert drift.relative_change[0] == pytest.approx(
        np.linalg.norm(after - before) / np.linalg.norm(before), rel=1e-12
    )


def test_the_stated_rounding_of_a_drift_holds_when_the_kernel_grows(mixture):
    data = mixture.sample(9, key=jax.random.key(3))
    small = mh.gaussian_start(2, num_tokens=4, dim=5, key=jax.random.key(4), readout_scale=1e-3)
    run = mh.train(small, data, rule=mh.GD(100.0), num_steps=1, dtype="float64")
    drift = mh.measures.kernel_drift(run, data, steps=[1])
    before, after = (sum(reference_parts(model, data)) for model in (run.start, run.final))
    exact = np.sqrt(np.sum((after - before) ** 2) / np.sum(before**2))
    assert exact > 10  # the kernel grew
    error = abs(float(drift.relative_change[0] - exact))
    assert error <= drift.accuracy


def test_the_gaussian_limit_is_where_many_heads_go(mixture):
    data = mixture.sample(6, key=jax.random.key(5))
    limit = mh.measures.gaussian_limit(data, key=jax.random.key(6), num_draws=2048)
    many = mh.gaussian_start(4096, num_tokens=4, dim=5, key=jax.random.key(7))
    K = mh.measures.tangent_kernel(many, data).matrix
    assert limit.num_draws == 2048
    # an independent draw of 4096 heads has about 0.7 of the standard error: 5 joint standard errors for 21 entries
    assert np.all(np.abs(K - limit.matrix) <= 5 * 1.23 * limit.standard_error)
    # the readout part of the diagonal at W = 0 is known: T |mean token|^2
    flat = mh.measures.gaussian_limit(
        data, key=jax.random.key(8), key_query_scale=0.0, readout_scale=0.0, num_draws=64
    )
    assert np.allclose(
        np.diag(flat.matrix), 4 * np.sum(data.tokens.mean(axis=1) ** 2, axis=1), rtol=1e-12
    )


def test_the_margin_of_a_limit_carries_its_standard_error(mixture):
    """Few draws leave a wide interval, which holds the margin of many; the matrix alone would be taken as exact."""
    data = mixture.sample(6, key=jax.random.key(5))
    few, many = (
        mh.measures.gaussian_limit(data, key=jax.random.key(k), num_draws=n)
        for k, n in ((0, 64), (1, 8192))
    )
    wide, narrow = (mh.measures.hard_margin(data.labels, gram=limit) for limit in (few, many))
    bare = mh.measures.hard_margin(data.labels, gram=few.matrix)
    assert wide.lower < narrow.lower and narrow.upper < wide.upper
    assert wide.upper - wide.lower > 10 * (narrow.upper - narrow.lower) > 0
    assert bare.upper - bare.lower < 1e-3 * (wide.upper - wide.lower)
    assert "for directions of norm 1" in str(wide) and "from 64 draws" in str(wide)
    kernel = mh.measures.tangent_kernel(mh.zero_start(2, num_tokens=4, dim=5), data)
    assert mh.measures.hard_margin(data.labels, gram=kernel).lower > 0


def test_the_standard_error_is_honest(mixture):
    data = mixture.sample(4, key=jax.random.key(9))
    limits = [
        mh.measures.gaussian_limit(data, key=key, num_draws=64, num_batches=16)
        for key in jax.random.split(jax.random.key(1), 30)
    ]
    spread = np.std([limit.matrix for limit in limits], axis=0, ddof=1)
    stated = np.sqrt(np.mean([limit.standard_error**2 for limit in limits], axis=0))
    assert np.all(
        np.abs(np.log(stated / spread)) < np.log(2)
    )  # 30 repetitions know a spread to about 13%


def test_too_few_draws_are_refused(mixture):
    with pytest.raises(ValueError, match="at least 2 batches"):
        mh.measures.gaussian_limit(
            mixture.sample(4, key=jax.random.key(9)),
            key=jax.random.key(0),
            num_draws=3,
            num_batches=8,
        )
