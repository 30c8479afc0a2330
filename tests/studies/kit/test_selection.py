import numpy as np
import pytest

from manyheads.studies.kit.estimate import mean
from manyheads.studies.kit.selection import at_end, best, bracketed, held_out, taken


def test_a_seed_does_not_choose_for_itself():
    scores = np.array(
        [[1.0, 1.0, 1.0], [0.0, 0.0, 9.0]]
    )  # the second is best on average because of the last seed
    assert best(scores) == 1
    assert held_out(scores).tolist() == [1, 1, 0]
    assert taken(scores, held_out(scores)).tolist() == [0.0, 0.0, 1.0]


def test_the_best_of_equal_choices_is_not_better_than_they_are():
    """Eight choices of mean 0: their best mean lies above 0 by selection alone, the held-out one does not."""
    rng = np.random.default_rng(0)
    naive, honest = [], []
    for _ in range(2000):
        scores = rng.normal(size=(8, 4))
        naive.append(scores[best(scores)].mean())
        honest.append(mean(taken(scores, held_out(scores))).value)
    assert np.mean(naive) > 0.5
    assert abs(np.mean(honest)) < 4 * np.std(honest) / np.sqrt(2000)  # standard error


def test_failed_choices_do_not_count_and_missing_seeds_decide_nothing():
    scores = np.array([[1.0, 1.0, np.nan], [2.0, np.nan, np.nan], [0.5, 3.0, np.nan]])
    assert best(scores) == 2 and held_out(scores).tolist() == [2, 1, -1]
    found = taken(scores, held_out(scores))
    assert (
        found[0] == 0.5 and np.isnan(found[1]) and np.isnan(found[2])
    )  # the choice failed for the second seed
    assert best(np.full((2, 3), np.nan)) == -1
    assert held_out([[1.0], [2.0]]).tolist() == [1]  # a single seed


def test_curves_are_taken_at_the_choice_of_their_seed():
    curves = np.arange(12.0).reshape(2, 3, 2)
    assert taken(curves, np.array([1, 0, -1]))[:2].tolist() == [[6.0, 7.0], [2.0, 3.0]]
    assert np.isnan(taken(curves, np.array([1, 0, -1]))[2]).all()


@pytest.mark.parametrize(
    ("means", "ends"), [([1, 2, 3], True), ([3, 2, 1], True), ([1, 3, 2], False)]
)
def test_a_best_choice_at_the_end_of_a_ladder_is_none(means, ends):
    assert at_end(np.array(means, float)[:, None] * np.ones(4)) == ends


def test_the_best_rung_is_chosen_by_other_seeds():
    ladder = np.array([[4.0, 1.0, 4.0, 1.0], [2.0, 5.0, 2.0, 6.0], [3.0, 0.0, 3.0, 0.0]])
    best, values = bracketed(ladder)
    assert best == 1 and values.tolist() == [
        5.0,
        6.0,
    ]  # the even seeds choose, the odd ones are reported
    ends = bracketed(ladder[::-1][1:])  # the last rung is no best
    assert ends[0] is None and np.isnan(ends[1]).all()
    diverged = ladder.copy()
    diverged[1, 0] = np.nan  # a run that diverged is not the best
    assert bracketed(diverged)[0] is None
