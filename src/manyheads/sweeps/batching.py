"""Which cells share one compiled program, and how many of them are worth running at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyheads.sweeps.spec import TRAIN_AND_MEASURE

if TYPE_CHECKING:
    from manyheads.sweeps.plan import Cell

TINY_STEP = 4e4  # operations of a step
BUSY_STEP = 1e9
LARGEST_BATCH = 64


def batch_key(cell: Cell) -> Any:
    """Cells with equal keys have arrays of equal shape and one program."""
    data, train = cell.data, cell.train
    return (
        data.kind, data.path, data.num_examples, data.num_test, data.num_tokens, data.dim, num_classes(cell),
        cell.model.decoder, cell.model.rank, train.optimizer, train.loss, train.dtype, train.num_steps, train.record,
    )  # fmt: skip


def num_classes(cell: Cell) -> int:
    """Classes of identical heads that the start makes (coin flips may make one less)."""
    heads, start = cell.model.num_heads, cell.start
    if start.kind == "zero":
        return 1
    if start.kind == "gaussian" or start.signs == "uniform":
        return int(heads)
    return int(min(heads, 2))


def batch_size(cell: Cell, batching: bool | int = True, device: str | None = None) -> int:
    """How many such cells run at once; 1 where one after another is as fast.

    On a processor a step of more than `TINY_STEP` operations keeps it busy, and running cells together only fills the
    cache (benchmarks/bench_sweep.py prints both). On a GPU a small step is all waiting, and cells together cost as one.
    """
    if cell.function != TRAIN_AND_MEASURE or batching is False:
        return 1
    if batching is not True:
        return batching
    largest = BUSY_STEP if device == "gpu" else TINY_STEP
    return LARGEST_BATCH if step_work(cell) <= largest else 1


def step_work(cell: Cell) -> float:
    """Floating-point operations of one step, n H (4 T d^2 + 8 T^2 d) for the H different heads."""
    n, T, d = cell.data.num_examples, cell.data.num_tokens, cell.data.dim
    return n * num_classes(cell) * (4.0 * T * d * d + 8.0 * T * T * d)
