import asyncio
import contextlib
import json
import logging
import os
import shlex
import socket
import stat
import subprocess
import sys
from types import SimpleNamespace

import distributed
import numpy as np
import psutil
import pytest
from processes import wait_until

from manyheads.cli.main import main
from manyheads.sweeps import cluster as cluster_module
from manyheads.sweeps.cluster import Dask, Slurm
from manyheads.sweeps.engine import run
from manyheads.sweeps.local import EngineError
from manyheads.sweeps.servers import local_cluster, own_security
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.status import status


def test_a_dask_worker_killed_midway_costs_nothing(tmp_path):
    sweep = Sweep(
        cell="sweep_cells:deadly", parameters={"marker": str(tmp_path / "marker")}, seeds=6
    )
    before, listening = ports(), []
    data = run(
        sweep, tmp_path / "s", engine=Dask(2), progress=lambda _: listening.append(ports() - before)
    )
    assert (tmp_path / "marker").exists()  # the second cell did kill its worker
    assert {host for host, _ in listening[0]} == {
        "127.0.0.1"
    }  # the scheduler, a nanny and a worker each; no HTTP
    assert len(listening[0]) <= 5, listening[0]
    assert np.array_equal(data.value, range(6)) and (data.status == "finished").all()


def ports():
    """Where this process and all below it listen."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            found |= {
                tuple(c.laddr) for c in process.net_connections() if c.status == psutil.CONN_LISTEN
            }
    return found


def test_who_has_no_key_cannot_speak_to_the_scheduler():
    with local_cluster(0, {}, logging.CRITICAL) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://127.0.0.1:")
        other = own_security().get_connection_args("client")
        for name, arguments in ((address, other), (address.replace("tls", "tcp"), {})):

            async def ask(name=name, arguments=arguments):
                async with distributed.rpc(name, connection_args=arguments, timeout=2) as scheduler:
                    await asyncio.wait_for(scheduler.identity(), 2)

            with pytest.raises((OSError, TimeoutError, RuntimeError)):
                asyncio.run(ask())
        with distributed.Client(cluster) as client:
            assert client.scheduler_info()["type"] == "Scheduler"


def test_a_scheduler_without_workers_is_named(monkeypatch):
    monkeypatch.setattr(cluster_module, "NOTE_SECONDS", 0.2)
    with distributed.LocalCluster(
        n_workers=0, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as cluster:
        with contextlib.closing(
            Dask(address=cluster.scheduler_address).work([dict(id="1", threads=1)])
        ) as results:
            said = next(
                result["note"] for batch, result in results if batch == "" and result["note"]
            )
    assert said == (
        f"waiting for workers: the Dask scheduler at {cluster.scheduler_address} has none; start one with "
        f"`dask worker {cluster.scheduler_address}`"
    )


def test_a_silent_worker_and_a_silent_scheduler_are_named_once(monkeypatch):
    client = SimpleNamespace(status="running", scheduler=SimpleNamespace(address="tcp://a:1"))
    seen = {"tcp://b:1": 0.0, "tcp://c:1": 0.0}
    client.sync = lambda *_, **__: {
        "workers": {name: {"last_seen": time} for name, time in seen.items()}
    }
    watch = cluster_module._Watch(client, "")
    monkeypatch.setattr(cluster_module, "SILENT_SECONDS", 0)
    clock = iter(range(100))
    monkeypatch.setattr(cluster_module.time, "monotonic", lambda: next(clock))
    assert watch.look() == []
    seen["tcp://b:1"] = 1.0
    assert watch.look() == [
        "waiting for the worker at tcp://c:1, which gives no sign of life: it is loading, or stopped"
    ]
    seen["tcp://b:1"] = 2.0
    assert watch.look() == []

    def no_answer(*_, **__):
        raise TimeoutError

    client.sync = no_answer
    assert watch.look() == [
        "waiting for the Dask scheduler at tcp://a:1, which does not answer: it is busy, or stopped"
    ]


def test_a_port_that_is_no_scheduler_is_an_error_in_seconds(monkeypatch):
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            EngineError, match=rf"no Dask scheduler answers at {address} \(no answer in 0.3 s\)"
        ):
            next(Dask(address=address).work([dict(id="1", threads=1)]))


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
        EngineError,
        match="connection to the Dask scheduler is lost .* rerun the same command to resume",
    ):
        run(
            tmp_path / "s.toml",
            tmp_path / "s",
            engine="dask",
            scheduler=address,
            progress=kill_the_scheduler,
        )
    gate.unlink()
    assert "Traceback" not in capfd.readouterr().err
    found = status(tmp_path / "s")
    assert (
        killed
        and found.failed == 0
        and found.finished >= 2
        and found.missing == 8 - found.finished > 0
    )
    address, _ = dask(start, tmp_path / "second.json")
    command = [
        "sweep",
        str(tmp_path / "s.toml"),
        "--out",
        str(tmp_path / "s"),
        "--engine",
        "dask",
        "--quiet",
    ]
    assert main([*command, "--scheduler", address]) == 0
    assert status(tmp_path / "s").finished == 8


def dask(start, file):
    """Start a scheduler and one worker, each a process of its own: the scheduler's address and process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    options = dict(env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    module = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
    ]
    scheduler = start([*module, *common], **options)

    def address():
        with contextlib.suppress(OSError, ValueError):  # not there, or not yet whole
            return json.loads(file.read_text())["address"]

    wait_until(address, scheduler, "address of the scheduler")
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny"]
    start([*worker, *common], **options)
    return address(), scheduler


