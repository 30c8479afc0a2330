import numpy as np
import pytest
from synthetic import filled, wiggle

from manyheads.studies.margins import study as margins


def records(values):
    return ("record",), np.asarray(values, dtype=float)


def margins_results(one, many, growing=True):
    """Final margins: `one` of γ_attn for one head, `many` of the linear margin for the most heads."""
    sweeps = margins.sweeps("quick")

    def margin(num_heads, seed, **_):
        last = 3.0 * one if num_heads <= 2 else 0.7 * many
        return records(
            last
            * wiggle(seed)
            * np.array([0.5, 0.6, 0.8, 1.0] if growing else [1.4, 1.3, 1.2, 1.0])
        )

    values = dict(
        margin=margin,
        focus=lambda num_heads, seed, **_: records(0.3 * wiggle(seed) * np.ones(4)),
        train_loss=lambda **_: records(np.ones(4)),
        linear=lambda **_: 0.55,
        linear_sample=lambda **_: 0.7,
        attention=lambda **_: 3.0,
    )
    steps = ("record", [0, 20, 200, 2000])
    return {
        name: filled(sweep, **values).assign_coords(step=steps) for name, sweep in sweeps.items()
    }


def test_margins_reached_or_not():
    short = margins.finding(margins_results(0.7, 0.8))
    assert short.answer == (
        "No: after 2,000 steps one head has 70% of it, 1,024 heads stay below the best linear margin of the sample "
        "(mixture with ζ from 0.125 to 0.5, 80 sequences, zero start, step size 0.2)"
    )
    assert "still grows" in short.text and "does not exceed" in short.text
    there = margins.finding(margins_results(1.2, 1.5, growing=False))
    assert there.answer.startswith(
        "Yes: one head reaches the attention margin, 1,024 heads pass the best linear"
    )
    assert "one head falls" in there.text and "exceeds that of the best linear" in there.text
    assert len(margins.figures(margins_results(0.7, 0.8))) == 2
    near = margins.finding(margins_results(0.7, 1.0))
    assert (
        "70% of it (mixture" in near.answer
        and "is not clearly different from that of the best linear" in near.text
    )


def test_margins_that_are_missing_decide_nothing():
    some = margins_results(0.7, 0.8)
    before = margins.finding(some)
    some["sparsity"]["margin"][:, 0, 0, 0] = (
        np.nan
    )  # one head at one sparsity: the mean over the others is another
    found = margins.finding(some)
    key = "share.1"
    assert before.numbers[key].estimate.count == 3 and found.numbers[key].estimate.count == 2
    assert found.text.endswith("1 of 54 cells is missing and left out.") and margins.figures(some)
    assert margins.finding(margins_results(np.nan, np.nan)).answer == "Not measured"


def test_the_line_drawn_is_the_margin_that_the_words_compare_with():
    """1,024 heads between the formula (.55) and the best linear margin of the sample (.7): below, in words and drawn."""
    made = margins_results(0.7, 0.6 / 0.7)
    assert (
        "1,024 heads stay below the best linear margin of the sample"
        in margins.finding(made).answer
    )
    time, sparsity = margins.figures(made)
    for panel in (*time.panels, sparsity.panels[0]):
        drawn = {mark.label: mark for mark in panel.marks}
        assert (
            drawn["1,024 heads"].y[-1]
            < drawn["best linear margin of the sample"].y[-1]
            == pytest.approx(0.7)
        )
    assert margins.finding(made).numbers["formula"].estimate.value == pytest.approx(0.55 / 0.7)
