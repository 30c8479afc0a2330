"""Corollary P: its constants against the local forecast, and runs against what was promised before them."""

import dataclasses
import math

import numpy as np
import pytest
from paper_settings import redraw, setting

from manyheads.theory.certify import certify
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.initialization import good_start
from manyheads.theory.manyheads2026.before import SHARES, Before
from manyheads.theory.manyheads2026.forecast import forecast
from manyheads.theory.manyheads2026.promise import AFFORDABLE
from manyheads.theory.verdict import Verdict
from manyheads.theory.walk import follow
from manyheads.training.descent import train
from manyheads.training.rules import GD
from manyheads.training.start import first_phase, zero_start

HEADS = {
    "A": (32, 180),
    "B": (23_170, 3.0e6),
    "C": (11_584, 5.2e5),
}  # at most, for a loss of .5 and for half the loss


def before(name, heads=2):
    s = setting(name)
    return s, Before.of(good_start(first_phase(s.fresh, heads), s.dataset))


@pytest.mark.parametrize(
    "name", ["A", *(pytest.param(name, marks=pytest.mark.full) for name in "BC")]
)
def test_heads_of_the_settings(name):
    _, known = before(name)
    for loss, most in zip((0.5, known.loss / 2), HEADS[name], strict=True):
        heads, promise = known.smallest_heads(loss)
        assert heads <= most
        assert known.forecast(0.99 * heads, promise.step_size).steps_to(loss) is None


def test_a_step_size_that_is_not_searched_needs_no_fewer_heads():
    known = Before(Shape(4, 6, 1.0), 0.4, -0.1, 0.1, math.log(2), 0.3, 0.5)
    top = 4 / known.shape.features(known.readout_norm) ** 2
    loss = 0.65
    heads, promise = known.smallest_heads(loss)
    best = min(
        (known._least(loss, share * top, None) for share in SHARES[::3]), key=lambda one: one[0]
    )
    assert (heads, promise.step_size, promise.pieces) == (
        best[0],
        best[1].step_size,
        best[1].pieces,
    )
    part = known.forecast(heads, promise.step_size, math.log(2) / loss, enough=0.02)
    assert (
        0 < len(part.pieces) < len(promise.pieces)
        and part.pieces == promise.pieces[: len(part.pieces)]
    )


@pytest.mark.parametrize("heads", [64, pytest.param(1024, marks=pytest.mark.full)])
def test_the_promise_is_kept_and_the_local_forecast_says_more(heads):
    s, known = before("A")
    start, step = first_phase(s.fresh, heads), 0.05
    promise = known.forecast(heads, step)
    local = forecast(start, s.dataset, step_size=step)
    assert 0.3 < promise.nats < local.nats
    walk = follow(start, s.dataset, step_size=step, num_steps=int(promise.steps[-1]))
    for count, level in zip(promise.steps[::10], promise.certified_loss[::10], strict=True):
        assert walk.loss[: count + 1].min() <= level
        assert local.steps_to(level) <= count + 1


def test_the_region_is_not_left():
    """Distance from the center at every step until the last level is reached."""
    s, known = before("A")
    start = first_phase(s.fresh, 256)
    promise = known.forecast(256, 0.05)
    walk = follow(start, s.dataset, step_size=0.05, num_steps=int(promise.steps[-1]))
    until = int(np.argmax(walk.loss <= promise.certified_loss[-1]))
    assert walk.distance[:until].max() <= 2 * promise.radius


def test_certify_measures_it():
    s = setting("A")
    run = train(first_phase(s.fresh, 512), s.dataset, rule=GD(0.05), num_steps=20, dtype="float64")
    (found,) = certify(run, s.dataset, ["manyheads2026.forecast.before"])
    assert found.verdict is Verdict.HOLDS and 0 < found.measured <= found.bounds[0].value


def test_it_is_silent_where_nothing_separates_the_data():
    known = before("A")[1]
    none = Before(known.shape, -0.1, 0.0, 0.0, math.log(2), known.readout_norm, 0.5)
    assert none.smallest_heads(0.5) is None
    assert not none.forecast(1e6, 0.01).pieces and "no direction" in str(none.forecast(1e6, 0.01))


@pytest.mark.full
def test_other_draws_keep_their_promise():
    for seed in range(20):
        s = redraw("A", seed)
        heads = 2 ** (2 + seed % 9)
        start = first_phase(s.fresh, heads)
        known = Before.of(good_start(start, s.dataset))
        step = 4 / known.shape.b1(known.readout_norm) ** 2 * (1, 0.3, 0.1)[seed % 3]
        promise = known.forecast(heads, step)
        walk = follow(
            start, s.dataset, step_size=step, num_steps=int(min(promise.steps[-1], 20_000))
        )
        for count, level in zip(promise.steps, promise.certified_loss, strict=True):
            if count <= walk.num_steps:
                assert walk.loss[: count + 1].min() <= level


@pytest.mark.full
def test_a_promise_of_more_steps_than_can_be_made_is_held_against_some_of_them():
    s = setting("A")
    start = zero_start(10**12, num_tokens=s.dataset.num_tokens, dim=s.dataset.dim)
    found = certify(
        train(start, s.dataset, rule=GD(0.005), num_steps=5), s.dataset, ["forecast.before"]
    ).items[0]
    assert (
        found.verdict is Verdict.HOLDS and 0 < found.measured <= found.bounds[0].value <= AFFORDABLE
    )


@pytest.mark.filterwarnings("error")
def test_no_number_that_is_not_finite_is_promised():
    """Constants of any size: Python raises where some of them overflow, and its `min` hides a NaN."""
    rng, spoke = np.random.default_rng(0), 0

    def size(count):
        return 10.0 ** np.where(rng.random(count) < 0.8, rng.uniform(-1, 1), rng.uniform(-150, 150))

    for _ in range(30):
        loss, margin, readout, heads, step = size(5).tolist()
        least, most = np.sort(size(2) * rng.choice([-1, 1], 2)).tolist()
        shape = Shape(3, 4, float(max(size(1)[0], 1.0)))
        start = Before(shape, margin, least, most, loss, readout, 1.0)
        found = start.forecast(1e6 * heads, 1e-4 * step, enough=0.1)
        assert all(np.isfinite(dataclasses.astuple(p)).all() and p.sound for p in found.pieces)
        assert str(found)
        spoke += bool(found.pieces)
    assert spoke > 2
