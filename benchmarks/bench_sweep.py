"""Question: what does an engine cost per cell, what do two workers gain, and where does running cells together pay?

Run:  python benchmarks/bench_sweep.py                 One JSON line per case, then a table.
      python benchmarks/bench_sweep.py --cases workers

overhead-ENGINE: milliseconds per cell that computes nothing (the slope between 20 and 220 cells), and the start-up.
workers: a sweep of 40 equal training cells of about a second, each single-threaded, by one worker over by two.
batch-n,T,d: 64 cells of one shape in one process, one by one over 16 and 64 at a time, everything included but
compiling; "planner" is how many the planner puts together. Agreement to 1e-10 is checked first.
"""

import os
import shutil
import sys
import tempfile
import time

os.environ["NPROC"] = "1"  # one XLA thread in this process too

from harness import main, race  # noqa: E402

from manyheads.sweeps import Sweep, run  # noqa: E402
from manyheads.sweeps.cost import batch_size, step_work  # noqa: E402
from manyheads.sweeps.plan import make_plan  # noqa: E402

QUESTION = (
    "overhead of engines (ms per cell), gain of two workers, gain of running 64 cells together"
)
FIRST, SECOND = 20, 220  # cells
MIXTURE = dict(num_tokens=8, dim=12, num_patterns=4, num_test=0)
SHAPES = {
    "8,4,4": 2,
    "20,4,6": 3,
    "10,8,8": 4,
    "20,8,12": 4,
    "100,8,12": 4,
}  # n,T,d -> irrelevant patterns
STEPS = 200
PROBES = 200, 2200
CASES = [
    "overhead-here",
    "overhead-processes",
    "overhead-dask",
    "workers",
    *(f"batch-{name}" for name in SHAPES),
]


def timed_run(sweep, **options) -> float:
    folder = tempfile.mkdtemp()
    try:
        start = time.perf_counter()
        run(sweep, os.path.join(folder, "out"), progress=False, **options)
        return time.perf_counter() - start
    finally:
        shutil.rmtree(folder)


def overhead(case, engine):
    workers = {} if engine == "here" else {"workers": 1}
    times = [
        min(
            timed_run(Sweep(cell="sweep_cell:nothing", seeds=n), engine=engine, **workers)
            for _ in range(2)
        )
        for n in (FIRST, SECOND)
    ]
    per_cell = (times[1] - times[0]) / (SECOND - FIRST)
    return {
        "case": case,
        "ratios": {"ms per cell": 1e3 * per_cell, "s to start": times[0] - FIRST * per_cell},
    }


def workers(case):
    def sweep(steps, seeds=40):
        return Sweep(
            data=dict(num_examples=200, **MIXTURE),
            start={"kind": "gaussian"},
            model={"num_heads": 4},
            train={"num_steps": steps, "dtype": "float64"},
            seeds=seeds,
        )

    timed_run(sweep(PROBES[0], seeds=1), engine="processes", workers=1)  # compiles
    few = {n: timed_run(sweep(n, seeds=4), engine="processes", workers=1) for n in PROBES}
    per_step = (few[PROBES[1]] - few[PROBES[0]]) / (4 * (PROBES[1] - PROBES[0]))
    steps = round(1 / per_step)  # about a second
    times = {n: timed_run(sweep(steps), engine="processes", workers=n) for n in (1, 2)}
    return {
        "case": case,
        "cells": 40,
        "steps per cell": steps,
        "seconds per cell": times[1] / 40,
        "one worker s": times[1],
        "two workers s": times[2],
        "ratios": {"one worker over two": times[1] / times[2]},
    }


def batch(case, shape, rounds):
    from manyheads.sweeps.cell import run_batch

    n, T, d = map(int, shape.split(","))
    data = dict(num_examples=n, num_tokens=T, dim=d, num_patterns=SHAPES[shape], num_test=0)
    sweep = Sweep(
        data=data,
        start={"num_examples": 20},
        train={"num_steps": STEPS, "dtype": "float64"},
        seeds=64,
    )
    cells = make_plan(sweep).cells

    def work(size):
        common = dict(dims=["seed"], threads=1, cache=None, device=None, git="", python_path=[])
        groups = [cells[i : i + size] for i in range(0, len(cells), size)]
        jobs = [
            dict(id=str(i), cells=[c.to_dict() for c in group], **common)
            for i, group in enumerate(groups)
        ]
        return [cell for job in jobs for cell in run_batch(job)["cells"]]

    alone, together = work(1), work(64)
    worst = max(
        float(abs(b["values"]["train_loss"][1] / a["values"]["train_loss"][1] - 1).max())
        for a, b in zip(alone, together, strict=True)
        if a["status"] == "finished"
    )
    assert worst < 1e-10, worst
    times = {
        size: t["median_s"]
        for size, t in race({n: lambda n=n: work(n) for n in (1, 16, 64)}, rounds=rounds).items()
    }
    return {
        "case": case,
        "operations per step": step_work(cells[0]),
        "us per step alone": 1e6 * times[1] / 64 / STEPS,
        "us per step together": 1e6 * times[16] / 64 / STEPS,
        "disagreement": worst,
        "ratios": {
            "one by one over 16 together": times[1] / times[16],
            "one by one over 64 together": times[1] / times[64],
            "planner": batch_size(cells[0]),
        },
    }


def measure(case, rounds):
    kind, _, name = case.partition("-")
    if kind == "overhead":
        return overhead(case, name)
    return workers(case) if kind == "workers" else batch(case, name, rounds)


if __name__ == "__main__":
    sys.exit(main(__file__, QUESTION, measure, CASES))
