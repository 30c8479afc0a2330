"""A data source, a start, a loss and a measure from outside the package, by variable and by entry point."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from manyheads.sweeps.assembly import open_sweep

SPEC = """
name = "ring"
measures = ["height"]
[data]
kind = "ring"
radius = 2
num_examples = 12
num_test = 6
[start]
kind = "same_heads"
height = 0.25
[train]
loss = "exponential"
num_steps = 3
dtype = "float64"
[axes]
"data.num_tokens" = [2, 3]
"model.num_heads" = [1, 4]
"""
IN_PYTHON = """
import sys
import manyheads as mh

mh.run_sweep(sys.argv[1], "results/ring", progress=False)
"""


def run(folder, *words, **variables):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        **variables,
    }
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.fixture
def folder(tmp_path):
    """A folder on Python's path that holds the plug-in and a spec."""
    shutil.copy(Path(__file__).with_name("ring_plugin.py"), tmp_path)
    (tmp_path / "ring.toml").write_text(SPEC)
    return tmp_path


@pytest.fixture
def installed(folder):
    """The same, as an installed package would announce it."""
    info = folder / "ring_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ring-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[manyheads.plugins]\nring = ring_plugin\n")
    return folder


def check_results(folder):
    """The sweep can be read here, where there is no plug-in."""
    data = open_sweep(folder / "results" / "ring")
    assert (data.status == "finished").all(), data.message.values
    assert dict(data.sizes) | {"num_tokens": 2, "num_heads": 2, "seed": 1} == dict(data.sizes)
    loss = data.train_loss.sel(num_heads=1, num_tokens=2).values.ravel()
    assert np.isfinite(loss).all() and loss[-1] < loss[0]
    assert (data.final_height > 0.2).all() and data.num_tokens.attrs[
        "long_name"
    ] == "tokens per sequence"
    assert 'kind = "ring"' in data.attrs["spec"]


def test_a_variable_names_a_plugin_and_workers_know_it(folder):
    words = (
        "-m",
        "manyheads.cli.main",
        "sweep",
        "ring.toml",
        "--engine",
        "processes",
        "--workers",
        "2",
        "--quiet",
    )
    done = run(folder, *words, MANYHEADS_PLUGINS="ring_plugin")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    check_results(folder)


def test_an_entry_point_names_a_plugin(installed):
    done = run(installed, "-c", IN_PYTHON, "ring.toml")
    assert done.returncode == 0, done.stderr
    check_results(installed)


def test_the_command_line_knows_what_a_plugin_brings(folder):
    words = (
        "-m",
        "manyheads.cli.main",
        "train",
        "ring",
        "--start",
        "same_heads",
        "--loss",
        "exponential",
        "--json",
    )
    done = run(
        folder,
        *words,
        "--steps",
        "3",
        "--test-examples",
        "0",
        "--quiet",
        MANYHEADS_PLUGINS="ring_plugin",
    )
    assert done.returncode == 0, done.stderr
    head, *rows = map(json.loads, done.stdout.splitlines())
    assert (head["data"], head["loss"], head["classes"]) == ("ring", "exponential", 1) and len(
        rows
    ) == 4
    shown = run(
        folder, "-m", "manyheads.cli.main", "train", "--help", MANYHEADS_PLUGINS="ring_plugin"
    ).stdout
    assert all(word in shown for word in ("ring", "same_heads", "exponential"))


def test_mistakes_are_one_line(folder):
    sweep = ("-m", "manyheads.cli.main", "sweep", "ring.toml", "--dry-run")
    missing = run(folder, *sweep)
    assert missing.returncode == 2 and "data.kind = 'ring' is not known" in missing.stderr
    (folder / "ring.toml").write_text(
        SPEC.replace("radius = 2", "radius = -2").replace("height = 0.25", "heigth = 1")
    )
    wrong = run(folder, *sweep, MANYHEADS_PLUGINS="ring_plugin").stderr
    assert (
        "data.radius = -2 is out of range; write a finite number > 0" in wrong
        and wrong.count("\n") == 1
    )
    assert "unknown key 'start.heigth'; did you mean 'start.height'?" in wrong
    broken = run(folder, *sweep, MANYHEADS_PLUGINS="no_such_plugin").stderr
    assert broken.count("\n") == 1 and "the plug-in 'no_such_plugin' cannot be imported" in broken
