"""Running studies: every sweep has its own folder, so that an interrupted run resumes where it stopped.

Whole sweeps are handed to a few long-lived worker processes, the longest first, so that programs compiled for one
study are reused by the next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from manyheads.data.door import guarded
from manyheads.data.files import Damaged, set_aside
from manyheads.studies.kit.catalog import find, studies
from manyheads.studies.kit.compiler import compile_quickly
from manyheads.studies.kit.folder import read_run, sweep_folder, write_run
from manyheads.studies.kit.pool import SPAWN, worker_pool
from manyheads.sweeps.progress import State
from manyheads.sweeps.spec import Sweep
from manyheads.training.keyboard import deaf_children

LOOK_EVERY = 0.2  # seconds between two polls of the workers

_told: Any = None  # in a worker: where it says what is done


@dataclass(frozen=True)
class Job:
    """One sweep of one study, where it is stored, and roughly how long it takes."""

    study: str
    sweep: Sweep
    folder: Path
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.study} / {self.folder.name}"


@guarded()
def run_studies(
    sources: Sequence[str],
    folder: str | Path,
    *,
    scale: str = "quick",
    workers: int = 2,
    seed: int = 0,
    retry_failed: bool = False,
    tell: Callable[[Job, State], Any] = lambda job, state: None,
) -> None:
    """Run the missing parts of some studies, each a name or a path, and list them in the folder's `run.json`.

    `seed` is added to the seeds of every sweep. `retry_failed` runs failed cells again. `tell` is called for every cell
    that is done. Studies that the folder holds already stay in it.
    """
    if not (isinstance(workers, int) and 1 <= workers <= 1024):
        raise ValueError(f"workers={workers!r} must be a whole number from 1 to 1024.")
    folder = Path(folder)
    jobs = plan_jobs(sources, folder, scale, seed)
    folder.mkdir(parents=True, exist_ok=True)
    _note(folder, sources, scale, seed)
    jobs.sort(key=lambda job: -job.seconds)
    options = {"retry_failed": retry_failed}
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            _run_job(job, lambda state, job=job: tell(job, state), list(sys.path), options)
    else:
        _in_processes(jobs, min(workers, len(jobs)), tell, options, quick=scale == "quick")


@guarded()
def plan_jobs(sources: Sequence[str], folder: Path, scale: str, seed: int = 0) -> list[Job]:
    """The sweeps of some studies, checked, in the order of the studies."""
    if not (isinstance(seed, int) and seed >= 0):
        raise ValueError(f"seed={seed!r} must be a whole number >= 0.")
    jobs, found = [], {}
    for source in sources:
        study = find(source)
        if found.setdefault(study.name, study) is not study:
            raise ValueError(
                f"two studies are called {study.name!r}; give yours another name=, which names its folder."
            )
    for study in found.values():
        for name, sweep in study.plan(scale).items():
            shifted = replace(sweep, seeds=tuple(s + seed for s in sweep.seeds))
            seconds = study.seconds * sweep.num_cells
            jobs.append(Job(study.name, shifted, sweep_folder(folder, study.name, name), seconds))
    return jobs


def _note(folder: Path, sources: Sequence[str], scale: str, seed: int) -> None:
    """Write which studies the folder holds, earlier ones included."""
    held: list[str] = []
    if (folder / "run.json").is_file():
        before = _held(folder, {"scale": scale, "seed": seed, "studies": held})
        for name, value in (("scale", scale), ("seed", seed)):
            if before[name] != value:
                raise ValueError(
                    f"{folder} holds studies with {name} {before[name]!r}, not {value!r}; choose another --out."
                )
        held = before["studies"]
    named = [str(Path(s).resolve()) if s.endswith(".py") else s.replace("-", "_") for s in sources]
    together = list(dict.fromkeys([*held, *named]))
    known = list(studies())
    together.sort(key=lambda name: known.index(name) if name in known else len(known))
    write_run(folder, scale, seed, together)


def _held(folder: Path, unknown: dict[str, Any]) -> dict[str, Any]:
    """The content of `run.json`; `unknown` if it is damaged, in which case the file is set aside."""
    try:
        return read_run(folder)
    except Damaged as error:
        aside = set_aside(folder / "run.json", "run.json")
        words = f"{str(error).rpartition('; ')[0]}: kept as {aside.name}; pass every study of this folder"
        print(f"note: {words}", file=sys.stderr)
        return unknown


def _in_processes(
    jobs: list[Job],
    workers: int,
    tell: Callable[[Job, State], Any],
    options: dict[str, Any],
    *,
    quick: bool,
) -> None:
    """Hand the jobs to worker processes; Ctrl-C and errors end these at once, in the middle of a cell.

    That is safe at any moment, since parts are never left half written.
    """
    heard, told = SPAWN.Pipe(
        duplex=False
    )  # all workers write here; so short a message is written in one piece
    with heard, told, worker_pool(workers, _begin, told, quick) as pool:
        with deaf_children():
            waiting = {
                pool.submit(_remote_job, i, job, list(sys.path), options): job
                for i, job in enumerate(jobs)
            }
        try:
            while waiting:
                done, _ = wait(waiting, timeout=LOOK_EVERY, return_when=FIRST_COMPLETED)
                while heard.poll():
                    i, state = heard.recv()
                    tell(jobs[i], state)
                for future in done:
                    future.result()
                    waiting.pop(future)
        except BrokenProcessPool:
            names = ", ".join(job.name for job in waiting.values())
            raise ValueError(
                f"a worker process died (out of memory, or killed) with {names} not finished; finished cells are "
                "stored: run the same command again to resume, with --workers 1 if memory is short."
            ) from None


def _begin(told: Connection, quick: bool) -> None:
    """In a worker, before its first job."""
    global _told
    _told = told
    if quick:
        compile_quickly()


def _remote_job(number: int, job: Job, python_path: list[str], options: dict[str, Any]) -> None:
    _run_job(job, lambda state: _told.send((number, state)), python_path, options)


def _run_job(
    job: Job, tell: Callable[[State], Any], python_path: list[str], options: dict[str, Any]
) -> None:
    sys.path.extend(entry for entry in python_path if entry not in sys.path)
    from manyheads.sweeps.engine import run

    job.folder.parent.mkdir(parents=True, exist_ok=True)
    data = run(
        job.sweep, job.folder, engine="here", progress=tell, extend=True, **options
    )  # a grid may have grown
    done = int((data["status"] != "missing").sum())
    tell(State(total=done, before=done, finished=done))  # also when nothing was left to do
