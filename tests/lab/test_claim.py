"""Intervals cover, comparisons are corrected, nothing is dropped, and the interval alone decides."""

import math

import numpy as np
import pytest
import xarray
from scipy.stats import t as student

from manyheads import lab
from manyheads.lab.estimate import Estimate, wilson

RANDOM = np.random.default_rng(0)


def dataset(**variables):
    """Variables over (heads, step, seed)."""
    positions = {"heads": [1, 4, 16], "step": [0.1, 1.0, 10.0]}
    shaped = {name: (("heads", "step", "seed"), values) for name, values in variables.items()}
    return xarray.Dataset(shaped, positions | {"seed": list(range(8))})


def power(exponent, noise):
    heads = np.array([1, 4, 16.0])[:, None, None]
    return heads**exponent * np.exp(noise * RANDOM.standard_normal((3, 3, 8)))


def test_student_intervals_cover_as_they_say():
    draws = RANDOM.standard_normal((4000, 6))
    data = dataset(x=np.ones((3, 3, 8)))
    found = [lab.Results(data, 0.9).of(row) for row in draws]
    share = np.mean([e.low <= 0 <= e.high for e in found])
    assert abs(share - 0.9) < 0.02


def test_exponents_ratios_and_differences_are_paired_by_seed():
    common = np.exp(
        3 * RANDOM.standard_normal(8)
    )  # a factor of each seed, much wider than the effect
    results = lab.Results(dataset(x=power(0.5, 0.0) * common))
    assert results.exponent("x", "heads", step=1.0).low == pytest.approx(0.5)
    ratio = results.ratio("x", heads=(16, 4), step=1.0)
    assert (ratio.low, ratio.high) == pytest.approx((2, 2))
    both = results.ratio("x", heads=(16, 1), step=(0.1, 10.0))
    assert both.value == pytest.approx(4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_a_value_that_is_not_finite_leaves_the_claim_undecided(bad):
    values = power(0.5, 0.01)
    values[2, 1, 3] = bad
    claim = lab.Claim("It grows.", lambda r: r.exponent("x", "heads", step=1.0), above=0)
    with np.errstate(all="ignore"):
        (one,) = lab.decide([claim], dataset(x=values))
    assert one.verdict == "undecided" and one.estimate.lost == 1
    assert "1 of 8 values are not finite" in str(one.estimate)


def test_one_seed_decides_nothing():
    data = dataset(x=power(0.5, 0.1)).isel(seed=[0])
    claim = lab.Claim("It is there.", lambda r: r.mean("x", heads=1, step=1.0), above=-1e9)
    assert lab.decide([claim], data)[0].verdict == "undecided"


def test_all_comparisons_are_counted_and_corrected():
    data = dataset(x=power(0.0, 1.0))

    def all_of(r):
        return lab.largest([r.mean("x", heads=h, step=1.0) for h in (1, 4, 16)])

    claims = [lab.Claim("One.", all_of, above=0), lab.Claim("Two.", all_of, above=0)]
    one, two = lab.decide(claims, data)
    assert one.comparisons == two.comparisons == 6
    values = data.x.sel(heads=4, step=1.0).values
    half = student.ppf(1 - 0.05 / 6 / 2, 7) * values.std(ddof=1) / math.sqrt(8)
    mean = lab.Results(data, 1 - 0.05 / 6).mean("x", heads=4, step=1.0)
    assert mean.high - mean.value == pytest.approx(half)


@pytest.mark.parametrize(
    ("bounds", "low", "high", "verdict"),
    [
        ({"above": 1}, 1.01, 2, "supported"),
        ({"above": 1}, 0.9, 2, "undecided"),
        ({"above": 1}, 0.5, 1, "refuted"),
        ({"below": 1}, 0.5, 0.99, "supported"),
        ({"below": 1}, 1, 2, "refuted"),
        ({"near": 0.5}, 0.46, 0.54, "supported"),
        ({"near": 0.5}, 0.4, 0.52, "undecided"),
        ({"near": 0.5}, 0.56, 0.6, "refuted"),
        ({"near": 37, "within": 0}, 37, 37, "supported"),
        ({"near": 37, "within": 0}, 36, 36, "refuted"),
        ({"above": 0, "below": 1}, 0.2, 0.8, "supported"),
        ({"above": 0, "below": 1}, 1.2, 1.8, "refuted"),
        ({"above": 0}, math.nan, math.nan, "undecided"),
    ],
)
def test_the_interval_alone_decides(bounds, low, high, verdict):
    claim = lab.Claim("So it is.", lambda r: None, **bounds)
    assert claim.verdict(Estimate((low + high) / 2, low, high, 8)) == verdict


def test_a_claim_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="pass either near="):
        lab.Claim("So it is.", lambda r: None)


def test_a_seed_takes_no_part_in_its_own_choice():
    loss = np.ones((3, 3, 8)) * np.array([3.0, 1.0, 2.0])[:, None]
    loss[:, 2, 0] = 1e-6  # seed 0 alone would choose the last step
    tuned = lab.Results(dataset(loss=loss, other=loss + 5)).tuned("loss", over="step")
    assert tuned.values("loss", heads=4)[0] == 1
    # The others see it, and are misled by it: nobody else's choice is hidden from them.
    assert tuned.values("other", heads=4)[1:].tolist() == [7.0] * 7
    assert tuned.mean("loss", heads=4).note == "21 of 24 choices at an end of the ladder"


def test_what_diverges_is_not_chosen():
    loss = np.ones((3, 3, 8)) * np.array([3.0, 1.0, np.nan])[:, None]
    assert (
        lab.Results(dataset(loss=loss)).tuned("loss", over="step").mean("loss", heads=1).value == 1
    )


def test_shares_stay_between_zero_and_one():
    for values in ([0, 0, 0], [1, 1], [1, 0, 1]):
        found = wilson(np.array(values), 0.99)
        assert 0 <= found.low <= found.value <= found.high <= 1


def test_what_is_missing_is_said():
    results = lab.Results(dataset(x=power(0, 1)))
    for call, words in [
        (lambda: results.mean("y"), "nothing is called 'y'; there is x"),
        (lambda: results.mean("x", heads=5, step=1.0), "no setting.*1, 4, 16"),
        (lambda: results.mean("x", heads=4), "needs a choice of step"),
        (lambda: results.ratio("x", heads=4, step=1.0), "what is compared"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1.396, "1.4"), (0.0374, "0.0374"), (158_000, "158,000"), (449, "449"), (1023.6, "1,020"),
        (2.5e-7, "2.50e-7"), (-0.25, "-0.25"), (12.34, "12.3"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert lab.number(value) == text
