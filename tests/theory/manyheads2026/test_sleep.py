"""Theorem W: attention does not move before the steps that are promised."""

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026 import sleep
from manyheads.theory.shift import attention_shift, from_uniform
from manyheads.theory.verdict import Verdict

ROOM = {"num_tokens": 4, "dim": 6}


@pytest.fixture(scope="module")
def problem():
    return small_problem(0)


def by_hand(data, num_heads, step_size, num_steps, readout=None):
    """Descent on identical heads in NumPy, one sequence after another: attention moved, travel, distances."""
    T, d = data.tokens.shape[1:]
    U0 = np.zeros((T, d)) if readout is None else readout
    U, W, G, rows = U0.copy(), np.zeros((d, d)), 0.0, []
    for _ in range(num_steps + 1):
        dU, dW, moved, slopes = np.zeros_like(U), np.zeros_like(W), 0.0, []
        for X, y in zip(data.tokens.astype(float), data.labels, strict=True):
            Z = np.exp(X @ W @ X.T)
            A = Z / Z.sum(axis=1, keepdims=True)
            moved = max(moved, np.max(np.abs(A - 1 / T).sum(axis=1)) / 2)
            slope = 1 / (1 + np.exp(y * np.sqrt(num_heads) * np.sum(U * (A @ X))))
            slopes.append(slope)
            part = slope * y / len(data.labels) / np.sqrt(num_heads)
            dU += part * A @ X
            for t in range(T):
                covariance = X.T @ (np.diag(A[t]) - np.outer(A[t], A[t])) @ X
                dW += part * np.outer(X[t], covariance @ U[t])
        rows.append((moved, G, np.linalg.norm(W), np.linalg.norm(U - U0)))
        G += step_size * np.mean(slopes)
        U, W = U + step_size * dU, W + step_size * dW
    return np.array(rows).T


