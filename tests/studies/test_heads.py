"""What is said about speed and convexity follows from the data, and only what was compared fairly is said."""

import numpy as np
import pytest
from synthetic import filled, wiggle

from manyheads.studies.heads import study as heads

STEPS = np.arange(0, 101, 10)


def results(
    slope=0.4,
    best=0.4,
    random=None,
    gap=-1.0,
    depth=-0.5,
    curvature=0.0,
    top=False,
    noise=0.0,
    edge=5,
):
    """Losses that go like H^slope at every step size, and like H^best at the best one on noisy labels.

    `random` replaces both on random labels. `curvature` is the exponent of the largest eigenvalue. With `top` the best step
    size on noisy labels is the largest one. `edge` step sizes descend.
    """
    sweeps = heads.sweeps("quick")
    made = {}
    for name in heads.SPEED:
        here, there = (slope, best) if name != "random" or random is None else (random, random)

        def fall(num_heads, seed, power=here):
            return num_heads ** (power + noise * (-1) ** (seed // 2)) * wiggle(seed)

        def noisy(num_heads, seed, fall=fall, there=there, **_):
            k = np.arange(heads.RUNGS)
            return ("rung",), 0.1 * fall(num_heads, seed, there) * 2.0 ** (
                -k if top else abs(k - 3)
            )

        made[name] = filled(
            sweeps[name],
            train_loss=lambda num_heads, seed, fall=fall, **_: (
                ("record",),
                np.exp(-STEPS / 50) * fall(num_heads, seed),
            ),
            distance=lambda num_heads, seed, **_: (("record",), STEPS / 10.0),
            final=lambda num_heads, seed, fall=fall, **_: (
                ("rung",),
                fall(num_heads, seed) * 2.0 ** -np.arange(heads.RUNGS),
            ),
            noisy=noisy,
            falls=lambda **_: (("rung",), (np.arange(heads.RUNGS) < edge).astype(float)),
            largest=lambda num_heads, seed, **_: num_heads**curvature,
            smallest=lambda num_heads, seed, **_: -0.3 * num_heads**depth * wiggle(seed),
            loss=lambda **_: 1.0,
            focus=lambda num_heads, seed, **_: 0.2 * wiggle(seed),
        ).assign_coords(
            step=("record", STEPS), step_sizes=("rung", 0.4 * 2.0 ** np.arange(heads.RUNGS))
        )
    for name in heads.DATA:
        made[name] = filled(
            sweeps[name],
            gap=lambda num_heads, seed, **_: (
                0.0 if gap is None else 0.1 * num_heads**gap * wiggle(seed)
            ),
            mean_loss=lambda **_: 1.0,
        )
    return made


def test_slower_or_faster_more_or_less_convex():
    slower = heads.finding(results())
    assert (
        slower.answer.startswith("No: more heads train slower wherever")
        and "more convex" in slower.answer
    )
    assert (
        "slower in all 5 comparisons" in slower.text and "100 steps, 32 sequences" in slower.answer
    )
    assert slower.conclusion.startswith(
        "More heads train slower"
    )  # it is read without the question
    faster = heads.finding(results(-0.4, -0.4, gap=1.0))
    assert (
        faster.answer.startswith("Yes: more heads train faster") and "less convex" in faster.answer
    )
    nothing = heads.finding(results(0.0, 0.0, gap=None))
    assert (
        nothing.answer.startswith("No: no effect")
        and "convex along the run at every" in nothing.answer
    )
    vague = heads.finding(results(0.01, 0.01, noise=0.5))
    assert vague.answer.startswith("Undecided")
    assert len(heads.figures(results())) == 4


def test_the_opposite_order_on_random_labels_is_reported():
    found = heads.finding(results(0.4, random=-0.3))
    assert found.answer.startswith(
        "It depends on the data: more heads train slower on the hard mixture and faster on"
    )
    mixed = heads.finding(results(0.4, best=-0.4, random=-0.3)).answer
    assert (
        "train slower or faster, depending on what is held equal, on the hard mixture and faster on random labels"
        in mixed
    )
    assert (
        "on random labels from a Gaussian start (2 to 8 heads) they are faster in all 5 comparisons"
        in found.text
    )


def test_a_best_step_at_the_end_of_the_ladder_is_none():
    """The losses without noise fall with every larger step: the old sentence called the last one the best."""
    found = heads.finding(results())
    assert (
        "from the first phase no best step size was found for 3 of 3 numbers of heads" in found.text
    )
    assert "with 10% label noise it was for all of them" in found.text
    assert (
        found.numbers["loss_exponent.best.first_phase"].estimate.count == 3
    )  # the seeds that did not choose
    top = heads.finding(results(top=True))
    assert top.numbers["loss_exponent.best.first_phase"].estimate.count == 0
    assert (
        "not compared at the best step size on noisy labels" in top.text
        and "it was for 0 of them" in top.text
    )


def test_an_edge_that_the_ladder_does_not_bracket_is_none():
    for edge in (0, heads.RUNGS):
        found = heads.finding(results(edge=edge))
        assert found.numbers["loss_exponent.edge.first_phase"].estimate.count == 0
        assert "not compared at the edge of stability" in found.text
    one = heads.comparisons(results(edge=3)["first_phase"])["edge"]
    assert one.isel(num_heads=0).values == pytest.approx(
        results()["first_phase"]["final"].isel(num_heads=0, rung=2).values
    )


def test_equal_time_counts_the_curvature():
    """Losses that are equal at equal steps; with sharper curvature for more heads they had more normalized time."""
    found = heads.finding(results(0.0, 0.0, curvature=0.5))
    assert found.numbers["loss_exponent.step.first_phase"].estimate.value == pytest.approx(
        0, abs=1e-9
    )
    assert found.numbers["loss_exponent.time.first_phase"].estimate.above(0.02)
    assert "slower at equal step size times curvature" in found.text
    even = heads.comparisons(results(0.0, 0.0)["first_phase"])
    assert even["time"].values == pytest.approx(even["step"].values)


def test_missing_runs_are_left_out():
    some = results()
    for name in ("train_loss", "final", "noisy", "distance"):
        some["first_phase"][name][0, 0] = np.nan
    some["convexity_random"]["gap"][0, 0] = np.nan
    found = heads.finding(some)
    assert found.answer.startswith("No: more heads train slower") and "more convex" in found.answer
    assert found.text.endswith("2 of 66 cells are missing and left out.") and heads.figures(some)
    nothing = heads.finding(results(np.nan, np.nan, gap=np.nan, depth=np.nan))
    assert nothing.answer == "Not measured; the effect on convexity is not measured"


def test_losses_that_reach_the_infimum_to_rounding_are_not_compared():
    made = results()
    for name in heads.SPEED:
        made[name]["noisy"] *= 1e-15
    found = heads.finding(made)
    assert found.text.count("not compared at the best step size on noisy labels") == len(
        heads.SPEED
    )
