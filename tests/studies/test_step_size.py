"""How careful a step size is depends on the data: the answer is a range, for both bounds."""

import numpy as np
import pytest
from synthetic import filled, wiggle

from manyheads.studies.step_size import study as step_size


def results(factor=1000.0, slope=0.0, growth=0.0):
    """Stable steps of `factor` times ours for tokens of norm 1, growing like norm^growth and H^slope."""

    def stable(num_heads, seed, signal=1.0, token_norm=1.0, **_):
        return 0.01 * factor * (signal * token_norm) ** growth * num_heads**slope * wiggle(seed)

    return {
        name: filled(
            sweep,
            stable=stable,
            ours=lambda **_: 0.01,
            printed=lambda **_: 0.001,
            explicit=lambda **_: np.nan,
            capped=lambda **_: 0.0,
        )
        for name, sweep in step_size.sweeps("quick").items()
    }


def test_the_factor_is_a_range_over_the_data_and_names_both_bounds():
    """The old sentence gave one factor, whatever the data."""
    found = step_size.finding(results(growth=4))
    assert found.answer.startswith(
        "Safe in all 54 runs and, depending on the data, 1,000 to 260,000 times smaller than needed (ours) or "
        "10,000 to 2.6e6 (as printed)"
    )
    assert found.answer.endswith("first-phase start, 2 to 10⁶ heads, 100 steps")
    assert "times our 1/b₂(M)" in found.text and "times the paper's 1/β₂(M)" in found.text
    assert "S = 4" in found.text or "norm 4" in found.text
    assert len(step_size.figures(results())) == 2


def test_nearly_right_or_too_large():
    assert "nearly right" in step_size.finding(results(2.0)).answer
    assert step_size.finding(results(0.5)).answer.startswith(
        "Our step size is too large: in 54 of 54 runs"
    )
    assert "grows with H" in step_size.finding(results(1000, 0.5)).text
    assert "falls with H" in step_size.finding(results(1000, -0.05 - 0.1)).text
    assert step_size.finding(results(np.nan)).answer == "Not measured"


def test_one_run_below_the_theory_is_not_safe():
    bad = results()
    bad["hard"]["stable"][2, 1, 0] = 0.005  # half of ours
    assert step_size.finding(bad).answer.startswith(
        "Our step size is too large: in 1 of 54 runs it does not always"
    )
    near = results()
    near["hard"]["stable"][2, 1, 0] = 0.0095  # below, by less than the search can tell
    assert step_size.finding(near).answer.startswith(
        "Undecided: the largest stable step size is ours"
    )


def test_where_every_step_descends_there_is_no_factor():
    made = results(growth=4)
    made["easy"]["capped"].loc[{"signal": 4.0}] = 1.0
    made["easy"]["stable"].loc[{"signal": 4.0}] = 4096.0
    found = step_size.finding(made)
    assert found.numbers["over_ours.easy.4"].estimate.count == 0 and "260,000" in found.answer
    assert (
        "No largest step size was found on the easy mixture with S = 4: in some runs even 4,096"
        in found.text
    )
    assert "is not measured on the easy mixture" in found.text
    assert "on 1 of 9 data sets some runs descend at every step size tried" in found.answer


def test_the_interval_is_over_seeds():
    made = results(1000, 0.5)
    entry = step_size.finding(made).numbers["over_ours.hard.1"].estimate
    stable = made["hard"]["stable"].sel(signal=1.0).transpose("num_heads", "seed").values
    assert entry.value == pytest.approx(np.exp(np.log(stable / 0.01).mean())) and entry.count == 3
    assert entry.high / entry.low < 1.1  # the heads' differences are no noise
    made["random"]["stable"][0, 0, :2] = np.nan
    found = step_size.finding(made)
    assert found.text.endswith("2 of 54 cells are missing and left out.")
