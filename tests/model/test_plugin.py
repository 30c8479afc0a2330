"""A model from outside the package in a sweep with measures, in worker processes and at the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from manyheads.sweeps.assembly import open_sweep

SPEC = """
name = "network"
measures = ["risk", "curvature"]
certificates = ["thm1"]
[data]
num_examples = 20
num_test = 10
[start]
kind = "pooled_network"
[train]
num_steps = 20
dtype = "float64"
[axes]
"model.num_heads" = [4]
"""


def command(folder, *words):
    paths = [str(Path(__file__).parent), *sys.path]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "MANYHEADS_PLUGINS": "network_plugin"}
    line = [sys.executable, "-m", "manyheads.cli.main", *words]
    return subprocess.run(
        line, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True
    )


def test_a_sweep_trains_measures_and_certifies_it(tmp_path):
    (tmp_path / "s.toml").write_text(SPEC)
    done = command(
        tmp_path, "sweep", "s.toml", "--engine", "processes", "--workers", "1", "--quiet"
    )
    assert done.returncode == 0, done.stderr
    data = open_sweep(tmp_path / "results" / "network")
    assert (data.status == "finished").all(), data.message.values
    assert (
        np.isfinite(data.largest_eigenvalue).all()
        and (data.final_train_loss < data.train_loss[..., 0]).all()
    )
    assert (data.thm1_verdict == "SILENT").all()


def test_the_command_line_trains_it(tmp_path):
    done = command(
        tmp_path,
        "train",
        "mixture",
        "--start",
        "pooled_network",
        "--steps",
        "5",
        "--json",
        "--quiet",
    )
    assert done.returncode == 0, done.stderr
    losses = [json.loads(line)["train_loss"] for line in done.stdout.splitlines()[1:]]
    assert losses[-1] < losses[0]
