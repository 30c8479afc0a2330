"""Full disks, folders that cannot be written, odd names and clocks: one line, and nothing is lost."""

import contextlib
import errno
import os
import subprocess
import tempfile

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads import lab
from manyheads.cli.main import main

TRAIN = [
    "train",
    "--steps",
    "20",
    "--examples",
    "8",
    "--first-phase-examples",
    "8",
    "--test-examples",
    "8",
]


class Disk:
    """A folder that can become full or read-only: a small disk of its own, or one that is acted where none can be."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        self.is_real = (
            os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
        )

    def fill_up(self, leave=0):
        """Leave so many bytes free."""
        with open(self.folder / "filler", "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while self.is_real:
                    file.write(bytes(4096))
            file.truncate(max(0, file.tell() - leave))
        if not self.is_real:
            self._act(errno.ENOSPC, errno.ENOSPC)

    def make_read_only(self):
        if self.is_real:
            subprocess.run(["mount", "-o", "remount,ro", self.folder], check=True)
        else:
            self.monkeypatch.setattr(os, "access", lambda *_: False)
            self._act(errno.EROFS, errno.EACCES)

    def empty(self):
        self.monkeypatch.undo()
        (self.folder / "filler").unlink()

    def _act(self, number, number_of_libraries):
        usual = open

        def failing(path, mode="r", *more, **options):
            if str(path).startswith(str(self.folder)) and mode[0] in "wax":
                raise OSError(number, os.strerror(number), str(path))
            return usual(path, mode, *more, **options)

        def unwritten(*_, **__):
            raise OSError(number_of_libraries, os.strerror(number_of_libraries))

        self.monkeypatch.setattr("builtins.open", failing)

    def close(self):
        if not self.is_real:
            return
        is_busy = subprocess.run(["umount", self.folder], capture_output=True).returncode != 0
        if is_busy:
            subprocess.run(["umount", "--lazy", self.folder], check=True)
        assert not is_busy, "a file on the disk is still open"


@pytest.fixture(params=["small", "acted"])
def small(request, tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    if request.param == "acted":
        monkeypatch.setattr(os, "geteuid", lambda: 1)
    disk = Disk(tmp_path / "disk", monkeypatch)
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def disk(small):
    return small.folder


def only_line(capsys):
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Traceback" not in err, err
    return err


@pytest.mark.parametrize("leave", [0, 8192])
def test_a_finished_run_survives_a_full_disk(small, disk, tmp_path, capsys, monkeypatch, leave):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (disk / "run.npz").write_bytes(b"an older one")
    small.fill_up(leave)
    assert main([*TRAIN, "--quiet", "--out", str(disk / "run.npz")]) == 1
    said = capsys.readouterr()
    assert "finished at step 20 of 20" in said.out
    first, saved = said.err.rstrip().split("; it is in ")
    assert first == f"error: {disk / 'run.npz'} could not be written (No space left on device)"
    assert mh.Trajectory.load(saved).last_step == 20
    assert saved.startswith(str(tmp_path / "temporary" / "manyheads-"))
    assert (
        sorted(os.listdir(disk)) == ["filler", "run.npz"]
        and (disk / "run.npz").read_bytes() == b"an older one"
    )


def test_with_no_room_anywhere_the_result_is_printed(small, disk, capsys, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    small.fill_up()
    assert main([*TRAIN, "--quiet", "--out", str(disk / "run.npz")]) == 2
    said = capsys.readouterr()
    assert "finished at step 20 of 20" in said.out
    assert said.err.count("\n") == 1 and "No space left on device" in said.err


def test_from_python_a_full_disk_is_a_warning_and_the_run_is_returned(small, disk, monkeypatch):
    monkeypatch.setattr("manyheads.training.descent.CHECKPOINT_SECONDS", -1.0)
    data = mh.TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, frame="axis"
    ).sample(8, key=jax.random.key(1))
    model = mh.zero_start(2, num_tokens=4, dim=6)
    small.fill_up()
    with pytest.warns(
        UserWarning, match="could not be written .No space left on device."
    ) as caught:
        run = mh.train(model, data, rule=mh.GD(0.1), num_steps=9, checkpoint=disk / "run.npz")
    assert run.status == "finished" and len(run.steps) == 10
    assert str(caught[0].message).endswith("the work goes on")
    assert str(caught[-1].message).endswith(
        "the run is not lost: save what `train` returns elsewhere"
    )


def test_a_sweep_on_a_full_disk_keeps_what_it_has(small, disk):
    grid = lab.Grid(heads=[1, 2], seeds=2)

    def cell(heads, seeds):
        if heads == 2:
            small.fill_up()
        return {"x": np.ones(2) * heads}

    with pytest.raises(OSError, match="No space left on device"):
        lab.sweep(cell, grid, out=disk / "cells")
    assert len(list((disk / "cells").glob("*"))) == 1
    small.empty()
    assert (
        lab.sweep(lambda heads, seeds: {"x": np.ones(2) * heads}, grid, out=disk / "b").x.sum() == 6
    )


def test_a_read_only_disk_is_one_line(small, disk, capsys):
    small.make_read_only()
    assert main([*TRAIN, "--quiet", "--out", str(disk / "run.npz")]) == 2
    assert "the folder cannot be written to; pass another one" in only_line(capsys)
