"""Every finding follows from the data: the opposite results give the opposite sentence."""

import numpy as np
import pytest
from synthetic import filled, wiggle

from manyheads.studies.heads import study as heads
from manyheads.studies.step_size import study as step_size


def records(values):
    return ("record",), np.asarray(values, dtype=float)


def heads_results(slope, gap, depth, gaussian=None, noise=0.0):
    """Final losses that go like H^slope, convexity gaps like H^gap (None: no gap), curvature like H^depth.

    With `gaussian` the losses from that start go like H^gaussian; with `noise` the slopes differ between seeds.
    """
    sweeps = heads.sweeps("quick")

    def loss(num_heads, seed, start, **_):
        power = slope if gaussian is None or start != "gaussian" else gaussian
        return records(0.1 * num_heads ** np.array([0.0, power + noise * np.sin(2.7 * seed)]) * wiggle(seed))

    def share(num_heads, seed, **_):
        return 0.0 if gap is None else 0.1 * num_heads**gap * wiggle(seed)

    speed = filled(
        sweeps["speed"],
        train_loss=loss,
        test_loss=loss,
        focus=lambda num_heads, seed, **_: 0.2 * wiggle(seed),
        best_loss=lambda num_heads, seed, **_: 1e-3 * num_heads**slope * wiggle(seed),
        best_step=lambda **_: 1.0,
    ).assign_coords(step=("record", [0, 150]))
    convex = {
        name: filled(sweeps[name], gap=share, mean_loss=lambda **_: 1.0) for name in sweeps if name.startswith("convex")
    }
    curvature = filled(
        sweeps["curvature"],
        smallest=lambda num_heads, seed, **_: -0.3 * num_heads**depth * wiggle(seed),
        loss=lambda **_: 1.0,
    )
    return {"speed": speed, **convex, "curvature": curvature}


def test_heads_slower_or_faster_more_or_less_convex():
    slower = heads.finding(heads_results(0.4, -1.0, -0.5))
    assert slower.answer.startswith("No: on the mixture more heads train slower") and "more convex" in slower.answer
    assert "-0.5 from the" in slower.text and "the order stays the same" in slower.text
    faster = heads.finding(heads_results(-0.4, 1.0, 0.5))
    assert faster.answer.startswith("Yes: on the mixture more heads train faster") and "less convex" in faster.answer
    assert "the order stays the same" in faster.text
    nothing = heads.finding(heads_results(0.0, None, -0.5))
    assert nothing.answer.startswith("No effect") and "convex along the run at every" in nothing.answer
    assert len(heads.figures(heads_results(0.4, -1.0, -0.5))) == 3


def test_heads_that_depend_on_the_start_are_not_called_undecided():
    opposite = heads.finding(heads_results(0.4, -1.0, -0.5, gaussian=-0.4))
    assert "; with the best step size for each, more heads are slower." in opposite.text
    assert opposite.answer.startswith(
        "It depends on the start: at equal step size more heads are slower from the first-phase start and faster from"
    )
    vague = heads.finding(heads_results(0.01, -1.0, -0.5, noise=0.3))
    assert vague.answer.startswith("Undecided: at equal step size more heads are not clearly different;")
    half = heads.finding(heads_results(0.4, -1.0, -0.5, gaussian=0.0)).answer
    assert half.startswith("It depends on the start") and "equally fast from the Gaussian start" in half


def test_heads_without_runs_are_not_measured():
    some = heads_results(0.4, -1.0, -0.5)
    some["speed"]["train_loss"][0, 0, 0] = np.nan
    some["convexity_random"]["gap"][0, 0] = np.nan
    found = heads.finding(some)
    assert found.answer.startswith("No: on the mixture more heads train slower") and "more convex" in found.answer
    assert "2 of 124 cells are missing and left out." in found.text
    assert heads.figures(some)
    nothing = heads.finding(heads_results(np.nan, np.nan, np.nan))
    assert nothing.answer == "Not measured; the effect on convexity is not measured"


def step_results(factor, slope=0.0):
    return {
        name: filled(
            sweep,
            stable=lambda num_heads, seed, **_: factor * 0.01 * num_heads**slope * wiggle(seed),
            ours=lambda **_: 0.01,
            printed=lambda **_: 0.001,
            explicit=lambda **_: np.nan,
            capped=lambda **_: False,
        )
        for name, sweep in step_size.sweeps("quick").items()
    }


def test_the_step_size_is_too_careful_or_too_large():
    careful = step_size.finding(step_results(1000))
    assert "too careful" in careful.answer and "hardly depends on H" in careful.text
    assert "too large" in step_size.finding(step_results(0.5)).answer
    assert "nearly right" in step_size.finding(step_results(2.0)).answer
    assert "grows with H" in step_size.finding(step_results(1000, 0.5)).text
    assert "falls with H" in step_size.finding(step_results(1000, -0.5)).text
    assert len(step_size.figures(step_results(1000))[0].panels) == 2


def test_one_run_below_the_theory_is_not_safe():
    bad = step_results(1000)
    bad["mixture"]["stable"][2, 1] = 0.005  # half of ours
    found = step_size.finding(bad)
    assert found.answer == "The theory's step size is too large: in 1 of 32 runs it does not always descend"
    near = step_results(1000)
    near["mixture"]["stable"][2, 1] = 0.0095  # below, by less than the search can tell
    assert step_size.finding(near).answer.startswith("Undecided: the largest stable step size is the theory's")


def test_the_interval_of_the_step_size_is_over_seeds():
    made = step_results(1000, 0.5)
    found = step_size.finding(made)
    entry = found.numbers["over_ours.mixture"].estimate
    per_seed = np.exp(np.log(made["mixture"]["stable"].transpose("num_heads", "seed").values / 0.01).mean(axis=0))
    assert entry.count == 4 and entry.value == pytest.approx(np.exp(np.log(per_seed).mean()))
    assert entry.high / entry.low < 1.1  # the heads' differences are no noise
    assert found.numbers["over_ours_least.mixture"].estimate.value == pytest.approx(1000, rel=0.01)


def test_step_sizes_that_are_missing_or_capped_decide_nothing():
    some = step_results(1000)
    some["random"]["stable"][0, :3] = np.nan
    some["random"]["capped"] = some["random"]["capped"].astype(float) * np.nan
    found = step_size.finding(some)
    assert "too careful" in found.answer and found.text.endswith("3 of 32 cells are missing and left out.")
    assert "lower bound" not in found.text  # a missing cell was not capped
    assert step_size.finding(step_results(np.nan)).answer == "Not measured"
    capped = step_results(1000, 0.5)
    capped["mixture"]["capped"][0, 0] = True
    said = step_size.finding(capped).text
    assert "on the mixture these are lower bounds" in said
    assert "is not measured on the mixture and grows with H on random labels" in said
