import contextlib
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from processes import wait_until

from manyheads.cli.main import main
from manyheads.sweeps.cluster import Dask, Slurm
from manyheads.sweeps.engine import run
from manyheads.sweeps.local import EngineError
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.status import status


def test_a_dask_worker_killed_midway_costs_nothing(tmp_path):
    sweep = Sweep(cell="sweep_cells:deadly", parameters={"marker": str(tmp_path / "marker")}, seeds=6)
    data = run(sweep, tmp_path / "s", engine=Dask(2), progress=False)
    assert (tmp_path / "marker").exists()  # the second cell did kill its worker
    assert np.array_equal(data.value, range(6)) and (data.status == "finished").all()


def test_a_lost_scheduler_fails_no_cell_and_the_same_command_goes_on(tmp_path, start, capfd):
    gate, killed = tmp_path / "gate", []
    gate.touch()  # so that there is work left when the scheduler dies, however late the sweep hears of a cell
    parameters = {"log": str(tmp_path / "log"), "gate": str(gate), "passed": 3}
    Sweep(cell="sweep_cells:slow", parameters=parameters, seeds=8).save(tmp_path / "s.toml")
    address, scheduler = dask(start, tmp_path / "first.json")

    def kill_the_scheduler(state):
        if state.done == 2 and not killed:
            killed.append(scheduler)
            scheduler.kill()

    with pytest.raises(
        EngineError, match="connection to the Dask scheduler is lost .* rerun the same command to resume"
    ):
        run(tmp_path / "s.toml", tmp_path / "s", engine="dask", scheduler=address, progress=kill_the_scheduler)
    gate.unlink()
    assert "Traceback" not in capfd.readouterr().err
    found = status(tmp_path / "s")
    assert killed and found.failed == 0 and found.finished >= 2 and found.missing == 8 - found.finished > 0
    address, _ = dask(start, tmp_path / "second.json")
    command = ["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "s"), "--engine", "dask", "--quiet"]
    assert main([*command, "--scheduler", address]) == 0
    assert status(tmp_path / "s").finished == 8


def dask(start, file):
    """Start a scheduler and one worker, each a process of its own: the scheduler's address and process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    options = dict(env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    scheduler = start([*module, *common], **options)

    def address():
        with contextlib.suppress(OSError, ValueError):  # not there, or not yet whole
            return json.loads(file.read_text())["address"]

    wait_until(address, scheduler, "address of the scheduler")
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"]
    start([*worker, *common], **options)
    return address(), scheduler


def test_the_job_script_of_a_dry_run(tmp_path, capsys):
    Sweep(cell="sweep_cells:arithmetic", seeds=3).save(tmp_path / "s.toml")
    options = ["--engine", "slurm", "--workers", "8", "--partition", "short", "--account", "theory", "--memory", "2GB"]
    assert main(["sweep", str(tmp_path / "s.toml"), "--dry-run", "--walltime", "00:30:00", *options]) == 0
    plan, script = capsys.readouterr().out.split("#!", 1)
    assert "3 cells = seed (3), in 3 batches" in plan
    wanted = ["-J manyheads", "-p short", "-A theory", "-n 1", "--cpus-per-task=1", "--mem=2G", "-t 00:30:00"]
    assert all(f"#SBATCH {line}" in script for line in wanted)
    assert "export NPROC=1" in script and "dask_worker tcp://" in script and sys.executable in script
    subprocess.run(["bash", "-n"], input="#!" + script, text=True, check=True)  # the shell can read it
    assert not (tmp_path / "results").exists()


def test_a_job_script_leaves_ctrl_c_as_it_was():
    program = (
        "import signal; from manyheads.sweeps.cluster import Slurm; Slurm().job_script(); "
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_slurm_jobs_do_the_work(tmp_path, monkeypatch):
    """A stand-in for sbatch runs the job script on this machine: everything but the queue is real."""
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text('#!/bin/bash\nbash "${@: -1}" > "$0.log" 2>&1 &\necho "Submitted batch job $!"\n')
    scancel = tmp_path / "bin" / "scancel"
    scancel.write_text('#!/bin/bash\nkill "$@" 2> /dev/null\n')
    for tool in (sbatch, scancel):
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    sweep = Sweep(cell="sweep_cells:arithmetic", axes={"parameters.slope": [0.5, 2.0]}, seeds=2)
    data = run(sweep, tmp_path / "s", engine=Slurm(workers=1, logs=str(tmp_path / "logs")), progress=False)
    assert data.identical(run(sweep, tmp_path / "here", progress=False).assign_attrs(threads=data.attrs["threads"]))
