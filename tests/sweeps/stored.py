"""A folder with results that no training made: exact, quick, and without JAX."""

import numpy as np

from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.store import Store

SWEEP = Sweep(name="stored", axes={"model.num_heads": [1, 4, 16]}, seeds=2)
WORKER = dict(host="h", process=1, device="cpu", threads=1, versions={"jax": "0"})


def result(plan, batch, status="finished", size=3):
    """A batch whose values say which cell they belong to."""
    cells = []
    for i in batch.cells:
        cell = plan.cells[i]
        values = {
            "curve": (
                ("place",),
                cell.model.num_heads + 0.1 * np.arange(size) + 100 * cell.seed,
                {"units": "1"},
            ),
            "place": (("place",), np.arange(size), {"coordinate": True}),
            "count": ((), np.array(size), {}),
            "label": ((), np.array(f"H={cell.model.num_heads:g}"), {}),
        }
        values = {} if status == "failed" else values
        message = "it broke" if status == "failed" else ""
        cells.append(
            dict(hash=cell.hash, status=status, message=message, seconds=0.5, values=values)
        )
    return dict(cells=cells, worker=WORKER)


def fill(folder, sweep=SWEEP, leave=0, batching=False, **more):
    """A sweep in a folder with its first batches done, all but the last `leave`."""
    plan = make_plan(sweep, batching=batching)
    store = Store(folder)
    store.begin(plan, {"git": "abc", "versions": {}})
    for batch in plan.batches[: len(plan.batches) - leave]:
        store.write(batch.id, result(plan, batch, **more))
    return store, plan
