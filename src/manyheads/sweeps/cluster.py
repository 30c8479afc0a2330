"""Work on Dask: a cluster on this machine, one that is running, or one that SLURM starts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyheads.sweeps.environment import worker_environment
from manyheads.sweeps.local import NOTE_SECONDS, EngineError, Job, Results, lost, note
from manyheads.training.keyboard import deaf_children, same_ctrl_c

CONNECT_SECONDS = 8
SILENT_SECONDS = 5  # without a sign of life from a worker, which sends one every half a second
WINDOW = 2000  # batches handed over at a time
WORD = re.compile(r"[\w.,:@+/=-]+", re.ASCII)
MEMORY = re.compile(r"\d+(\.\d+)? ?[kKMGT]?i?B?")
WALLTIME = re.compile(r"\d+(-\d+)?(:\d+){0,2}")


@dataclass(frozen=True)
class Dask:
    """Dask distributed: the scheduler at `address`, or without one a cluster of `workers` processes on this machine.

    The cluster on this machine listens on the loopback interface alone, with a TLS key of its own.
    """

    workers: int = 2
    address: str | None = None

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        if not jobs:
            return
        distributed = _distributed()
        from distributed.utils import silence_logging_cmgr

        with contextlib.ExitStack() as stack:
            if self.address is None:
                cluster = stack.enter_context(
                    self._local(min(self.workers, len(jobs)), jobs[0]["threads"])
                )
                client = stack.enter_context(distributed.Client(cluster))
            else:
                for name in (
                    "distributed",
                    "distributed.client",
                ):  # what goes wrong is an error of ours
                    stack.enter_context(silence_logging_cmgr(logging.CRITICAL, name))
                client = stack.enter_context(_connect(distributed, self.address))
            yield from _submit(
                client, jobs, f"start one with `dask worker {client.scheduler.address}`"
            )

    def _local(self, count: int, threads: int) -> Any:
        from manyheads.sweeps.servers import local_cluster

        try:
            with (
                deaf_children()
            ):  # Ctrl-C is for the driver; the threads that start workers are begun here
                return local_cluster(count, worker_environment(threads), logging.CRITICAL)
        except (RuntimeError, TimeoutError) as error:
            reason = " ".join(str(error).split())[:120]
            raise EngineError(
                f"the local Dask cluster did not start ({reason}); in a script, call it below "
                "if __name__ == '__main__':, or pass engine 'processes'"
            ) from None


@dataclass(frozen=True)
class Slurm:
    """Dask workers as SLURM jobs, through dask-jobqueue, whose configuration files hold the other options.

    Scheduler and workers speak TLS with a key that is made for the run and kept in `folder`, which the nodes must see;
    the scheduler listens on `interface`, or else on the address that this node has for others.
    """

    workers: int = 4
    memory: str = "4GB"
    walltime: str = "01:00:00"
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] = ()  # more lines for #SBATCH, such as "--constraint=avx2"
    prologue: tuple[
        str, ...
    ] = ()  # shell lines before the worker starts, such as "module load python"
    logs: str | None = None  # folder of what the jobs print; `logs` in the folder of the sweep
    interface: str | None = None  # of the network between the nodes, such as "ib0"
    folder: str | None = None  # of the key; the folder of the sweep

    def __post_init__(self) -> None:
        for name in ("partition", "account", "interface"):
            _require(
                name, getattr(self, name), WORD, "one word of letters, digits and _ . , : @ + / = -"
            )
        _require("memory", self.memory, MEMORY, "a number with a unit, such as 4GB")
        _require("walltime", self.walltime, WALLTIME, "a time such as 01:30:00 or 2-12:00:00")
        for line in self.directives:
            if not line.isprintable():
                raise EngineError(
                    f"directives={line!r} must be one line of printable characters, such as '--qos=short'"
                )
        for name in ("logs", "folder"):
            path = getattr(self, name) or ""
            if not path.isprintable() or "\\" in path:
                raise EngineError(
                    f"{name}={path!r} has a character that SLURM cannot write in a path; choose another"
                )

    def within(self, folder: str | Path) -> Slurm:
        """The same for a sweep in this folder."""
        logs = self.logs or str(Path(folder, "logs"))
        return replace(self, logs=logs, folder=self.folder or str(folder))

    def job_script(self, threads: int = 1) -> str:
        """What would be handed to sbatch; nothing is started, and no file is made."""
        example = self._job_class()(
            "tls://ADDRESS:PORT",
            name="manyheads-0",
            **self._options(threads, str(Path(self._place(), "KEY.pem.tmp"))),
        )
        return example.job_script()

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        if not jobs:
            return
        distributed = _distributed()
        from distributed.utils import get_ip

        from manyheads.sweeps.servers import own_security, scheduler

        job_class, security = self._job_class(), own_security()
        if self.logs is not None:
            Path(self.logs).mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            key = stack.enter_context(_key_file(security, self._place()))
            options = self._options(jobs[0]["threads"], key)
            where = {"interface": self.interface} if self.interface else {"host": get_ip()}
            cluster = distributed.SpecCluster(
                scheduler=scheduler(security, **where),
                worker={"cls": job_class, "options": options},
                security=security,
                silence_logs=logging.CRITICAL,
                name="manyheads",
            )
            stack.enter_context(cluster)
            client = stack.enter_context(distributed.Client(cluster))
            cluster.scale(min(self.workers, len(jobs)))
            yield from _submit(
                client,
                jobs,
                "SLURM has started none of the jobs yet; `squeue --me` shows the queue",
            )

    def _place(self) -> Path:
        return Path(self.folder or ".").absolute()

    def _job_class(self) -> Any:
        try:
            with same_ctrl_c():  # importing it replaces the program's handler
                from dask_jobqueue.slurm import SLURMJob
        except ImportError:
            raise EngineError(
                "engine 'slurm' needs dask-jobqueue; pip install 'manyheads[cluster]'"
            ) from None
        return SLURMJob

    def _options(self, threads: int, key: str) -> dict[str, Any]:
        """Of dask-jobqueue's job, which writes them into the script as they are."""
        from dask import config

        exports = [
            f"export {name}={shlex.quote(value)}"
            for name, value in worker_environment(threads).items()
        ]
        logs = []
        if self.logs is not None:
            path = str(Path(self.logs, "manyheads-").absolute()).replace(
                "%", "%%"
            )  # %J is the number of the job
            logs = [f"-e {shlex.quote(f'{path}%J.err')}", f"-o {shlex.quote(f'{path}%J.out')}"]
        interface = ["--interface", self.interface] if self.interface else []
        tls = [
            word
            for name in ("ca-file", "cert", "key")
            for word in (f"--tls-{name}", shlex.quote(key))
        ]
        quiet = ["--no-dashboard", "--worker-class", "manyheads.sweeps.servers.Worker"]
        configured = "jobqueue.slurm"
        return dict(
            cores=1,
            processes=1,
            job_cpu=threads,
            memory=self.memory,
            walltime=self.walltime,
            queue=self.partition,
            account=self.account,
            python=shlex.quote(sys.executable),
            job_name="manyheads",
            protocol="tls://",
            worker_extra_args=[
                *config.get(f"{configured}.worker-extra-args", []),
                *interface,
                *tls,
                *quiet,
            ],
            job_extra_directives=[
                *config.get(f"{configured}.job-extra-directives", []),
                *logs,
                *self.directives,
            ],
            job_script_prologue=[
                *config.get(f"{configured}.job-script-prologue", []),
                *exports,
                *self.prologue,
            ],
        )


