"""Ctrl-C is never lost, and never makes a result that looks whole."""

import contextlib
import signal

import jax
import pytest

import manyheads as mh
from manyheads.training import loop
from manyheads.training.keyboard import AllOrNothing, CtrlC


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handler_is_put_back():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def task():
    mixture = mh.TokenizedMixture(4, 6, num_patterns=2, sparsity=0.5, frame="axis")
    return mh.zero_start(2, num_tokens=4, dim=6), mixture.sample(8, key=jax.random.key(0))


def pressing(monkeypatch, number):
    """Press Ctrl-C during the stretch of this number."""
    calls, advance = [], loop.advance

    def pressed(*arguments):
        calls.append(1)
        if len(calls) == number:
            press()
        return advance(*arguments)

    monkeypatch.setattr(loop, "advance", pressed)
    return calls


def test_a_ctrl_c_without_an_answer_comes_out():
    with pytest.raises(KeyboardInterrupt), CtrlC() as ctrl_c:
        press()
        assert ctrl_c.pressed
    with CtrlC() as ctrl_c:
        press()
        ctrl_c.answered = True
    with pytest.raises(ValueError, match="of its own"), CtrlC():
        press()
        raise ValueError("of its own")
    with pytest.raises(KeyboardInterrupt), CtrlC():
        press()
        press()


def test_work_that_is_kept_whole_or_not_raises_whatever_is_made_of_ctrl_c():
    with pytest.raises(KeyboardInterrupt), AllOrNothing(), contextlib.suppress(KeyboardInterrupt):
        press()
    with pytest.raises(KeyboardInterrupt), AllOrNothing():
        try:
            press()
        except KeyboardInterrupt:
            raise RuntimeError("a library says it in its own way") from None
    reached = []
    with pytest.raises(KeyboardInterrupt), AllOrNothing():
        with CtrlC() as ctrl_c:
            press()
            ctrl_c.answered = True
        reached.append("what comes after the interrupted part")
    assert not reached
    with pytest.raises(KeyboardInterrupt), AllOrNothing():
        with contextlib.suppress(KeyboardInterrupt):
            press()
        with CtrlC() as later:
            assert later.pressed
    with AllOrNothing(), CtrlC() as ctrl_c:
        assert not ctrl_c.pressed


def test_a_handler_of_the_program_keeps_its_meaning():
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        with AllOrNothing(), CtrlC() as ctrl_c:
            press()
        assert heard == [1] and not ctrl_c.pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_in_the_last_stretch_is_answered_and_everything_is_kept(task, monkeypatch):
    whole = mh.train(*task, rule=mh.GD(0.1), num_steps=5)
    calls = pressing(monkeypatch, 0)
    mh.train(*task, rule=mh.GD(0.1), num_steps=5)
    monkeypatch.undo()
    pressing(monkeypatch, len(calls))
    run = mh.train(*task, rule=mh.GD(0.1), num_steps=5)
    assert run.status == "interrupted" and run.last_step == 5
    assert run.train_loss.tolist() == whole.train_loss.tolist()
    monkeypatch.undo()
    again = mh.train(*task, rule=mh.GD(0.1), num_steps=5, resume=run)
    assert again.status == "finished" and again.train_loss.tolist() == whole.train_loss.tolist()


def test_ctrl_c_while_a_run_diverges_comes_out(task, monkeypatch):
    start = mh.gaussian_start(2, num_tokens=4, dim=6, key=jax.random.key(1))
    huge = mh.Dataset.from_arrays(1e25 * task[1].tokens, task[1].labels)
    calls = pressing(monkeypatch, 0)
    assert mh.train(start, huge, rule=mh.GD(0.1), num_steps=3).status == "diverged"
    monkeypatch.undo()
    pressing(monkeypatch, len(calls))
    with pytest.raises(KeyboardInterrupt):
        mh.train(start, huge, rule=mh.GD(0.1), num_steps=3)


def test_training_inside_kept_whole_work_raises_instead_of_returning(task, monkeypatch):
    pressing(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt), AllOrNothing():
        mh.train(*task, rule=mh.GD(0.1), num_steps=1000)
        raise AssertionError("the run came back as if nothing had happened")
