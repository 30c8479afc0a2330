"""Running a sweep: plan, find what is stored, run the rest on an engine, and store each batch as soon as it is done."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import xarray

from manyheads._registry import nearest
from manyheads.data.budget import processors
from manyheads.data.door import guarded
from manyheads.sweeps.assembly import open_sweep
from manyheads.sweeps.cluster import Dask, Slurm
from manyheads.sweeps.cost import check_memory, work_seconds
from manyheads.sweeps.environment import cache_folder, provenance, start_backend
from manyheads.sweeps.local import EngineError, Here, Job, Processes, Results
from manyheads.sweeps.plan import Batch, Plan, make_plan
from manyheads.sweeps.progress import Reporter, State, clock
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.store import CorruptPart, Store
from manyheads.training.keyboard import AllOrNothing

MOST_LOSSES, MOST_LOSSES_TOLD = (
    10,
    3,
)  # batches whose workers are lost, one after another, before a run gives up
ENGINES = ("here", "processes", "dask", "slurm")


class Engine(Protocol):
    """Anything that turns jobs into results, in any order; `lost` and `note` of `sweeps.local` may stand for one."""

    def work(self, jobs: list[Job]) -> Results: ...


def make_engine(name: str, workers: int | None = None, scheduler: str | None = None) -> Engine:
    """An engine by its name: "here", "processes", "dask" (a local cluster, or the scheduler at an address), "slurm"."""
    if name not in ENGINES:
        raise EngineError(f"engine={name!r} is not known; {nearest(name, ENGINES)}")
    if workers is not None and not (isinstance(workers, int) and 1 <= workers <= 10_000):
        raise EngineError(f"workers={workers!r} must be a whole number from 1 to 10000")
    if scheduler is not None and name != "dask":
        raise EngineError(
            f"scheduler={scheduler!r} is for engine 'dask'; with {name!r} leave it out"
        )
    if name == "here":
        if workers not in (None, 1):
            raise EngineError(f"workers={workers} needs several processes; pass engine 'processes'")
        return Here()
    if name == "processes":
        return Processes(workers or processors())
    return Dask(workers or processors(), scheduler) if name == "dask" else Slurm(workers or 4)


def _on_devices(engine: Engine, devices: str | int, device: str | None) -> Here:
    """The engine of this process on several of its devices."""
    import jax

    from manyheads.training.devices import choose_devices

    if not isinstance(engine, Here):
        raise EngineError(
            f"devices={devices!r} is for engine 'here'; workers of other engines use one device each"
        )
    if jax.process_count() > 1:
        raise EngineError(
            "a sweep is driven by one process; without jax.distributed, engine 'slurm' uses many hosts"
        )
    chosen = tuple(choose_devices(devices, device))
    return Here(len(chosen), chosen)


@guarded(devices=None)
def run_sweep(
    sweep: Sweep | str | Path,
    out: str | Path,
    *,
    engine: str | Engine = "here",
    workers: int | None = None,
    scheduler: str | None = None,
    progress: bool | Callable[[State], Any] = True,
    threads: int = 1,
    device: str | None = None,
    devices: str | int | None = None,
    cache: bool = True,
    batching: bool | int = True,
    retry_failed: bool = False,
    extend: bool = False,
) -> xarray.Dataset:
    """Run what is missing of a sweep in the folder `out`, and return its dataset.

    `sweep` is a Sweep or the path of a TOML file. `engine` is "here" (this process), "processes", "dask" or "slurm", or
    an engine object such as `Slurm(workers=8, partition="short")`; results are the same bit for bit on one kind of
    machine. Every worker computes with `threads` threads. `devices` ("all" or a number) lets this process work on that
    many devices at a time. `progress` is True, False or a function of the State.
    `cache=False` turns the persistent compilation cache off. `batching` is True (cells of one shape run together where
    that is faster), False or a number of cells. `retry_failed` runs failed cells again; `extend` takes a
    folder over for a changed spec and keeps what both have in common. A cell whose own code raises is "failed"; one
    whose workers are lost again and again stays "missing", and the next call tries it again.
    """
    sweep = sweep if isinstance(sweep, Sweep) else Sweep.from_toml(Path(sweep))
    engine = make_engine(engine, workers, scheduler) if isinstance(engine, str) else engine
    if not (isinstance(threads, int) and 1 <= threads <= 1024):
        raise EngineError(f"threads={threads!r} must be a whole number from 1 to 1024")
    if not (isinstance(batching, bool) or (isinstance(batching, int) and 1 <= batching <= 10_000)):
        raise EngineError(
            f"batching={batching!r} must be True, False or a number of cells from 1 to 10000"
        )
    plan = make_plan(sweep, batching=batching, device=device)
    start_backend(threads)  # before the first use of JAX, which fixes its threads
    if devices is not None:
        engine = _on_devices(engine, devices, device)
    check_plan(plan, engine)
    store = Store(out)
    reporter = Reporter(plan.grid.size, progress)
    try:
        with store.lock():
            batches = _begin(store, plan, extend, reporter)
            missing = _missing(store, plan, batches, retry_failed, reporter)
            if missing:
                _work(store, plan, missing, engine, reporter, _common(plan, threads, device, cache))
    except KeyboardInterrupt:
        reporter.say(
            f"interrupted: {reporter.state.done} of {reporter.state.total} cells are stored; rerun to resume"
        )
        raise
    finally:
        reporter.close()
    return open_sweep(out)


run = run_sweep  # its name inside this room


@guarded()
def describe(
    sweep: Sweep,
    engine: Engine,
    out: str | Path | None = None,
    *,
    threads: int = 1,
    device: str | None = None,
) -> str:
    """The checked plan in words, with the job script where SLURM would be asked; nothing runs, and no file is made."""
    plan = make_plan(sweep, device=device)
    start_backend(threads)
    check_plan(plan, engine)
    seconds = sum(work_seconds(cell) for cell in plan.cells) / getattr(engine, "workers", 1)
    lines = [str(plan), f"about {clock(seconds)} of arithmetic on {engine}"]
    if isinstance(engine, Slurm):
        lines += ["", (engine.within(out) if out else engine).job_script(threads)]
    return "\n".join(lines)


def check_plan(plan: Plan, engine: Engine | None = None) -> None:
    """Refuse, with a SpecError, whatever can be seen to be wrong before anything runs."""
    from manyheads.sweeps.cell import check_function
    from manyheads.sweeps.setup import check_cell

    seen = set()
    for cell in plan.cells:
        content = (cell.data, cell.start, cell.model, cell.train)
        if content not in seen:
            seen.add(content)
            if not isinstance(engine, Slurm) and getattr(engine, "address", None) is None:
                check_memory(cell, getattr(engine, "workers", 1))
            check_cell(cell)
    for names in {tuple(cell.parameters): cell for cell in plan.cells}.values():
        check_function(names)


def _begin(store: Store, plan: Plan, extend: bool, reporter: Reporter) -> list[Batch]:
    """The batches of this plan, or those stored for the same spec, so that a changed planner redoes nothing."""
    store.sweep_leftovers()
    if mended := store.mend(plan, extend=extend):
        reporter.warn(mended)
    if store.exists():
        old = store.manifest()
        if Sweep.from_dict(old["spec"]) == plan.sweep and old["cells"] == [
            cell.hash for cell in plan.cells
        ]:
            return [Batch(batch["id"], tuple(batch["cells"])) for batch in old["batches"]]
    store.begin(plan, provenance(plan.sweep.cell), extend=extend)
    return list(plan.batches)


def _missing(
    store: Store, plan: Plan, batches: list[Batch], retry: bool, reporter: Reporter
) -> list[Batch]:
    counts = plan.counts
    missing = []
    for batch in batches:
        if not store.part(batch.id).exists():
            missing.append(batch)
            continue
        try:
            header = store.check(batch.id)
        except CorruptPart as error:
            aside = store.set_aside(batch.id, "corrupt")
            reporter.warn(
                f"{error.args[0].rpartition('; ')[0]}: kept as {aside.name}, its {len(batch.cells)} cells run again"
            )
            missing.append(batch)
            continue
        statuses = [cell["status"] for cell in header["cells"]]
        if retry and "failed" in statuses:
            store.set_aside(batch.id, "failed")
            missing.append(batch)
            continue
        reporter.add(
            [s for s, i in zip(statuses, batch.cells, strict=True) for _ in range(counts[i])],
            before=True,
        )
    return missing


def _common(plan: Plan, threads: int, device: str | None, cache: bool) -> dict[str, Any]:
    path = [entry or os.getcwd() for entry in sys.path]
    return dict(
        dims=list(plan.dims),
        threads=threads,
        device=device,
        cache=cache_folder(threads) if cache else None,
        python_path=path,
        git=provenance(plan.sweep.cell)["git"],
    )


def _work(
    store: Store, plan: Plan, missing: list[Batch], engine: Engine, reporter: Reporter, common: dict
) -> None:
    jobs = []
    for batch in missing:
        cells = [plan.cells[i] for i in batch.cells]
        jobs.append(dict(id=batch.id, cells=[cell.to_dict() for cell in cells], **common))
    by_id = {batch.id: batch for batch in missing}
    counts = plan.counts
    seconds = sum(work_seconds(plan.cells[i]) for batch in missing for i in batch.cells) / getattr(
        engine, "workers", 1
    )
    reporter.say(
        f"{plan}; {len(missing)} batches to do with {type(engine).__name__.lower()}, "
        f"about {clock(seconds)} of arithmetic and some to compile"
    )
    store.note("run", engine=type(engine).__name__, batches=len(missing), process=os.getpid())
    reporter.began = time.monotonic()
    told, losses, in_a_row = False, 0, 0
    if isinstance(engine, Slurm):
        engine = engine.within(store.path)
    with AllOrNothing() as attempt, contextlib.closing(engine.work(jobs)) as results:
        for batch_id, result in results:
            if attempt.pressed:  # and swallowed by a callback of a library
                raise KeyboardInterrupt
            if "note" in result:
                if result["note"]:
                    reporter.warn(result["note"])
                continue
            if "lost" in result:
                losses, in_a_row = losses + 1, in_a_row + 1
                store.note("lost", batch_id, why=result["lost"])
                if losses <= MOST_LOSSES_TOLD:
                    reporter.warn(f"batch {batch_id} is left out of this run: {result['lost']}")
                if in_a_row == MOST_LOSSES:
                    break
                continue
            in_a_row = 0
            store.write(batch_id, result)
            store.note("done", batch_id, cells=len(result["cells"]))
            statuses = [cell["status"] for cell in result["cells"]]
            repeated = zip(statuses, by_id[batch_id].cells, strict=True)
            reporter.add([status for status, i in repeated for _ in range(counts[i])])
            threads = result["worker"]["threads"]
            if threads != common["threads"] and not told:
                told = True
                reporter.say(
                    f"note: this worker computes with {threads} threads, not {common['threads']} (JAX was started "
                    f"before, or without NPROC={common['threads']}); the last bits may differ from other workers'"
                )
    if losses:
        reporter.warn(
            f"{losses} of {len(missing)} batches lost their workers again and again"
            f"{', and the run ends here' if in_a_row == MOST_LOSSES else ''}; their cells stay missing, and the same "
            "command tries them again (too little memory? fewer workers need less)"
        )
