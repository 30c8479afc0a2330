import math

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import manyheads as mh
from manyheads.estimator.advice import (
    Measured,
    Recommendation,
    _held_out,
    _promise,
    logistic_regression,
    recommend,
)
from manyheads.estimator.search import Trial, Wishes
from manyheads.theory.deora2023.planner import Demand

RNG = np.random.default_rng(0)
X = RNG.standard_normal((200, 4, 3))
PLAIN = Wishes(1, "zero", 1.0, 60, early_stopping=False)
SIGNAL = np.where(X[:, 1, 0] > 0, "up", "down")


def advice(labels, **more):
    return recommend(
        mh.Dataset.from_arrays(X, labels), wishes=PLAIN, positions="one-hot", theory=False, **more
    )


@pytest.fixture(scope="module")
def found():
    return advice(SIGNAL)


def test_the_error_is_that_of_the_model_on_sequences_it_never_saw(found):
    held = _held_out((SIGNAL == "up").astype(int), 0.2, 0)
    assert (
        (np.sum(~held), np.sum(held))
        == (found.num_train, found.attention.num_held_out)
        == (160, 40)
    )
    assert found.attention.error == np.mean(found.fitted.predict(X[held]) != SIGNAL[held])


@pytest.mark.parametrize(
    ("counts", "share"), [((59, 71), 0.2), ((357, 12), 0.2), ((30, 1), 0.2), ((8, 2, 40), 0.9)]
)
def test_a_share_of_each_class_is_held_out(counts, share):
    codes = RNG.permutation(np.repeat(np.arange(len(counts)), counts))
    held = _held_out(codes, share, seed=3)
    for code, count in enumerate(counts):
        mine = held[codes == code]
        assert (
            abs(mine.sum() - share * count) <= 1 and (count == 1 or mine.any()) and not mine.all()
        )
    assert not np.array_equal(held, _held_out(codes, share, seed=4))


def test_a_signal_is_found_and_the_recommendation_is_one(found):
    text = str(found)
    assert not found.is_noise and text.count("Recommendation") == 1 and "noise" not in text
    assert (
        "1 head, zero start, step size 1, 60 steps" in text
        and "(40 sequences, 20%, set aside with seed 0" in text
    )
    assert found.flattened.error < 0.2 < found.pooled.error


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_coin_flips_look_like_noise(seed):
    flips = np.random.default_rng(seed).integers(0, 2, 200)
    told = advice(flips, seed=seed)
    assert told.is_noise
    first, second, *rest = str(told).splitlines()
    assert first == "Recommendation: none. Labels look like noise: no better than chance."
    assert second.startswith("Best setting tried: 1 head") and not any(
        "noise" in line for line in rest
    )


def test_the_interval_is_clopper_and_pearson():
    for errors, num in ((0, 30), (3, 40), (17, 40), (30, 30)):
        expected = binomtest(errors, num).proportion_ci(0.95, method="exact")
        assert np.allclose(Measured("x", errors, num, 0, 0).interval, expected)


def test_chance_is_beaten_by_an_exact_sign_test():
    for gained, lost in ((0, 0), (3, 0), (6, 0), (9, 2), (2, 9), (13, 3)):
        if gained + lost:
            expected = binomtest(gained, gained + lost, alternative="greater").pvalue
            assert np.isclose(Measured("", 5, 100, gained, lost).p_value, expected, rtol=1e-12)
        assert Measured("", 5, 100, gained, lost).beats_chance == (
            (gained, lost) in ((6, 0), (13, 3))
        )


def test_few_sequences_of_a_class_are_too_few_to_tell_and_not_noise():
    rare = np.where(np.arange(200) < 12, "rare", "usual")
    tokens = X + 9.0 * (rare == "rare")[:, None, None]
    told = recommend(mh.Dataset.from_arrays(tokens, rare), wishes=PLAIN, theory=False)
    assert (
        told.attention.num_errors == 0
        and told.usual == "usual"
        and told.is_undecided
        and not told.is_noise
    )
    assert "40 held-out sequences, 2 of class rare, are too few to tell" in str(told)
    assert "too few sequences of class rare, at least 6 are needed" in str(
        told
    ) and "noise" not in str(told)
    assert told.to_dict()["too_few_to_tell"] is True
    rare = np.where(np.arange(200) < 40, "rare", "usual")  # eight are held out
    tokens = X + 9.0 * (rare == "rare")[:, None, None]
    told = recommend(mh.Dataset.from_arrays(tokens, rare), wishes=PLAIN, theory=False)
    assert told.attention.beats_chance and not told.is_undecided and not told.is_noise


