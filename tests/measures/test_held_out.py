"""Loss, error and gap against plain NumPy and SciPy's binomial test."""

import jax
import numpy as np
import pytest
from scipy.stats import binomtest

import manyheads as mh


@pytest.fixture(scope="module")
def case():
    mixture = mh.TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.25,
        signal=1.0,
        noise_mu=0.3,
        noise_nu=0.3,
        noise_norm=2.0,
        key=jax.random.key(0),
    )
    train, test = (
        mixture.sample(10, key=jax.random.key(1)),
        mixture.sample(200, key=jax.random.key(2)),
    )
    model = mh.train(
        mh.zero_start(2, num_tokens=4, dim=6), train, rule=mh.GD(0.5), num_steps=50, dtype="float64"
    ).final
    return model, train, test


def test_numbers_are_the_plain_ones(case):
    model, train, test = case
    found = mh.measures.risk(model, train, test)
    margins = test.labels * np.array([float(model(X)) for X in test.tokens])
    losses = np.log1p(np.exp(-margins))
    assert found.test_loss == pytest.approx(losses.mean(), rel=1e-12)
    assert found.test_loss_error == pytest.approx(losses.std(ddof=1) / np.sqrt(200), rel=1e-12)
    wrong = int((margins <= 0).sum())
    assert 0 < wrong < 200
    assert found.test_error == wrong / 200
    assert found.test_error_upper == pytest.approx(
        binomtest(wrong, 200).proportion_ci(0.90, "exact").high, rel=1e-9
    )
    assert found.gap == found.test_loss - found.train_loss
    assert found.train_error == 0 and "gap" in str(found)


def test_the_standard_error_covers_repeated_samples(case):
    model, train, test = case
    parts = [mh.measures.risk(model, train, test.subset(np.arange(20) + 20 * k)) for k in range(10)]
    spread = np.std([part.test_loss for part in parts], ddof=1)
    stated = np.sqrt(np.mean([part.test_loss_error**2 for part in parts]))
    assert 0.4 < stated / spread < 2.5  # ten repetitions know a spread to about 25%


def test_seeing_no_error_does_not_prove_there_is_none(case):
    model, train, _ = case
    found = mh.measures.risk(model, train, train)
    assert found.test_error == 0 and found.test_error_error == 0
    assert found.test_error_upper == pytest.approx(1 - 0.05 ** (1 / 10), rel=1e-9)


def test_a_score_of_zero_is_an_error():
    data = mh.Dataset.from_arrays(np.ones((2, 2, 2)), [1.0, -1.0])
    found = mh.measures.risk(mh.zero_start(1, num_tokens=2, dim=2), data, data)
    assert found.train_error == found.test_error == found.test_error_upper == 1
