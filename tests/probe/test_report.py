"""Verdicts of the report, on invented results and on a task whose truth is known."""

import numpy as np
import pytest
from tests.probe.tasks import hidden

import manyheads as mh
from manyheads.probe.report import FLAT, FOREST, MEAN, PROBE, Report, report


def invented(**wrong):
    """A report on 200 sequences in which each method is wrong on the first so many."""
    names = {"probe": PROBE, "mean": MEAN, "flat": FLAT, "forest": FOREST}
    flags = {names[name]: np.arange(200) < count for name, count in wrong.items() if name in names}
    losses = {name: flag * 1.0 for name, flag in flags.items()}
    guessed = np.arange(200) < wrong["guess"]
    return Report(np.arange(200), flags, losses, guessed, (), "invented")


@pytest.mark.parametrize(
    ("wrong", "verdict", "words"),
    [
        (dict(probe=5, mean=30, flat=40, forest=30, guess=100), "attention", "and over the forest"),
        (dict(probe=5, mean=30, flat=40, forest=6, guess=100), "attention", "no difference seen"),
        (dict(probe=20, mean=22, flat=40, forest=19, guess=100), "tie", "on the mean token"),
        (dict(probe=40, mean=10, flat=40, forest=41, guess=100), "rival", "use it"),
        (dict(probe=97, mean=98, flat=99, forest=99, guess=100), "nothing", "most frequent label"),
    ],
)
def test_the_headline_names_the_winner_or_says_that_none_was_seen(wrong, verdict, words):
    found = invented(**wrong)
    assert found.verdict == verdict and words in found.headline
    share, low, high = found.interval()
    assert low <= share <= high and share == wrong["probe"] / 200


def test_the_report_of_a_task_that_needs_attention():
    X, y = hidden(100)
    probe = mh.AttentionProbe(num_heads=2, positions=False, penalty=1e-3)
    found = report(probe, X, y)
    assert found.verdict == "attention" and len(found.tested) == 100
    assert [point.heads for point in found.curve] == [1, 2, 4, 8, 16]
    assert found.curve[0].low <= found.curve[0].wrong <= found.curve[0].high
    kept = found.to_dict()
    assert kept["methods"][PROBE]["p"] is None and kept["methods"][FLAT]["p"] < 0.05
    assert "Held-out errors by number of heads" in str(found)