def test_coin_flips_are_rarely_called_better_than_chance():
    """Guesses of three independent coins on balanced labels: better in at most 5% of sets, noise in most others."""
    rng, better, noise = np.random.default_rng(5), 0, 0
    for _ in range(2000):
        answers = rng.permutation(np.arange(40) % 2)
        tried = []
        for guesses in rng.integers(0, 2, (3, 40)):
            right = guesses == answers
            gained, lost = int((right & (answers == 1)).sum()), int((~right & (answers == 0)).sum())
            tried.append(Measured("", int((~right).sum()), 40, gained, lost))
        told = Recommendation(None, *tried, 0.5, "0", 160, 0, "")
        better += any(one.beats_chance for one in tried)
        noise += told.is_noise
    assert better / 2000 < 0.05 and noise / 2000 > 0.75


def test_without_a_promise_there_is_no_empty_line(found):
    assert found.promise == "" and not str(found).endswith("\n")


def test_logistic_regression_is_that_of_scikit_learn():
    features, labels = X[:, 0], np.where(X[:, 0, 0] + RNG.standard_normal(200) > 0, 1.0, -1.0)
    scaler = StandardScaler().fit(features)
    theirs = LogisticRegression(C=1.0).fit(scaler.transform(features), labels)
    new = RNG.standard_normal((500, 3))
    ours = np.where(logistic_regression(features, labels)(new) > 0, 1.0, -1.0)
    assert np.mean(ours == theirs.predict(scaler.transform(new))) > 0.995


def test_who_wins_is_said(found):
    def told(attention, pooled, flattened):
        counts = (
            Measured("", n, 100, 50 - n // 2, n - n // 2) for n in (attention, pooled, flattened)
        )
        return str(Recommendation(found.fitted, *counts, 0.5, "up", 400, 0, ""))

    assert "Attention makes 5 errors fewer than the better of the two among 100" in told(5, 30, 10)
    assert "equally many errors: the linear model is enough" in told(5, 30, 5)
    assert "Logistic regression makes 3 errors fewer: use it" in told(8, 5, 9)
    assert "Attention is no better than chance here; use logistic regression" in told(48, 5, 9)
    assert "Attention makes 1 error fewer" in told(4, 30, 5)
    assert "Labels look like noise" in told(48, 52, 46)
    assert "100 held-out sequences, 50 of class down, are too few to tell" in told(48, 38, 45)


def test_the_promise_is_for_these_settings_or_says_what_is_missing(found):
    many = Demand("ours", 1e9, 0.1, 1000.0, 1.0, 0.05)
    few = Demand("ours", 1.0, 0.1, 1000.0, 1.0, 0.05)
    none = Demand("ours", math.inf, math.nan, math.nan, math.nan, math.nan, "no number is enough")
    printed = Demand("the paper, its hidden constants read as 1", 1.0, 0.1, 10.0, 1.0, 0.05)
    assert (
        "not practical: for a train loss of 0.05 the theory would need 1.0e+09 heads"
        in _promise(found.fitted, PLAIN, 0, (many, none))
    )
    assert "promises a train loss of 0.05 with these heads" in _promise(
        found.fitted, PLAIN, 0, (few, many)
    )
    for silent in ((), (none,), (printed,)):
        assert "promises nothing for this setting" in _promise(found.fitted, PLAIN, 0, silent)


def test_too_few_sequences_are_refused():
    with pytest.raises(
        ValueError, match="12 sequences are too few to hold some out; at least 20 are needed"
    ):
        recommend(mh.Dataset.from_arrays(X[:12], SIGNAL[:12]))


def test_one_is_singular():
    assert str(Trial("zero", 1.0, (0.5,), (1,))) == "1 head, zero start, step size 0.5, 1 step"
    assert str(Trial("zero", 2.0, (0.5, 0.5), (1, 1000))).endswith(
        "2 heads, zero start, step size 0.5, 1 to 1,000 steps"
    )


def test_measurements_are_no_classes():
    labels = np.round(X[:, 0, 0], 1)
    values, codes = np.unique(labels, return_inverse=True)
    with pytest.raises(
        ValueError, match="look like numbers to be predicted, and this is a classifier"
    ):
        recommend(
            mh.Dataset.from_arrays(X, labels > 0),
            classes=(codes, tuple(map(str, values))),
            wishes=PLAIN,
            theory=False,
        )
