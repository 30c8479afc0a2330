"""Long use: many trainings in one process, many shapes, a long sweep. Memory and open files stay where they were.

Each kind runs in a process of its own, which warms up, measures, goes on, and measures again. Memory is what the process
holds (its resident set) after the allocator was asked to give back what is free.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

MEGABYTES = 100  # that may be added after the warm-up
SECONDS = 5.0  # of processor time to open 5,000 parts, and for their status
FAULTS = ("memory grew", "descriptor left", "slow to open")


def trainings(folder: Path, count: int = 500) -> dict:
    """`train` again and again, with other data each time."""
    import manyheads as mh

    def once(seed: int) -> None:
        data = small_data(8, seed)
        mh.train(mh.zero_start(2, num_tokens=4, dim=4), data, rule=mh.GD(0.1), num_steps=20)

    return grown(once, count, warm=20)


def shapes(folder: Path, count: int = 100) -> dict:
    """`train` on data of another shape each time: every one is compiled."""
    import manyheads as mh

    def once(number: int) -> None:
        data = small_data(8 + number, number)
        mh.train(mh.zero_start(2, num_tokens=4, dim=4), data, rule=mh.GD(0.1), num_steps=20)

    return grown(once, count, warm=40)


def cells(folder: Path, count: int = 5000) -> dict:
    """A sweep, from the part at which a tenth is done to its end."""
    from manyheads.sweeps.assembly import open_sweep
    from manyheads.sweeps.engine import run
    from manyheads.sweeps.spec import Sweep
    from manyheads.sweeps.status import status

    seen = {}

    def look(state) -> None:
        if state.done == count // 10:
            seen["before"] = level()

    run(Sweep(cell="sweep_cells:arithmetic", seeds=count), folder / "out", progress=look)
    after = level()
    found = {}
    for name, act in (
        ("open", lambda: open_sweep(folder / "out")),
        ("status", lambda: status(folder / "out")),
    ):
        began = time.process_time()
        act()
        found[f"{name} seconds"] = round(time.process_time() - began, 2)
    return report(seen["before"], after) | found


WORK = {"500 trainings": trainings, "100 shapes": shapes, "a sweep of 5,000 cells": cells}
KINDS = list(WORK)
TRIALS = len(KINDS)


def trial(kind: str, rng, folder: Path) -> tuple[str, str]:
    """Run one kind in a process of its own; the smaller counts of a test come from the environment."""
    command = [sys.executable, "-m", "torture.growth", kind, str(folder)]
    paths = {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    outcome = "no growth"
    if max(found.get("open seconds", 0), found.get("status seconds", 0)) > SECONDS:
        outcome = "slow to open"
    if found["descriptors added"] > 0:
        outcome = "descriptor left"
    if found["megabytes added"] > MEGABYTES:
        outcome = "memory grew"
    return outcome, json.dumps(found)


def totals(rows: list[dict]) -> str:
    """What was measured."""
    return "\n".join(f"  {row['kind']}: {row['detail']}" for row in rows)


def small_data(num_examples: int, seed: int):
    """Sequences of 4 tokens of dimension 4."""
    import numpy as np

    import manyheads as mh

    rng = np.random.default_rng(seed)
    return mh.Dataset.from_arrays(
        rng.normal(size=(num_examples, 4, 4)), np.arange(num_examples) % 2
    )


def grown(once, count: int, warm: int) -> dict:
    """Call `once` with 0, 1, ...; what the calls after the first `warm` ones have added."""
    for number in range(warm):
        once(number)
    before = level()
    for number in range(warm, count):
        once(number)
    return report(before, level())


def report(before: tuple[float, int], after: tuple[float, int]) -> dict:
    return {
        "megabytes after warm-up": round(before[0]),
        "megabytes added": round(after[0] - before[0], 1),
        "descriptors added": after[1] - before[1],
    }


def level() -> tuple[float, int]:
    """(megabytes held, files open) now."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))


if __name__ == "__main__":
    options = {"count": int(os.environ["GROWTH_COUNT"])} if "GROWTH_COUNT" in os.environ else {}
    print(json.dumps(WORK[sys.argv[1]](Path(sys.argv[2]), **options)))
