"""Runs that end where a condition says so: the steps at which it is asked, the same bits, and what is kept."""

import math

import jax
import numpy as np
import pytest
from paper_settings import setting

import manyheads as mh
from manyheads.theory.examination import Examination
from manyheads.training import loop
from manyheads.training.progress import Bar
from manyheads.training.stop import asked_steps

OPTIONS = dict(rule=mh.GD(1.0), num_steps=40, dtype="float64", record=10**6)
FIBONACCI = [0, 1, 2, 3, 5, 8, 13, 21, 34]


@pytest.fixture(scope="module")
def start():
    return mh.first_phase(setting("A").fresh, 4)


def same(a, b):
    return all(
        np.array_equal(x, y, equal_nan=True)
        for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    )


def test_it_is_asked_at_fixed_steps_and_the_step_that_ends_the_run_is_recorded(start, monkeypatch):
    assert (
        asked_steps(40).tolist() == FIBONACCI
        and asked_steps(0).tolist() == []
        and asked_steps(1).tolist() == [0]
    )
    data = setting("A").dataset
    whole = mh.train(start, data, **OPTIONS)
    for stretch in (0.2, 1e-9):
        monkeypatch.setattr(loop, "STRETCH_SECONDS", stretch)
        asked: dict = {}

        def ten(step, model, asked=asked):
            asked[step] = model
            return step >= 10

        run = mh.train(start, data, stop=ten, **OPTIONS)
        assert list(asked) == FIBONACCI[:7]
        assert (run.status, run.last_step, run.reason) == (
            "stopped",
            13,
            "the condition of stop= holds at step 13",
        )
        assert run.steps.tolist() == FIBONACCI[
            :7
        ] and "stopped at step 13 of 40: the condition of stop=" in str(run)
        assert same(asked[13].parameters, run.final.parameters)
        assert (
            run.train_loss[-1]
            == mh.train(start, data, **OPTIONS | {"num_steps": 13}).train_loss[-1]
        )
        rest = mh.train(start, data, resume=run, **OPTIONS)
        assert (rest.status, rest.reason) == ("finished", "") and same(
            rest.displacement, whole.displacement
        )


def test_a_run_that_no_condition_ends_has_the_bits_of_a_plain_one(start):
    plain = mh.train(start, setting("A").dataset, **OPTIONS)
    run = mh.train(start, setting("A").dataset, stop=lambda step, model: "", **OPTIONS)
    assert (run.status, run.last_step) == ("finished", 40) and same(
        run.displacement, plain.displacement
    )


def test_training_ends_when_the_rest_is_proved(start, monkeypatch, tmp_path):
    data, told = setting("A").dataset, []
    monkeypatch.setattr(Bar, "show", lambda self, done, note="": told.append(note))
    options = OPTIONS | {"stop": mh.Certified()}
    run = mh.train(start, data, checkpoint=tmp_path / "run.npz", **options)
    assert run.status == "stopped" and 0 < run.last_step <= 5
    last = told[-1]
    promise = mh.forecast(run, data)
    assert promise.speaks and run.observed["steps_to_half"][-1] == promise.steps_to_reduce
    assert run.reason == (
        f"from step {run.last_step} on the loss, {promise.loss:.4g}, is proved to halve within "
        f"{promise.steps_to_reduce} more steps"
    )
    assert "falls to 0." in last and "(proved) (indicator 1" in last
    assert np.all(np.isinf(run.observed["steps_to_half"][:-1]))
    assert run.observed["indicator"][-1] == promise.indicator
    part = mh.train(start, data, **options | {"num_steps": 2})
    assert part.status == "finished"
    again = mh.train(start, data, resume=part, **options)
    stored = mh.Trajectory.load(tmp_path / "run.npz")
    for other in (again, stored):
        assert (other.status, other.reason, other.last_step) == (
            run.status,
            run.reason,
            run.last_step,
        )
        assert same((other.displacement, other.train_loss), (run.displacement, run.train_loss))
        known = ~np.isnan(other.observed["indicator"])  # the end of the part is not asked for
        assert (
            same(other.observed["indicator"][known], run.observed["indicator"][known])
            and known.sum() >= 2
        )


@pytest.mark.full
def test_the_forecast_is_shown_and_the_run_goes_on(start, monkeypatch):
    told = []
    monkeypatch.setattr(Bar, "show", lambda self, done, note="": told.append(note))
    run = mh.train(
        start, setting("A").dataset, stop=mh.Certified(ends=False), **OPTIONS | {"num_steps": 4}
    )
    assert (
        run.status == "finished"
        and "halves within " in told[-1]
        and told[-1].endswith(" steps (proved)")
    )
    asked = np.isin(run.steps, FIBONACCI)
    assert np.array_equal(np.isnan(run.observed["indicator"]), ~asked)
    assert (
        math.isinf(run.observed["steps_to_half"][0])
        and run.observed["steps_to_half"][asked][-1] < 40
    )


def test_a_run_that_looked_at_its_sample_is_not_independent_of_it(start):
    data = setting("A").dataset
    for stop, free in ((None, True), (lambda step, model: step >= 2, False)):
        run = mh.train(start, data, stop=stop, **OPTIONS)
        assert Examination(run, data, independent=True).independent is free


def test_what_the_forecast_cannot_speak_of_is_refused_before_training(start):
    data = setting("A").dataset
    for words, more in {
        "the run used adam; the forecast is proved for plain gradient descent": {
            "rule": mh.Adam(1.0)
        },
        "sequences of equal weight; train without Weighted": {
            "loss": mh.Weighted(np.ones(data.num_examples))
        },
        "stop='certified' must be a function": {"stop": "certified"},
        "stop=3 must be": {"stop": 3},
    }.items():
        with pytest.raises(ValueError, match=words) as error:
            mh.train(start, data, **OPTIONS | {"stop": mh.Certified()} | more)
        assert "\n" not in str(error.value)
