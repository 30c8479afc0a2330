"""What a cell costs, before it runs: memory and arithmetic, roughly."""

from __future__ import annotations

import os

from manyheads.sweeps.batching import num_classes, step_work
from manyheads.sweeps.fields import SpecError
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.sections import FILE
from manyheads.sweeps.spec import TRAIN_AND_MEASURE

COMPILED_RATE = 5e9  # floating-point operations per second of one core on small problems
STEP_SECONDS = 3e-5  # least time of a step
CELL_SECONDS = 0.02  # everything around the loop


def work_seconds(cell: Cell) -> float:
    """A rough time for one cell on one core; zero for a cell function of the user's own."""
    if cell.function != TRAIN_AND_MEASURE:
        return 0.0
    return CELL_SECONDS + cell.train.num_steps * (STEP_SECONDS + step_work(cell) / COMPILED_RATE)


def memory(cell: Cell) -> dict[str, float]:
    """Bytes by the key that causes them."""
    data, T, d, classes = cell.data, cell.data.num_tokens, cell.data.dim, num_classes(cell)
    records = {"all": cell.train.num_steps, "log": 70.0}.get(str(cell.train.record), 0.0)
    records = records or cell.train.num_steps / float(
        cell.train.record if cell.train.record not in ("all", "log") else 1
    )
    sequence = 8.0 * T * d * 4
    attention = 8.0 * T * (3.0 * T + 2.0 * d)  # of one head on one sequence, the least chunk
    return {
        "data.num_examples": data.num_examples * sequence,
        "data.num_test": data.num_test * sequence,
        "start.num_examples": cell.start.num_examples * sequence if cell.start.kind == "first_phase" else 0.0,
        "data.num_tokens": attention,
        "data.dim": 8.0 * d * d * 14,
        "model.num_heads": (classes - 1) * (attention + 8.0 * (d * d + T * d) * 8),
        "train.record": 8.0 * (records + 1) * (7 + classes) * 3,
    }


def check_memory(cell: Cell, workers: int) -> None:
    """Refuse what cannot fit, and name the key to lower."""
    if cell.data.kind == FILE or cell.function != TRAIN_AND_MEASURE:
        return
    parts = memory(cell)
    needed, there = sum(parts.values()), machine_memory() / max(workers, 1)
    if needed > 0.8 * there:
        key = max(parts, key=lambda name: parts[name])
        section, _, name = key.partition(".")
        value = getattr(getattr(cell, section), name)
        raise SpecError(
            [
                f"{key} = {value!r} makes a cell need about {needed / 2**30:.3g} GiB, and a worker has "
                f"{there / 2**30:.3g} GiB; lower {key}" + (" or the number of workers" if workers > 1 else "")
            ]
        )


def machine_memory() -> float:
    """Bytes of memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