def test_a_dry_run_shows_the_script_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "listen", lambda *_: pytest.fail("a dry run listens"))
    Sweep(name="a; touch b", cell="sweep_cells:arithmetic", seeds=3).save(tmp_path / "s.toml")
    options = [
        "--engine",
        "slurm",
        "--workers",
        "8",
        "--partition",
        "short",
        "--account",
        "theory",
        "--memory",
        "2GB",
    ]
    assert main(["sweep", "s.toml", "--dry-run", "--walltime", "00:30:00", *options]) == 0
    plan, script = capsys.readouterr().out.split("#!", 1)
    assert "3 cells = seed (3), in 3 batches" in plan
    wanted = [
        "-J manyheads",
        "-p short",
        "-A theory",
        "-n 1",
        "--cpus-per-task=1",
        "--mem=2G",
        "-t 00:30:00",
    ]
    assert all(f"#SBATCH {line}" in script for line in wanted)
    assert "export NPROC=1" in script and sys.executable in script
    subprocess.run(
        ["bash", "-n"], input="#!" + script, text=True, check=True
    )  # the shell can read it
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]
    folder = tmp_path / "results" / "a; touch b"
    output = next(line for line in script.splitlines() if line.startswith("#SBATCH -o"))
    assert shlex.split(output, comments=False)[2:] == [f"{folder}/logs/manyheads-%J.out"]
    worker = shlex.split(next(line for line in script.splitlines() if "dask_worker" in line))
    assert worker[worker.index("--tls-key") + 1] == f"{folder}/KEY.pem.tmp" and ";" not in worker


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(account="a\nrm -rf b"), r"account='a\nrm -rf b' must be one word"),
        (dict(partition="a b"), "partition='a b' must be one word"),
        (dict(memory="4GB\n#SBATCH -A x"), "must be a number with a unit, such as 4GB"),
        (dict(walltime="1:00 #"), "must be a time such as 01:30:00"),
        (dict(directives=("--qos=a\n--qos=b",)), "must be one line of printable characters"),
        (dict(logs="a\nb"), "has a character that SLURM cannot write in a path"),
    ],
)
def test_what_would_become_a_line_of_the_script_is_refused(options, words):
    with pytest.raises(EngineError) as caught:
        Slurm(**options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


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
    sbatch.write_text(
        '#!/bin/bash\nbash "${@: -1}" > "$0.log" 2>&1 &\necho "Submitted batch job $!"\n'
    )
    scancel = tmp_path / "bin" / "scancel"
    scancel.write_text('#!/bin/bash\nkill "$@" 2> /dev/null\n')
    for tool in (sbatch, scancel):
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    sweep = Sweep(cell="sweep_cells:arithmetic", axes={"parameters.slope": [0.5, 2.0]}, seeds=2)
    folder = tmp_path / "a; touch b"
    seen, before = [], ports()

    def look(_):
        seen.extend(
            [
                ports() - before,
                {path: path.stat().st_mode & 0o777 for path in folder.glob("key-*.tmp")},
            ]
        )

    data = run(sweep, folder, engine=Slurm(workers=1), progress=look)
    (host, _), *others = seen[0]
    assert host != "0.0.0.0" and not others  # the scheduler alone, on one interface
    assert list(seen[1].values()) == [0o600] and not list(folder.glob("key-*"))
    assert (folder / "logs").is_dir() and not (tmp_path / "b").exists()
    assert data.identical(
        run(sweep, tmp_path / "here", progress=False).assign_attrs(threads=data.attrs["threads"])
    )
