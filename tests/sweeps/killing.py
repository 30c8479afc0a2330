"""Kill -9 a sweep again and again, and see what is left."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from manyheads.sweeps.assembly import open_sweep
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.store import Store


def command(spec, folder, *options) -> list[str]:
    return [sys.executable, "-m", "manyheads.cli.main", "sweep", str(spec), "--out", str(folder), "--quiet", *options]


def environment(log) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SWEEP_LOG": str(log)}


def finished_parts(folder) -> dict[str, tuple[int, int]]:
    """Name -> what would change if a part were written again."""
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(folder, "parts").glob("*.npz")}


def kill_repeatedly(spec, folder, log, kills, most, options=(), seed=0, spread=2.0) -> int:
    """Start the sweep, kill it at a random moment, look at every part; `kills` times, then let it finish.

    A moment is a random time after the first part that this start has finished, or a random time after its beginning.
    `most` is how many parts may be there before the last kill.
    """
    rng = random.Random(seed)
    killed, before = 0, {}
    while killed < kills:
        enough = most * (killed + 1) / kills  # so that there is work left to kill
        process = subprocess.Popen(
            command(spec, folder, *options), env=environment(log), stdout=subprocess.DEVNULL, start_new_session=True
        )
        early = rng.random() < 0.2 or enough <= len(before)
        began, count = time.monotonic(), len(before)
        while not early and len(finished_parts(folder)) == count and process.poll() is None:
            time.sleep(0.02)
            assert time.monotonic() - began < 240, "no cell was finished in four minutes"
        time.sleep(rng.uniform(0, spread))
        if process.poll() is not None:
            assert process.returncode == 0
            return killed
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
        after = finished_parts(folder)
        assert before.items() <= after.items(), "a finished part was written again"
        for name in after:
            Store(folder).check(name.removesuffix(".npz"))  # raises for a part that cannot be read
        before = after
    done = subprocess.run(command(spec, folder, *options), env=environment(log), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert before.items() <= finished_parts(folder).items()
    return killed


def assert_same_bits(one, other) -> None:
    first, second = open_sweep(one), open_sweep(other)
    assert set(first.variables) == set(second.variables)
    for name in first.variables:
        assert first[name].dims == second[name].dims
        assert first[name].values.tobytes() == second[name].values.tobytes(), name
    assert (first.status == "finished").all()


def assert_nothing_finished_ran_again(sweep, folder, log, batching=True) -> None:
    """A cell whose part was there when it started would be in the log after its part was written."""
    store = Store(folder)
    plan = make_plan(sweep, batching=batching)
    written = {}
    for batch in store.manifest()["batches"]:
        for position in batch["cells"]:
            written[plan.cells[position].hash] = store.part(batch["id"]).stat().st_mtime
    ran = [line.split() for line in Path(log).read_text().splitlines()]
    assert {name for _, name in ran} == set(written)
    late = [name for moment, name in ran if float(moment) > written[name] + 0.05]
    assert late == []
    counts = np.unique([name for _, name in ran], return_counts=True)[1]
    assert counts.min() >= 1
