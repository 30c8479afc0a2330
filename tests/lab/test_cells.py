"""A sweep gives the same dataset however often it is killed, and refuses a damaged cell."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray

from manyheads import lab

GRID = lab.Grid(heads=[1, 2, 4], kind=["a", "b"], seeds=3)


def cell(heads, kind, seeds):
    steps = np.arange(1.0, 5.0)
    curve = np.outer(np.array(seeds) + 1.0, steps) * heads
    return {"loss": np.array(seeds) + heads, "curve": (("step",), curve), "step": steps}


def test_a_dataset_has_every_value_in_its_place(tmp_path):
    data = lab.sweep(cell, GRID, out=tmp_path, about={"commit": "abc"})
    assert data.loss.sel(heads=4, kind="b", seed=2) == 6
    assert data.curve.sel(heads=2, kind="a", seed=1, step=3.0) == 12
    assert data.attrs["commit"] == "abc" and data.attrs["cpu_seconds"] >= 0


def test_finished_cells_are_not_computed_again(tmp_path):
    calls = []

    def counted(heads, seeds):
        calls.append(heads)
        return {"x": np.ones(len(seeds))}

    lab.sweep(counted, lab.Grid(heads=[1, 2]), out=tmp_path)
    lab.sweep(counted, lab.Grid(heads=[1, 2, 3]), out=tmp_path)
    assert calls == [1, 2, 3]
    lab.sweep(counted, lab.Grid(heads=[1], seeds=2), out=tmp_path)  # other seeds, another cell
    assert calls == [1, 2, 3, 1]


KILLED = """
import os, sys, numpy as np
from pathlib import Path
from manyheads import lab

def cell(heads, seeds):
    if len(list(Path({folder!r}).glob("*.npz"))) == {after}:
        os.kill(os.getpid(), 9)
    return {{"x": np.random.default_rng(heads).standard_normal((len(seeds)))}}

data = lab.sweep(cell, lab.Grid(heads=[1, 2, 3, 4], seeds=2), out={folder!r})
np.save({out!r}, data.x.values)
"""


def test_killed_anywhere_and_run_again_gives_the_same(tmp_path):
    script, source = tmp_path / "script.py", Path(lab.__file__).parents[2]

    def run(folder, after):
        # The number stands in the source of the cell, so all runs must have the same file of it: a variable.
        text = KILLED.replace("{after}", "int(os.environ['AFTER'])")
        script.write_text(text.format(folder=str(folder), out=str(tmp_path / "x.npy")))
        (tmp_path / "x.npy").unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(source), "AFTER": str(after)}
        return subprocess.run([sys.executable, str(script)], env=environment).returncode

    assert run(tmp_path / "whole", -1) == 0
    whole = np.load(tmp_path / "x.npy")
    assert [run(tmp_path / "killed", after) for after in (2, 3, -1)] == [-9, -9, 0]
    assert np.array_equal(np.load(tmp_path / "x.npy"), whole)
    left = [path.suffix for path in (tmp_path / "killed").iterdir()]
    assert left == [".npz"] * 4


def test_a_client_gives_the_same(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        there = lab.sweep(cell, GRID, out=tmp_path, client=pool)
    xarray.testing.assert_equal(there, lab.sweep(cell, GRID))


@pytest.mark.full
def test_a_dask_cluster_gives_the_same(tmp_path):
    distributed = pytest.importorskip("dask.distributed")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = lab.sweep(cell, GRID, out=tmp_path, client=client)
    xarray.testing.assert_equal(there, lab.sweep(cell, GRID))


def test_a_changed_bit_is_refused(tmp_path):
    lab.sweep(cell, GRID, out=tmp_path)
    file = min(tmp_path.glob("*.npz"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file.name}.*delete it, and the same call"):
        lab.sweep(cell, GRID, out=tmp_path)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lab.Grid(heads=[]), r"heads=\[\] must be a list"),
        (lambda: lab.Grid(heads=[1, 1]), "different numbers"),
        (lambda: lab.Grid(seeds=0, heads=[1]), "seeds=0"),
        (lambda: GRID.replace(head=[1]), "no axis 'head'; it has heads, kind"),
        (lambda: lab.sweep(3, GRID), "cell=3 must be a function"),
        (lambda: lab.sweep(cell, {}), "make one with lab.Grid"),
        (
            lambda: lab.sweep(lambda heads, kind, seeds: {"x": 1.0}, GRID),
            "first axis must be the 3",
        ),
    ],
)
def test_bad_input_is_one_line(call, words):
    with pytest.raises(ValueError, match=words) as error:
        call()
    assert "\n" not in str(error.value)
