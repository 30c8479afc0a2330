"""A real Ctrl-C inside the cells of studies: nothing that it cut short is stored, and the next run is as if untouched."""

import contextlib
import os
import signal
import subprocess
from dataclasses import replace

import pytest
from processes import LIMIT, descendants, wait_for_the_end, wait_until
from sweeps.killing import assert_same_bits, command, environment

from manyheads.measures import stability
from manyheads.sweeps.engine import run
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.status import status
from manyheads.training import loop

DATA = {
    "num_tokens": 4,
    "dim": 6,
    "num_patterns": 2,
    "sparsity": 0.5,
    "signal": 1.5,
    "num_examples": 8,
    "num_test": 6,
}
CELLS = {
    "manyheads.studies.generalization.cells:gap": {"sizes": [4, 8], "records": [4]},
    "manyheads.studies.generalization.cells:leave_one_out": {"samples": 1},
    "manyheads.studies.margins.cells:over_time": {},
    "sweep_cells:careless": {},
}


def sweep_of(function):
    return Sweep(
        name="small",
        cell=function,
        parameters=CELLS[function],
        data=DATA,
        start={"num_examples": 20},
        train={"step_size": 0.5, "num_steps": 12, "dtype": "float64"},
        seeds=2,
    )


def press_during(monkeypatch, number):
    """Count the stretches of training and the blocks of left-out runs; press Ctrl-C before the one of this number."""
    calls = []

    def counted(function):
        def call(*arguments, **options):
            calls.append(1)
            if len(calls) == number:
                signal.raise_signal(signal.SIGINT)
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(loop, "advance", counted(loop.advance))
    monkeypatch.setattr(stability, "twin_runs", counted(stability.twin_runs))
    return calls


QUICK = ("manyheads.studies.generalization.cells:leave_one_out", "sweep_cells:careless")


@pytest.mark.parametrize(
    "function",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in CELLS],
)
def test_a_cell_that_ctrl_c_cut_short_is_not_stored_and_runs_again(tmp_path, monkeypatch, function):
    sweep = sweep_of(function)
    with monkeypatch.context() as patch:
        calls = press_during(patch, 0)
        run(sweep, tmp_path / "whole", progress=False)
    for number in sorted(
        {1, 2, len(calls) // 2 - 1, len(calls) // 2}
    ):  # the first cell alone, to its last stretch
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            press_during(patch, number)
            run(sweep, tmp_path / "cut", progress=False)
        found = status(tmp_path / "cut")
        assert (found.batches_done, found.missing) == (0, 2), (
            f"Ctrl-C in stretch {number} of {len(calls)}"
        )
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        press_during(patch, len(calls))  # the last stretch of the second cell
        run(sweep, tmp_path / "cut", progress=False)
    assert status(tmp_path / "cut").finished == 1 and status(tmp_path / "cut").missing == 1
    run(sweep, tmp_path / "cut", progress=False)
    assert_same_bits(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(
    ("engine", "starting"),
    [
        ("here", False),
        ("processes", False),
        pytest.param("processes", True, marks=pytest.mark.full),
    ],
)  # tests/studies/test_run.py presses it while workers start
def test_ctrl_c_at_a_terminal_ends_the_command_and_its_workers(tmp_path, start, engine, starting):
    """The signal goes to the command and all that it has started, while these start or while they train.

    A cell takes far longer than this test waits, so one that ran to its end would be noticed.
    """
    log, out = tmp_path / "log", tmp_path / "out"
    long = replace(sweep_of("sweep_cells:careless"), parameters={"log": str(log)})
    replace(long, train=replace(long.train, num_steps=10**9)).save(tmp_path / "s.toml")
    line = [
        word for word in command(tmp_path / "s.toml", out, "--engine", engine) if word != "--quiet"
    ]
    process = start(
        line, env=environment(log), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if starting:
        wait_until((out / "journal.jsonl").exists, process, "the journal")
        wait_until(lambda: descendants(process), process, "the workers")
    else:
        wait_until(lambda: log.exists() and "training" in log.read_text(), process, "the training")
    os.killpg(process.pid, signal.SIGINT)
    err = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130
    assert "interrupted: 0 of 2 cells are stored; rerun to resume\nerror: interrupted\n" in err
    assert "Traceback" not in err and not list(out.rglob("*.npz"))


@pytest.mark.full
@pytest.mark.parametrize("engine", ["here", "processes"])
def test_ctrl_c_pressed_twice_ends_a_sweep_at_once_with_one_line(tmp_path, start, engine):
    log, out = tmp_path / "log", tmp_path / "out"
    long = replace(sweep_of("sweep_cells:careless"), parameters={"log": str(log)})
    replace(long, train=replace(long.train, num_steps=10**9)).save(tmp_path / "s.toml")
    line = command(tmp_path / "s.toml", out, "--engine", engine)
    process = start(
        line, env=environment(log), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wait_until(lambda: log.exists() and "training" in log.read_text(), process, "the training")
    wait_until(lambda: press_again(process), what="the end")
    err = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130 and err.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in err and not list(out.rglob("*.npz"))
    wait_for_the_end(process)


def press_again(process):
    """Press Ctrl-C, as someone does who does not wait; whether the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    return process.poll() is not None