def _require(name: str, value: str | None, pattern: re.Pattern, what: str) -> None:
    if value is not None and not (isinstance(value, str) and pattern.fullmatch(value)):
        raise EngineError(f"{name}={value!r} must be {what}")


@contextlib.contextmanager
def _key_file(security: Any, folder: Path) -> Generator[str, None, None]:
    """Key and certificate in a file that only this user can read, for as long as the run goes.

    What a killed run leaves is no one's key any more, and has the ending of the files that the next run removes.
    """
    worker = security.get_tls_config_for_role("worker")
    number, path = tempfile.mkstemp(prefix="key-", suffix=".pem.tmp", dir=folder)  # mode 0600
    try:
        with os.fdopen(number, "w") as file:
            file.write(worker["cert"] + worker["key"])
        yield path
    finally:
        Path(path).unlink(missing_ok=True)


def _distributed() -> Any:
    try:
        import cryptography  # noqa: F401  (makes the keys)
        import distributed
    except ImportError:
        raise EngineError(
            "engines 'dask' and 'slurm' need dask, distributed and cryptography; pip install 'manyheads[cluster]'"
        ) from None
    return distributed


def _connect(distributed: Any, address: str) -> Any:
    """A client of the scheduler at an address; an error in seconds if there is none, or something else."""

    async def ask() -> None:
        arguments = distributed.Security().get_connection_args("client")
        async with distributed.rpc(
            address, connection_args=arguments, timeout=CONNECT_SECONDS
        ) as scheduler:
            await asyncio.wait_for(scheduler.identity(), CONNECT_SECONDS)

    try:
        _apart(
            lambda: asyncio.run(ask())
        )  # a client would wait for as long as something holds the port
        return distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())[:120] or f"no answer in {CONNECT_SECONDS} s"
        raise EngineError(
            f"no Dask scheduler answers at {address} ({reason}); start one with `dask scheduler`"
        ) from None


