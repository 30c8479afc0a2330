"""Two processes of `jax.distributed` make one run, and each gets what one process gets."""

import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import processes
import pytest

import manyheads as mh

PROGRAM = Path(__file__).with_name("on_processes.py")


@pytest.fixture
def start():
    """Start a command in a process group of its own, which is killed after the test."""
    with processes.processes() as starting:
        yield starting


@pytest.mark.full
def test_two_processes_get_what_one_gets(start, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    words = [
        [sys.executable, str(PROGRAM), str(process), port, str(tmp_path)] for process in (0, 1)
    ]
    both = [start(command, **pipes) for command in words]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    for out, _ in said:
        other_data, one_device = out.splitlines()[-2:]
        assert other_data.startswith("the processes of this run were given different data")
        assert one_device == "devices=1: 2 processes make this run; pass devices='all'."
    alone, zero, one = (
        mh.Trajectory.load(tmp_path / f"{name}.npz")
        for name in ("alone-0", "together-0", "together-1")
    )
    assert zero.settings["devices"] == 2
    for a, b in zip(*(jax.tree.leaves(r.displacement) for r in (zero, one)), strict=True):
        assert np.array_equal(a, b)
    for name in ("train_loss", "test_loss", "gradient_norm", "distance", "attention_mass"):
        np.testing.assert_allclose(getattr(zero, name), getattr(alone, name), rtol=1e-11)
    assert mh.Trajectory.load(tmp_path / "checkpoint-0.npz").last_step == 40
    assert not (tmp_path / "checkpoint-1.npz").exists()