def test_what_is_watched_equals_descent_by_hand(problem):
    _, data, _ = problem
    seen = attention_shift(mh.zero_start(16, **ROOM), data, step_size=0.5, num_steps=30)
    moved, travel, W, U = by_hand(data, 16, 0.5, 30)
    for mine, other in (
        (seen.moved, moved),
        (seen.travel, travel),
        (seen.key_query, W),
        (seen.readout, U),
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(seen.total_readout, 4 * U, rtol=1e-9)


def test_the_promise_is_kept_and_nearly_reached_on_the_tokens_that_attain_it():
    data, start = sleep.extremal(0.05), mh.zero_start(100, num_tokens=2, dim=2)
    tally = Tally()
    step = 0.1 * sleep.Uniform(start, data).sleep(1e-6, 1.0).step_limit
    shares = sleep.add_run(tally, start, data, 1e-6, step, 300)
    assert tally.broken == 0
    assert shares["readout of a head"] > 0.999
    assert shares["key-query of a head"] > 0.97
    assert shares["attention"] > 0.99
    assert shares["all readouts"] > 0.84
    assert shares["movement"] > 0.6


@pytest.mark.parametrize("name", ["constants", "reach", "second_moment"])
def test_a_constant_that_is_too_small_is_caught(monkeypatch, name):
    data, start = sleep.extremal(0.05), mh.zero_start(100, num_tokens=2, dim=2)
    whole = sleep.Uniform.__init__

    def smaller(self, *arguments):
        whole(self, *arguments)
        if name != "constants":
            setattr(self, name, getattr(self, name) * (0.97 if name == "reach" else 0.3))

    monkeypatch.setattr(sleep.Uniform, "__init__", smaller)
    if name == "constants":
        right = sleep.Uniform.constants
        monkeypatch.setattr(
            sleep.Uniform,
            "constants",
            lambda self, moved: tuple(0.98 * c for c in right(self, moved)),
        )
    tally = Tally()
    step = sleep.Uniform(start, data).sleep(1e-5, 1.0).step_limit * (
        0.1 if name == "reach" else 1.0
    )
    sleep.add_run(tally, start, data, 1e-5, step, 300)
    assert tally.broken > 0


@pytest.mark.full  # another seed than that of the quick ledger, tests/theory/test_verify.py
def test_the_check_finds_nothing_broken():
    found = sleep.check_sleep(Effort(quick=True, seed=3))
    assert found.verdict is Verdict.HOLDS
    assert found.trials >= 30


@pytest.mark.full
def test_a_thousand_runs_and_a_hundred_attacks_break_nothing():
    found = sleep.check_sleep(Effort(quick=False, seed=7))
    assert found.verdict is Verdict.HOLDS
    assert found.trials > 6000


def test_steps_grow_like_the_exponential_of_the_root_of_heads(problem):
    _, data, _ = problem
    steps = [
        mh.theory.attention_sleep(mh.zero_start(H, **ROOM), data, step_size=0.5).steps
        for H in (1e4, 4e4, 16e4)
    ]
    logs = np.log(steps)
    assert (
        1.8 < (logs[2] - logs[1]) / (logs[1] - logs[0]) < 2.0
    )  # each doubling of √H, less the prefactor


@pytest.mark.parametrize("heads", [64, 1024])
def test_normalized_descent_sleeps_as_long_as_promised(problem, heads):
    _, data, _ = problem
    start = mh.zero_start(heads, **ROOM)
    promise = mh.theory.attention_sleep(start, data, step_size=0.05, moved=0.1)
    steps = int(promise.normalized_steps)
    assert steps >= 5
    run = mh.train(start, data, rule=mh.Normalized(0.05), num_steps=steps, dtype="float64")
    with jax.enable_x64(True):
        assert float(from_uniform(run.final.key_query, data.tokens.astype(float))) <= 0.1


def test_a_promise_reads_as_a_sentence(problem):
    _, data, fresh = problem
    text = str(mh.theory.attention_sleep(mh.zero_start(1024, **ROOM), data, step_size=0.5))
    assert text == (
        "With 1,024 heads and step size 0.5, no query moves more than 0.05 of its attention in the first 279 steps of "
        "gradient descent."
    )
    assert "10^" in str(
        mh.theory.attention_sleep(mh.first_phase(fresh, 1e6), data, step_size=0.5, moved=0.02)
    )
    assert "above" in str(mh.theory.attention_sleep(mh.zero_start(8, **ROOM), data, step_size=50.0))
    both = mh.Dataset(
        np.concatenate([data.tokens] * 2), np.concatenate([data.labels, -data.labels])
    )
    assert "separate" in str(
        mh.theory.attention_sleep(mh.zero_start(8, **ROOM), both, step_size=0.5)
    )


def test_what_it_is_not_proved_for_is_refused(problem):
    _, data, _ = problem
    with pytest.raises(ValueError, match="starts uniform"):
        mh.theory.attention_sleep(
            mh.gaussian_start(4, **ROOM, key=jax.random.key(0)), data, step_size=0.5
        )
    with pytest.raises(ValueError, match="full readout"):
        mh.theory.attention_sleep(mh.zero_start(4, **ROOM, decoder="pooled"), data, step_size=0.5)
    with pytest.raises(ValueError, match="moved"):
        mh.theory.attention_sleep(mh.zero_start(4, **ROOM), data, step_size=0.5, moved=1.0)


def test_a_run_is_certified_where_the_theorem_speaks(problem):
    _, data, _ = problem
    run = mh.train(mh.zero_start(1e6, **ROOM), data, rule=mh.GD(0.5), num_steps=20)
    (found,) = mh.certify(run, data, ["sleep"])
    assert found.verdict is Verdict.HOLDS
    assert 0 < found.measured < found.bound().value < 0.01
    run = mh.train(mh.zero_start(2, **ROOM), data, rule=mh.GD(0.5), num_steps=20)
    (found,) = mh.certify(run, data, ["sleep"])
    assert found.verdict is Verdict.SILENT
    assert "more heads" in found.reason


def test_more_movement_is_never_promised_for_fewer_steps():
    """What has moved less has not moved more; one share alone may promise less than a smaller one."""
    _, data, fresh = small_problem(0)
    for start in (mh.zero_start(1e6, **ROOM), mh.first_phase(fresh, 1e8)):
        uniform = sleep.Uniform(start, data)
        alone = [uniform.sleep(share, 0.3).steps for share in (0.01, 0.05, 0.2)]
        best = [
            mh.theory.attention_sleep(start, data, step_size=0.3, moved=share)
            for share in (0.01, 0.05, 0.2)
        ]
        steps = [promise.steps for promise in best]
        assert steps == sorted(steps) and steps[0] > 0 and all(np.greater_equal(steps, alone))
        assert alone != sorted(alone) and all(
            p.moved <= m for p, m in zip(best, (0.01, 0.05, 0.2), strict=True)
        )


def test_attention_on_equal_tokens_never_moves():
    X, y = np.ones((4, 3, 2)), np.array([1.0, -1.0, 1.0, -1.0])
    data = mh.Dataset(X * y[:, None, None], y)
    promise = mh.theory.attention_sleep(mh.zero_start(4, num_tokens=3, dim=2), data, step_size=0.1)
    assert promise.steps == promise.normalized_steps == sleep.MOST_STEPS
