"""When attention wakes: what is said follows the law that the steps obey."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import filled, wiggle

from manyheads.studies.sleep import cells
from manyheads.studies.sleep import study as sleep
from manyheads.sweeps.plan import make_plan


def results(law, hard=None, moved=1e-5, scale="quick"):
    """Steps to wake by a law of (heads, share), the same from both starts, another one on the hard mixture."""
    plans, levels = sleep.sweeps(scale), getattr(sleep.LEVELS, scale)
    shares = np.array(getattr(sleep.SHARES, scale))

    def steps(of):
        return lambda num_heads, seed, **_: (("share",), of(num_heads, shares) * wiggle(seed))

    made = {
        name: filled(
            plans[name],
            woke=steps(of),
            promised=lambda num_heads, **_: (("share",), np.floor(num_heads * shares)),
        )
        for name, of in (("zero", law), ("first", law), ("hard", hard or law))
    }
    made["normalized"] = filled(
        plans["normalized"],
        woke=steps(lambda num_heads, share: 10 * np.sqrt(num_heads * share)),
        promised=lambda num_heads, **_: (("share",), np.sqrt(num_heads) * shares),
    )
    for data in made.values():
        data["share"] = ("share", shares)
    made["speaks"] = filled(
        plans["speaks"],
        heads=lambda seed, **_: (("level",), np.full(len(levels), 34_000.0) * wiggle(seed)),
        moved=lambda seed, **_: (("level",), np.full(len(levels), moved)),
        allowed=lambda seed, **_: (("level",), np.full(len(levels), 2e-3)),
    )
    made["speaks"]["level"] = ("level", levels)
    return made


def exponential(heads, share):
    return 10 * np.exp(3.2 * np.sqrt(heads * share))


def power(heads, share):
    return 2000 * share * heads**1.5


def test_the_answer_follows_the_law_and_names_its_setting():
    found = sleep.finding(results(exponential))
    assert found.answer == (
        "On the easy mixture the steps until it wakes grow exponentially with the root of the number of heads (H = 4 to 64)"
    )
    assert found.conclusion.endswith("where Theorem 1′ applies, it has not woken.")
    assert found.numbers["slope.0.05"].estimate.value == pytest.approx(3.2, rel=1e-6)
    assert found.numbers["normalized"].estimate.value == pytest.approx(0.5, abs=1e-6)
    other = sleep.finding(results(power))
    assert "like a power of the number of heads" in other.answer


def test_a_mixture_with_another_law_is_named():
    found = sleep.finding(results(exponential, hard=power))
    assert "√H (zero start), √H (first-phase start) and log H (hard mixture)" in found.text


def test_a_run_that_has_not_woken_is_infinite_and_not_fitted():
    made = results(exponential)
    made["zero"]["woke"][dict(num_heads=-1)] = np.inf
    found = sleep.finding(made)
    assert "infinite with 64 heads" in found.sentence
    assert found.numbers["slope.0.05"].estimate.value == pytest.approx(3.2, rel=1e-6)


def test_nothing_measured_is_said():
    made = results(exponential)
    for data in made.values():
        for name in data.data_vars:
            data[name][:] = np.nan
    assert sleep.finding(made).answer == "Not measured"
    assert sleep.figures(made)


def test_the_third_panel_needs_two_levels():
    made = results(exponential)
    assert len(sleep.figures(made)[0].panels) == 2


def test_a_run_ends_once_its_attention_has_moved_and_says_the_same(monkeypatch):
    plan = make_plan(sleep.sweeps("quick")["zero"])
    cell = replace(plan.cells[0], train=replace(plan.cells[0].train, num_steps=60))
    found, lengths = {}, []
    original = cells._moved_in
    monkeypatch.setattr(
        cells, "_moved_in", lambda setup, steps: lengths.append(steps) or original(setup, steps)
    )
    for shorter in ((), (2, 30)):
        monkeypatch.setattr(cells, "SHORTER", shorter)
        found[shorter] = cells.wake(cell, shares=[0.005, 0.02])["woke"][1]
    assert lengths == [60, 2, 30] and np.array_equal(found[()], found[2, 30])
    assert 2 < found[()][1] <= 30
    assert cells.wake(cell, shares=[0.9])["woke"][1] == np.inf and lengths[3:] == [2, 30, 60]


def test_at_full_scale_every_sparsity_has_its_own_number():
    made = results(exponential, scale="full")
    found = sleep.finding(made)
    assert {"misfit.zero_start_zeta_0.125", "misfit.first_phase_start_zeta_0.5"} <= set(
        found.numbers
    )
    assert sleep.figures(made)
