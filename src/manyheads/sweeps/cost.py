"""What a cell costs, before it runs: shapes, arithmetic, memory; and which cells are worth running together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyheads._fields import SpecError, setting_values
from manyheads.data.budget import STEP_SECONDS, fits_time, total_memory
from manyheads.data.source import SOURCES
from manyheads.sweeps.spec import TRAIN_AND_MEASURE
from manyheads.training.start import STARTS

if TYPE_CHECKING:
    from manyheads.sweeps.plan import Cell

# Operations of a step up to which cells run together, and how many: on a processor, on a GPU. Measured by
# benchmarks/bench_sweep.py (a processor gains about 2 times below the limit, less above) and benchmarks/bench_gpu.py
# (an H200 gains 5 times at 5e6 operations, 2 times at 2e9).
SMALL_STEP, TOGETHER = 2e5, 16
SMALL_STEP_GPU, TOGETHER_GPU = 1e9, 64
UNKNOWN_SHAPE = dict(
    num_tokens=8, dim=12
)  # assumed for data that are not read before they are used
COMPILED_RATE = 5e9  # floating-point operations per second of one core on small problems
CELL_SECONDS = 0.02  # everything around the loop


def make_start(cell: Cell) -> Any:
    """The start of a cell by its settings."""
    start = STARTS[cell.start.kind]
    return start(**setting_values(cell.start, start))


def shape(cell: Cell) -> tuple[int, int]:
    """Tokens of a sequence and their dimension, as far as the data section tells."""
    source = SOURCES[cell.data.kind]
    T, d = (getattr(cell.data, k, getattr(source, k, usual)) for k, usual in UNKNOWN_SHAPE.items())
    return T, d


def num_classes(cell: Cell) -> int:
    """Classes of identical heads that the start makes (coin flips may make one less)."""
    return make_start(cell).num_classes(cell.model.num_heads)


def batch_key(cell: Cell) -> Any:
    """Cells with equal keys have arrays of equal shape and one program."""
    data, train = cell.data, cell.train
    return (
        data.kind,
        getattr(data, "path", ""),
        data.num_examples,
        data.num_test,
        shape(cell),
        num_classes(cell),
        cell.model.decoder,
        cell.model.rank,
        train.optimizer,
        train.loss,
        train.dtype,
        train.num_steps,
        train.record,
    )


def batch_size(cell: Cell, batching: bool | int = True, device: str | None = None) -> int:
    """How many such cells run at once; 1 where one after another is about as fast.

    A small step costs more to start than to compute, and cells together start once. A large one keeps a processor busy,
    and cells together only fill its cache.
    """
    if cell.function != TRAIN_AND_MEASURE or batching is False:
        return 1
    if batching is not True:
        return batching
    largest, together = (
        (SMALL_STEP_GPU, TOGETHER_GPU) if device == "gpu" else (SMALL_STEP, TOGETHER)
    )
    return together if step_work(cell) <= largest else 1


def step_work(cell: Cell) -> float:
    """Floating-point operations of one step, n H (4 T d^2 + 8 T^2 d) for the H different heads."""
    T, d = shape(cell)
    return cell.data.num_examples * num_classes(cell) * (4.0 * T * d * d + 8.0 * T * T * d)


def work_seconds(cell: Cell) -> float:
    """A rough time for one cell on one core; zero for a cell function of the user's own."""
    if cell.function != TRAIN_AND_MEASURE:
        return 0.0
    return CELL_SECONDS + cell.train.num_steps * (STEP_SECONDS + step_work(cell) / COMPILED_RATE)


def memory(cell: Cell) -> dict[str, float]:
    """Bytes by the key that causes them."""
    (T, d), classes, every = shape(cell), num_classes(cell), cell.train.record
    records = (
        70.0 if every == "log" else cell.train.num_steps / (1 if every == "all" else int(every))
    )
    sequence = 8.0 * T * d * 4
    attention = 8.0 * T * (3.0 * T + 2.0 * d)  # of one head on one sequence, the least chunk
    return {
        "data.num_examples": cell.data.num_examples * sequence,
        "data.num_test": cell.data.num_test * sequence,
        "start.num_examples": getattr(cell.start, "num_examples", 0) * sequence,
        "data.num_tokens": attention,
        "data.dim": 8.0 * d * d * 14,
        "model.num_heads": (classes - 1) * (attention + 8.0 * (d * d + T * d) * 8),
        "train.record": 8.0 * (records + 1) * (7 + classes) * 3,
    }


def check_memory(cell: Cell, workers: int) -> None:
    """Refuse what cannot fit or would take days, and name the key to lower."""
    fits_time(
        f"train.num_steps = {cell.train.num_steps}", cell.train.num_steps * STEP_SECONDS, "lower it"
    )
    drawn = hasattr(cell.data, "num_tokens") and hasattr(cell.data, "dim")
    if not drawn or cell.function != TRAIN_AND_MEASURE:
        return
    parts = memory(cell)
    needed, there = sum(parts.values()), total_memory() / max(workers, 1)
    if needed > 0.8 * there:
        key = max(parts, key=lambda name: parts[name])
        section, _, name = key.partition(".")
        raise SpecError(
            f"{key} = {getattr(getattr(cell, section), name)!r} makes a cell need about {needed / 2**30:.3g} GiB, and "
            f"a worker has {there / 2**30:.3g} GiB; lower {key}"
            + (" or the number of workers" if workers > 1 else "")
        )
