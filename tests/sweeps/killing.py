"""Kill -9 a sweep again and again, and see what is left."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from processes import processes, wait_for_the_end, wait_until

from manyheads.sweeps.assembly import open_sweep
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.store import Store


def command(spec, folder, *options) -> list[str]:
    return [
        sys.executable,
        "-m",
        "manyheads.cli.main",
        "sweep",
        str(spec),
        "--out",
        str(folder),
        "--quiet",
        *options,
    ]


def environment(log) -> dict[str, str]:
    paths = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SWEEP_LOG": str(log),
        "SWEEP_GATE": str(gate(log)),
    }
    return {**os.environ, **paths}


def gate(log) -> Path:
    """A file that names a cell which waits for as long as it exists."""
    return Path(log).with_suffix(".gate")


def finished_parts(folder) -> dict[str, tuple[int, int]]:
    """Name -> what would change if a part were written again."""
    return {
        p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(folder, "parts").glob("*.npz")
    }


def kill_repeatedly(sweep, spec, folder, log, kills, most, options=(), seed=0, spread=2.0) -> None:
    """Start the sweep, kill it at a random moment, look at every part; `kills` times, then let it finish.

    A moment is a random time after the first part that this start has finished, or a random time after its beginning.
    `most` is how many parts may be there before the last kill. The last cell waits until the last kill, so that there
    is something to kill, however late this process notices a part.
    """
    rng = random.Random(seed)
    plan = make_plan(sweep)
    gate(log).write_text(plan.cells[plan.batches[-1].cells[-1]].hash)
    before = {}
    for killed in range(kills):
        enough = most * (killed + 1) / kills  # so that there is work left to kill
        early = rng.random() < 0.2 or enough <= len(before)
        with processes() as start:
            process = start(
                command(spec, folder, *options), env=environment(log), stdout=subprocess.DEVNULL
            )
            if not early:
                count = len(before)
                wait_until(
                    lambda count=count: len(finished_parts(folder)) > count,
                    process,
                    "finished part",
                )
            time.sleep(rng.uniform(0, spread))
            assert process.poll() is None, "the sweep ended although its last cell waits"
            process.kill()
            wait_for_the_end(process)  # its workers notice that it is gone
        after = finished_parts(folder)
        assert before.items() <= after.items(), "a finished part was written again"
        for name in after:
            Store(folder).check(name.removesuffix(".npz"))  # raises for a part that cannot be read
        before = after
    gate(log).unlink()
    done = subprocess.run(
        command(spec, folder, *options), env=environment(log), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert before.items() <= finished_parts(folder).items()


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
