import math

import numpy as np
import pytest
from scipy import stats

from manyheads.studies.kit.estimate import Estimate, crossed, mean, number, power, ratio, share
from manyheads.studies.kit.words import heads_text, lacking, tick_text


def test_the_interval_is_students():
    values = [1.0, 2.0, 4.0, 9.0]
    found = mean(values)
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.value, found.low, found.high, found.count) == pytest.approx((4.0, low, high, 4))


def test_the_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = [(e := mean(rng.normal(3.0, 2.0, 4))).low <= 3.0 <= e.high for _ in range(4000)]
    assert abs(np.mean(hits) - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 4000)


def test_an_interval_over_seeds_and_test_sequences_counts_both():
    """Where rows and columns differ by chance, it covers the truth at least as often as it says; one over rows does not."""
    rng, hits, narrow = np.random.default_rng(0), [], []
    for _ in range(400):
        table = (
            3
            + 0.1 * rng.normal(size=(5, 1))
            + 2 * rng.normal(size=(1, 60))
            + rng.normal(size=(5, 60))
        )
        both, rows = crossed(table), mean(table.mean(axis=1))
        hits.append(both.low <= 3 <= both.high)
        narrow.append(rows.low <= 3 <= rows.high)
    assert np.mean(hits) > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400) and np.mean(narrow) < 0.9


def test_a_crossed_interval_is_that_of_its_means_where_only_one_of_the_two_matters():
    rows, columns = np.array([1.0, 2.0, 4.0]), np.arange(6.0)
    only_rows, only_columns = crossed(np.tile(rows[:, None], 50)), crossed(np.tile(columns, (3, 1)))
    for found, values in ((only_rows, rows), (only_columns, columns)):
        expected = mean(values)
        assert (found.value, found.low, found.high) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )
    assert (
        crossed([[1.0, np.nan], [0.0, 1.0]]).count == 1 and crossed([[1.0, 0.0]]).high == math.inf
    )
    assert crossed(np.full((2, 3), np.nan)).count == 0 and crossed(np.ones((2, 3))).high == 1.0


@pytest.mark.parametrize("hits", [0, 2, 10])
def test_a_share_has_wilsons_interval_within_0_and_1(hits):
    found = share([1.0] * hits + [0.0] * (10 - hits))
    z, p = stats.norm.ppf(0.975), hits / 10
    middle, half = (
        (p + z**2 / 20) / (1 + z**2 / 10),
        z / (1 + z**2 / 10) * math.sqrt(p * (1 - p) / 10 + z**2 / 400),
    )
    assert (found.value, found.low, found.high) == pytest.approx(
        (p, middle - half, middle + half), abs=1e-12
    )
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_one_seed_decides_nothing():
    found = mean([5.0])
    assert not found.above(-1e9) and not found.below(1e9)
    assert (str(found), found.interval) == ("5", "none")


def test_an_interval_is_never_two_equal_numbers():
    assert mean([-0.5, -0.50001, -0.49999]).interval == "± 2e-5"
    assert mean([2.0, 2.0, 2.0]).interval == "equal for all seeds"
    assert (
        Estimate(3.0, 1.0, math.inf, 4).interval == "from 1"
        and mean([1.0, 2.0]).interval == "-4.85 to 7.85"
    )


def test_what_failed_is_left_out_and_nothing_is_not_a_number():
    assert mean([1.0, np.nan, 3.0]).count == 2
    nothing = mean([np.nan])
    assert str(nothing) == "not measured" and not nothing.above(0) and not nothing.below(0)


def test_power_finds_the_exponent_and_ratio_the_factor():
    H = np.array([1.0, 4.0, 16.0, 64.0])
    exact = power(H, np.stack([3 * H**-0.5, 7 * H**-0.5], axis=1))
    assert (exact.value, exact.low, exact.high) == pytest.approx((-0.5, -0.5, -0.5))
    assert power(H, np.stack([3 * H**-0.5, 0 * H], axis=1)).count == 1
    twice = ratio([2.0, 8.0, 6.0], [1.0, 4.0, 3.0])
    assert (twice.value, twice.low, twice.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.02141, "0.0214"),
        (0.5, "0.5"),
        (1234.5, "1,230"),
        (5.1e8, "5.1e8"),
        (3.21e-5, "3.21e-5"),
        (0, "0"),
        (-0.28, "-0.28"),
        (math.inf, "infinite"),
        (math.nan, "not a number"),
        (1e12, "1e12"),
    ],
)
def test_numbers_read_well(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1"), (1024, "1,024"), (1e6, "10⁶"), (25550, "25,550"), (3e6, "3e6")]
)
def test_heads_read_well(count, text):
    assert heads_text(count) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (1024, "1,024"), (1e6, "10⁶"), (1e12, "10¹²"), (0.125, "0.125")]
)
def test_ticks_read_well(value, text):
    assert tick_text(value) == text


def test_only_one_seed_has_no_interval():
    assert Estimate(3.0, 2.0, math.inf, 12).interval == "from 2"
    assert Estimate(3.0, 2.0, 4.5, 12).interval == "2 to 4.5" and mean([3.0]).interval == "none"


def test_no_number_of_heads_has_a_text():
    assert heads_text(math.inf) == "infinite" and tick_text(math.inf) == "infinite"


def test_what_is_missing_is_counted_and_never_false():
    assert lacking([1.0, 2.0]) == "" and lacking([True], [False]) == ""
    assert (
        lacking([1.0, math.nan, math.inf], [[math.nan]]) == "2 of 4 cells are missing and left out."
    )
    assert lacking([math.nan]) == "1 of 1 cells is missing and left out."
    assert share([1.0, math.nan, 1.0]).value == 1 and share([math.nan]).count == 0


def test_a_narrow_interval_is_not_printed_as_a_point():
    narrow = Estimate(-0.5, -0.5 - 2e-6, -0.5 + 2e-6, 6)
    assert narrow.interval == "± 2e-6"
    assert Estimate(-0.5, -0.5, -0.5, 6).interval == "equal for all seeds"
    assert Estimate(-0.5, -0.6, -0.4, 6).interval == "-0.6 to -0.4"
