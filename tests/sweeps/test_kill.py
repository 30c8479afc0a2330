import subprocess

import pytest
from sweeps.killing import (
    assert_nothing_finished_ran_again,
    assert_same_bits,
    command,
    environment,
    kill_repeatedly,
)

from manyheads.sweeps.engine import run
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.store import Store


def reference(spec, folder, log):
    done = subprocess.run(
        command(spec, folder), env=environment(log), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_sweep_that_was_killed_is_the_same_in_the_end(tmp_path):
    log = tmp_path / "log"
    sweep = Sweep(
        cell="sweep_cells:noted_training",
        parameters={"log": str(log)},
        data={"num_examples": 20, "num_tokens": 4, "dim": 4, "num_patterns": 2, "num_test": 20},
        start={"num_examples": 20},
        train={"num_steps": 2000, "dtype": "float64"},
        axes={"train.step_size": [0.05, 0.1, 0.2, 0.4]},
        seeds=10,
    )
    sweep.save(tmp_path / "s.toml")
    kill_repeatedly(
        sweep, tmp_path / "s.toml", tmp_path / "killed", log, kills=1, most=30, spread=0.3
    )
    assert_nothing_finished_ran_again(sweep, tmp_path / "killed", log)
    reference(tmp_path / "s.toml", tmp_path / "whole", log)
    assert_same_bits(tmp_path / "killed", tmp_path / "whole")


def test_a_temporary_file_of_a_killed_writer_is_swept_away(tmp_path):
    sweep = Sweep(cell="sweep_cells:arithmetic", seeds=2)
    run(sweep, tmp_path, progress=False)
    store = Store(tmp_path)
    leftover = store.parts / "0123.npz.99999.tmp"
    leftover.write_bytes(b"half")
    run(sweep, tmp_path, progress=False)
    assert not leftover.exists()


@pytest.mark.full
@pytest.mark.parametrize(("engine", "kills"), [("here", 20), ("processes", 8)])
def test_a_sweep_of_100_cells_killed_at_random_moments(tmp_path, engine, kills):
    log = tmp_path / "log"
    sweep = Sweep(
        measures=["risk", "sweep_cells:noted"],
        data={"num_examples": 60, "num_test": 50},
        train={"num_steps": 2500, "dtype": "float64"},
        axes={"model.num_heads": [2, 1e4], "train.step_size": [0.05, 0.1, 0.2, 0.3, 0.4]},
        seeds=10,
    )
    assert sweep.num_cells == 100
    sweep.save(tmp_path / "s.toml")
    options = ("--engine", engine) + (("--workers", "2") if engine == "processes" else ())
    folder = tmp_path / "killed"
    kill_repeatedly(
        sweep,
        tmp_path / "s.toml",
        folder,
        log,
        kills,
        most=90,
        options=options,
        seed=kills,
        spread=0.8,
    )
    assert_nothing_finished_ran_again(sweep, tmp_path / "killed", log)
    reference(tmp_path / "s.toml", tmp_path / "whole", tmp_path / "other")
    assert_same_bits(tmp_path / "killed", tmp_path / "whole")
