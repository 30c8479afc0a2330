"""Work in this process, or in several processes of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from manyheads.sweeps.environment import worker_environment
from manyheads.training.keyboard import deaf_children

Job = dict[str, Any]  # id, cells, hashes, dims, threads, cache, device, python_path, git
Results = Generator[tuple[str, dict[str, Any]], None, None]  # (batch id, what run_batch returned)
MOST_DEATHS = 3  # of workers over one batch, before its cells count as failed


class EngineError(ValueError):
    """The engine cannot work; the message says what to do."""


@dataclass(frozen=True)
class Here:
    """This process, one batch after another."""

    workers: int = 1

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        from manyheads.sweeps.cell import run_batch

        for job in jobs:
            yield job["id"], run_batch(job)


@dataclass(frozen=True)
class Processes:
    """Several processes of this machine. One that dies is replaced, and its batch tried again."""

    workers: int

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        waiting = deque(jobs)
        deaths: dict[str, int] = {}
        team = [_Worker(jobs[0]["threads"]) for _ in range(min(self.workers, len(jobs)))]
        try:
            while any(worker.job for worker in team) or waiting:
                for worker in team:
                    if worker.ready and worker.job is None and waiting:
                        worker.give(waiting.popleft())
                pipes: dict[Any, _Worker] = {worker.pipe: worker for worker in team if worker.job or not worker.ready}
                for worker in [pipes[pipe] for pipe in wait(list(pipes))]:
                    try:
                        done = worker.take()
                    except (EOFError, OSError):
                        code, job = worker.end(), worker.job
                        team[team.index(worker)] = _Worker(jobs[0]["threads"])
                        if job is None:
                            raise EngineError(
                                f"a worker process ended before it could begin (exit code {code}); run the sweep with "
                                "engine 'here' to see why"
                            ) from None
                        deaths[job["id"]] = deaths.get(job["id"], 0) + 1
                        if deaths[job["id"]] < MOST_DEATHS:
                            waiting.appendleft(job)
                            continue
                        why = f"its worker process ended {MOST_DEATHS} times (exit code {code}); too little memory?"
                        done = job["id"], lost(job, why)
                    if done is not None:
                        yield done
        finally:
            for worker in team:
                worker.end()


class _Worker:
    """A child process and the pipe to it."""

    def __init__(self, threads: int):
        self.pipe, theirs = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = {**os.environ, **worker_environment(threads), "PYTHONPATH": path}
        command = [sys.executable, "-m", "manyheads.sweeps.worker", str(theirs.fileno())]
        nothing = subprocess.DEVNULL
        with deaf_children():  # Ctrl-C is for the driver, which then ends its workers
            self.process = subprocess.Popen(
                command, env=environment, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing
            )
        theirs.close()
        self.ready = False
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        try:
            self.pipe.send(job)
        except OSError:
            pass  # it has died; reading from it will fail too

    def take(self) -> tuple[str, dict[str, Any]] | None:
        """A result, or None when the worker only said that it is ready."""
        message = self.pipe.recv()
        if not self.ready:
            self.ready = True
            return None
        assert self.job is not None
        done, self.job = self.job["id"], None
        return done, message

    def end(self) -> int:
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


def lost(job: Job, why: str) -> dict[str, Any]:
    """The result of a batch that no worker can compute."""
    failed = dict(status="failed", message=why[:500], seconds=0.0, values={})
    worker = dict(host="", process=0, device="", threads=job["threads"], versions={}, git=job["git"])
    return dict(cells=[{"hash": hash_, **failed} for hash_ in job["hashes"]], worker=worker)
