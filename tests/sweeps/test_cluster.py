import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from manyheads.cli.main import main
from manyheads.sweeps.cluster import Dask, Slurm
from manyheads.sweeps.engine import run
from manyheads.sweeps.spec import Sweep


def test_a_dask_worker_killed_midway_costs_nothing(tmp_path):
    sweep = Sweep(cell="sweep_cells:deadly", parameters={"marker": str(tmp_path / "marker")}, seeds=6)
    data = run(sweep, tmp_path / "s", engine=Dask(2), progress=False)
    assert (tmp_path / "marker").exists()  # the second cell did kill its worker
    assert np.array_equal(data.value, range(6)) and (data.status == "finished").all()


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