def _apart(call: Any) -> None:
    """Call a function in a thread, so that it may run an event loop where one is running, as in a notebook."""
    found: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if found:
        raise found[0]


def _submit(client: Any, jobs: list[Job], remedy: str) -> Results:
    """Hand over jobs, a window at a time; Dask gives the jobs of a lost worker to another one.

    A batch whose workers are lost again and again stays missing; a lost scheduler is an error of the sweep.
    """
    from manyheads.sweeps.cell import run_batch

    waiting = iter(jobs)
    names: dict[Any, Job] = {}
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    watch = _Watch(client, remedy)

    def hand_over(count: int) -> None:
        for _, job in zip(range(count), waiting, strict=False):
            try:
                future = client.submit(
                    run_batch, job, key=f"manyheads-{job['id']}", pure=False, retries=1
                )
            except Exception as error:
                raise _lost_scheduler(error) from None
            names[future.key] = job
            future.add_done_callback(done.put)

    hand_over(WINDOW)
    while names:
        try:
            future = done.get(timeout=NOTE_SECONDS)
        except queue.Empty:
            yield from map(note, watch.look() or [""])
            continue
        job = names.pop(future.key)
        try:
            result = future.result()
        except (
            Exception
        ) as error:  # a worker that dies again and again, or code that a worker does not have
            if future.status != "error":
                raise _lost_scheduler(error) from None
            result = lost(f"{_short(error, 300)}; too little memory?")
        yield job["id"], result
        future.release()
        hand_over(1)


class _Watch:
    """What a sweep that gets no results may be waiting for; each thing is said once until it changes."""

    def __init__(self, client: Any, remedy: str):
        self.client, self.remedy = client, remedy
        self.said: set[str] = set()
        self.heard: dict[
            str, tuple[float, float]
        ] = {}  # worker -> its last sign of life, and since when we know it

    def look(self) -> list[str]:
        now = set(self._now())
        new, self.said = sorted(now - self.said), now
        return new

    def _now(self) -> list[str]:
        address = self.client.scheduler.address if self.client.scheduler else "its address"
        if self.client.status == "closed":
            raise _lost_scheduler(ConnectionError("the client was closed"))
        try:
            workers = self.client.sync(self._identity, callback_timeout=NOTE_SECONDS)["workers"]
        except (OSError, TimeoutError):
            return [
                f"waiting for the Dask scheduler at {address}, which does not answer: it is busy, or stopped"
            ]
        if not workers:
            return [f"waiting for workers: the Dask scheduler at {address} has none; {self.remedy}"]
        heard, now = self.heard, time.monotonic()
        self.heard = {}
        for name, worker in workers.items():
            before, since = heard.get(name, (None, now))
            self.heard[name] = worker["last_seen"], since if before == worker["last_seen"] else now
        limit = SILENT_SECONDS + len(workers) / 100  # the more workers, the rarer their signs
        silent = [name for name, (_, since) in self.heard.items() if now - since > limit]
        return [
            f"waiting for the worker at {name}, which gives no sign of life: it is loading, or stopped"
            for name in silent
        ]

    async def _identity(self) -> dict[str, Any]:
        return await self.client.scheduler.identity(n_workers=-1)


def _lost_scheduler(error: Exception) -> EngineError:
    return EngineError(
        f"the connection to the Dask scheduler is lost ({_short(error, 120)}); what was done is stored: restart the "
        "scheduler if it has ended, and rerun the same command to resume"
    )


def _short(error: Exception, length: int) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:length]
