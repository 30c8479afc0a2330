"""Work on Dask: a cluster on this machine, one that is running, or one that SLURM starts."""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import dataclass
from typing import Any

from manyheads.sweeps.environment import worker_environment
from manyheads.sweeps.local import EngineError, Job, Results, lost
from manyheads.training.keyboard import same_ctrl_c

CONNECT_SECONDS = 10
WINDOW = 2000  # batches handed over at a time


@dataclass(frozen=True)
class Dask:
    """Dask distributed: the scheduler at `address`, or without one a cluster of `workers` processes on this machine."""

    workers: int = 2
    address: str | None = None

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        if not jobs:
            return
        distributed = _distributed()
        with contextlib.ExitStack() as stack:
            if self.address is None:
                cluster = stack.enter_context(self._local(distributed, len(jobs), jobs[0]["threads"]))
                client = stack.enter_context(distributed.Client(cluster))
            else:
                client = stack.enter_context(_connect(distributed, self.address))
            yield from _submit(distributed, client, jobs)

    def _local(self, distributed: Any, most: int, threads: int) -> Any:
        try:
            return distributed.LocalCluster(
                n_workers=min(self.workers, most),
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                env=worker_environment(threads),
                silence_logs=logging.ERROR,
            )
        except (RuntimeError, TimeoutError) as error:
            reason = " ".join(str(error).split())[:120]
            raise EngineError(
                f"the local Dask cluster did not start ({reason}); in a script, call it below "
                "if __name__ == '__main__':, or pass engine 'processes'"
            ) from None


@dataclass(frozen=True)
class Slurm:
    """Dask workers as SLURM jobs, through dask-jobqueue, whose configuration files hold the other options."""

    workers: int = 4
    memory: str = "4GB"
    walltime: str = "01:00:00"
    partition: str | None = None
    account: str | None = None
    directives: tuple[str, ...] = ()  # more lines for #SBATCH, such as "--constraint=avx2"
    prologue: tuple[str, ...] = ()  # shell lines before the worker starts, such as "module load python"
    logs: str | None = None

    def cluster(self, threads: int = 1) -> Any:
        """The SLURMCluster, with no job submitted yet."""
        try:
            with same_ctrl_c():  # importing it replaces the program's handler
                from dask_jobqueue import SLURMCluster
        except ImportError:
            raise EngineError("engine 'slurm' needs dask-jobqueue; pip install 'manyheads[cluster]'") from None
        exports = [f"export {name}={value}" for name, value in worker_environment(threads).items()]
        return SLURMCluster(
            cores=1,
            processes=1,
            job_cpu=threads,
            memory=self.memory,
            walltime=self.walltime,
            queue=self.partition,
            account=self.account,
            python=sys.executable,
            job_name="manyheads",
            job_extra_directives=list(self.directives),
            job_script_prologue=[*exports, *self.prologue],
            log_directory=self.logs,
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
        )

    def job_script(self, threads: int = 1) -> str:
        """What would be handed to sbatch, without handing it over."""
        with self.cluster(threads) as cluster:
            return cluster.job_script()

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        if not jobs:
            return
        distributed = _distributed()
        with self.cluster(jobs[0]["threads"]) as cluster, distributed.Client(cluster) as client:
            cluster.scale(jobs=min(self.workers, len(jobs)))
            yield from _submit(distributed, client, jobs)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise EngineError("engine 'dask' needs dask and distributed; pip install 'manyheads[cluster]'") from None
    return distributed


def _connect(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise EngineError(
            f"no Dask scheduler answers at {address} ({reason}); start one with `dask scheduler`"
        ) from None


def _submit(distributed: Any, client: Any, jobs: list[Job]) -> Results:
    """Hand over jobs, a window at a time; Dask gives the jobs of a lost worker to another one.

    An error of a batch is its result; a lost scheduler is an error of the sweep.
    """
    from manyheads.sweeps.cell import run_batch

    queue = iter(jobs)
    names: dict[Any, Job] = {}
    pending = distributed.as_completed()

    def hand_over(count: int) -> None:
        for _, job in zip(range(count), queue, strict=False):
            try:
                future = client.submit(run_batch, job, key=f"manyheads-{job['id']}", pure=False, retries=1)
            except Exception as error:
                raise _lost_scheduler(error) from None
            names[future.key] = job
            pending.add(future)

    hand_over(WINDOW)
    for future in pending:
        job = names.pop(future.key)
        try:
            result = future.result()
        except Exception as error:  # a worker that dies again and again, or code that a worker does not have
            if future.status != "error":
                raise _lost_scheduler(error) from None
            result = lost(job, f"{_short(error, 300)}; too little memory?")
        yield job["id"], result
        future.release()
        hand_over(1)


def _lost_scheduler(error: Exception) -> EngineError:
    return EngineError(
        f"the connection to the Dask scheduler is lost ({_short(error, 120)}); what was done is stored: restart the "
        "scheduler if it has ended, and rerun the same command to resume"
    )


def _short(error: Exception, length: int) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:length]
