"""Work in this process, or in several processes of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from manyheads.sweeps.environment import worker_environment
from manyheads.training.keyboard import deaf_children

Job = dict[str, Any]  # id, cells, dims, threads, cache, device, python_path, git
Results = Generator[
    tuple[str, dict[str, Any]], None, None
]  # (batch id, what run_batch, lost or note returned)
MOST_DEATHS = 3  # of workers over one batch, before it is left out of this run
MOST_STARTS = 10  # of workers that end before they can begin, one after another
NOTE_SECONDS = 3  # without a result, before an engine looks for what it waits for


class EngineError(ValueError):
    """The engine cannot work; the message says what to do."""


@dataclass(frozen=True)
class Here:
    """This process, one batch after another, or one on each of several devices at a time."""

    workers: int = 1
    devices: tuple[Any, ...] = ()

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        from manyheads.sweeps.cell import run_batch

        if not self.devices:
            yield from ((job["id"], run_batch(job)) for job in jobs)
            return
        from manyheads.training.devices import spread

        for job, result in spread(lambda job, device: run_batch(job), jobs, self.devices):
            yield job["id"], result


@dataclass(frozen=True)
class Processes:
    """Several processes of this machine. One that dies is replaced, and its batch tried again."""

    workers: int

    def work(self, jobs: list[Job]) -> Results:
        """Yield (batch id, result) as they are done."""
        waiting = deque(jobs)
        deaths: dict[str, int] = {}
        stillborn = 0
        team = [_Worker(jobs[0]["threads"]) for _ in range(min(self.workers, len(jobs)))]
        try:
            while any(worker.job for worker in team) or waiting:
                for worker in team:
                    if worker.ready and worker.job is None and waiting:
                        worker.give(waiting.popleft())
                pipes: dict[Any, _Worker] = {
                    worker.pipe: worker for worker in team if worker.job or not worker.ready
                }
                ready = wait(list(pipes), timeout=NOTE_SECONDS)
                if not ready:
                    yield from map(
                        note,
                        [worker.stopped for worker in team if worker.is_newly_stopped()] or [""],
                    )
                for worker in [pipes[pipe] for pipe in ready]:
                    try:
                        done = worker.take()
                        stillborn = 0
                    except (EOFError, OSError):
                        code, job = worker.end(), worker.job
                        team[team.index(worker)] = _Worker(jobs[0]["threads"])
                        if job is None:
                            stillborn += 1
                            if stillborn == MOST_STARTS:
                                raise EngineError(
                                    f"{MOST_STARTS} worker processes ended before they could begin (exit code {code}); "
                                    "run the sweep with engine 'here' to see why"
                                ) from None
                            continue
                        deaths[job["id"]] = deaths.get(job["id"], 0) + 1
                        if deaths[job["id"]] < MOST_DEATHS:
                            waiting.appendleft(job)
                            continue
                        done = (
                            job["id"],
                            lost(f"{MOST_DEATHS} worker processes ended in it (exit code {code})"),
                        )
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
        self.ready = self.told = False
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

    def is_newly_stopped(self) -> bool:
        """Whether the process was stopped, as Ctrl-Z and SIGSTOP do, and this was not asked before."""
        told, self.told = self.told, _is_stopped(self.process.pid)
        return self.told and not told

    @property
    def stopped(self) -> str:
        pid = self.process.pid
        return (
            f"waiting for worker process {pid}, which is stopped; `kill -CONT {pid}` lets it go on"
        )

    def end(self) -> int:
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


def _is_stopped(pid: int) -> bool:
    """As far as the operating system shows it."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


def lost(why: str) -> dict[str, Any]:
    """In place of the result of a batch that no worker can compute: its cells stay missing."""
    return dict(lost=why[:500])


def note(text: str) -> tuple[str, dict[str, Any]]:
    """In place of a batch and its result: what the engine waits for, or "" to say that it still waits."""
    return "", dict(note=text)
