"""Several processes make one run; when one of them is killed, what was done is kept."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from processes import wait_until

import manyheads as mh
from manyheads.cli.hosts import PORT, _place
from manyheads.cli.main import main
from manyheads.training import hosts
from manyheads.training.hosts import HostLost

PROGRAM = Path(__file__).with_name("on_hosts.py")
ROUNDING = 1e-12  # float64, some hundred sums in another order
LAST = 10**9  # a step that no run here comes to
OPTIONS = [
    "--heads",
    "4",
    "--examples",
    "30",
    "--dtype",
    "float64",
    "--step-size",
    "0.02",
    "--test-examples",
    "10",
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pair(start, command, **options):
    """Two processes, of the commands with 0 and 1 put in."""
    pipes = dict(
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    return [start([sys.executable, *command(process)], **pipes, **options) for process in (0, 1)]


def together(start, folder, check):
    port = str(free_port())
    both = pair(start, lambda process: [str(PROGRAM), str(process), port, str(folder), check])
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    return [out for out, _ in said]


def train(process, port, folder):
    """A run that never ends and saves itself after every stretch."""
    words = [
        "train",
        *OPTIONS,
        "--steps",
        str(LAST),
        "--out",
        str(folder / "run.npz"),
        "--quiet",
        "--hosts",
        "2",
    ]
    words += ["--process", str(process), "--coordinator", f"127.0.0.1:{port}"]
    often = "from manyheads.training import descent; descent.CHECKPOINT_SECONDS = 0"
    return [
        "-c",
        f"import sys; {often}; from manyheads.cli.main import main; sys.exit(main({words}))",
    ]


def worst(a, b):
    names = ("train_loss", "test_loss", "gradient_norm", "distance")
    return max(
        np.max(np.abs(getattr(a, n) - getattr(b, n)) / np.abs(getattr(a, n)).max()) for n in names
    )


def test_processes_agree_and_get_what_one_gets(start, tmp_path):
    together(start, tmp_path, "agree")
    alone, zero, one = (
        mh.Trajectory.load(tmp_path / name)
        for name in ("process-0/alone.npz", "process-0/together.npz", "process-1/together.npz")
    )
    assert zero.settings["devices"] == 2
    assert np.array_equal(zero.train_loss, one.train_loss) and np.array_equal(
        *(r.snapshots.readout for r in (zero, one))
    )
    assert worst(alone, zero) <= ROUNDING
    assert mh.Trajectory.load(tmp_path / "process-0/checkpoint.npz").last_step == 40


@pytest.mark.full
def test_kernels_and_left_out_runs_of_two_processes(start, tmp_path):
    together(start, tmp_path, "measure")
    found = {
        (p, n): np.load(tmp_path / f"process-{p}/{n}-measured.npz")
        for p in (0, 1)
        for n in ("alone", "together")
    }
    alone = found[0, "alone"]
    for process in (0, 1):
        many = found[process, "together"]
        assert (
            np.abs(many["kernel"] - alone["kernel"]).max()
            <= ROUNDING * np.abs(alone["kernel"]).max()
        )
        assert all(np.array_equal(many[name], alone[name]) for name in ("distance", "loss"))
    assert (tmp_path / "process-0/together.npz").exists() and not (
        tmp_path / "process-1/together.npz"
    ).exists()


@pytest.mark.full
def test_processes_that_do_not_fit_are_refused(start, tmp_path):
    for said in together(start, tmp_path, "refuse"):
        data, one, three = said.splitlines()[-3:]
        assert data.startswith("the processes of this run were given different data")
        assert one.startswith(
            "devices=1 cannot be the same number of each of 2 processes; pass 'all'"
        )
        assert three.startswith("devices=3 is outside 1..2")


def kill_one_of_two(start, folder, number):
    """What the other one says, and its exit code."""
    port = free_port()
    both = pair(start, lambda process: train(process, port, folder))
    path = folder / "run.npz"
    wait_until(
        lambda: path.exists() and mh.Trajectory.load(path).last_step > 0,
        both[0],
        "checkpoint after a step",
    )
    os.kill(both[number].pid, signal.SIGKILL)
    other = both[1 - number]
    out, error = other.communicate()
    assert out == ""
    return other.returncode, error


def check_resumed(folder):
    """One process goes on with what is there, and comes to where an uninterrupted run comes."""
    path = folder / "run.npz"
    done = mh.Trajectory.load(path)
    assert done.status == "interrupted" and done.settings["devices"] == 2 and done.last_step > 0
    plan = [*OPTIONS, "--steps", str(done.last_step + 20), "--quiet"]
    with pytest.warns(UserWarning, match="made on 2 devices and continues on 1 device: it agrees"):
        assert main(["train", *plan, "--resume", str(path), "--out", str(path)]) == 0
    assert main(["train", *plan, "--out", str(folder / "whole.npz")]) == 0
    whole, resumed = mh.Trajectory.load(folder / "whole.npz"), mh.Trajectory.load(path)
    assert resumed.last_step == whole.last_step == done.last_step + 20
    for a, b in zip(whole.displacement, resumed.displacement, strict=True):
        assert np.linalg.norm(a - b) <= ROUNDING * np.linalg.norm(a)


def test_a_killed_process_leaves_a_run_that_one_process_resumes(start, tmp_path):
    code, error = kill_one_of_two(start, tmp_path, 1)
    (line,) = [
        line for line in error.splitlines() if line.startswith("error: ")
    ]  # XLA may complain of a busy machine
    assert (
        line.startswith("error: another process of this run was lost (")
        and "Traceback" not in error
    )
    assert line.endswith("resume it, on any number of devices.")
    assert code == 1
    check_resumed(tmp_path)


@pytest.mark.parametrize("kind", [jax.errors.JaxRuntimeError, ValueError])
def test_a_lost_process_is_said_however_jax_says_it(kind):
    with pytest.raises(
        HostLost, match="another process of this run was lost .UNKNOWN: Gloo AllGather failed"
    ):
        with hosts._a_lost_one_is_said():
            raise kind("UNKNOWN: Gloo AllGather failed: Connection reset by peer")
    with pytest.raises(ValueError, match="another fault"), hosts._a_lost_one_is_said():
        raise ValueError("another fault")


@pytest.mark.full
def test_without_process_0_the_others_end_and_its_checkpoint_is_there(start, tmp_path):
    code, _ = kill_one_of_two(start, tmp_path, 0)
    assert code != 0
    check_resumed(tmp_path)


@pytest.mark.parametrize(
    ("words", "variables", "error"),
    [
        (["--process", "0"], {}, "belong to --hosts N"),
        (["--dry-run"], {}, "belong to --hosts N"),
        (["--hosts", "0"], {}, "--hosts 0 must be a whole number from 1"),
        (["--hosts", "2"], {}, "--hosts 2 needs --process I, 0 to 1, or `srun`"),
        (["--hosts", "2", "--process", "2"], {}, "--process 2 must be from 0 to 1"),
        (
            ["--hosts", "2", "--process", "0", "--coordinator", "here"],
            {},
            "--coordinator 'here' must be ADDRESS:PORT",
        ),
        (
            ["--hosts", "2"],
            {"PROCID": "0", "NTASKS": "3"},
            "--hosts 2 is not the 3 tasks of this SLURM job",
        ),
        (
            ["--hosts", "2"],
            {"PROCID": "0", "NTASKS": "2", "NNODES": "2"},
            "2 nodes need --coordinator ADDRESS:PORT",
        ),
        (["--devices", "many"], {}, "--devices 'many' must be 'all' or a number of devices"),
    ],
)
def test_a_process_without_a_place_is_refused(words, variables, error, monkeypatch, capsys):
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert main(["train", "--steps", "1", "--examples", "5", *words]) == 2
    assert error in capsys.readouterr().err.splitlines()[-1]


def test_the_place_of_a_process_is_told_or_that_of_slurm(monkeypatch):
    assert _place(3, 2, None) == (2, f"127.0.0.1:{PORT}")
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert _place(2, None, "node7:99") == (1, "node7:99")


def test_the_script_in_the_documents_is_what_is_printed(capsys):
    text = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    (words,) = re.findall(r"^manyheads (.*--dry-run) > job.sh$", text, re.MULTILINE)
    assert main(words.split()) == 0
    assert capsys.readouterr().out == script
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""
