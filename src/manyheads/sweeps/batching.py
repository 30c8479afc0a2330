"""Which cells share one compiled program, and how many of them are worth running at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyheads.sweeps.spec import TRAIN_AND_MEASURE

if TYPE_CHECKING:
    from manyheads.sweeps.plan import Cell

# Operations of a step up to which cells run together, and how many: on a processor, on a GPU. Measured by
# benchmarks/bench_sweep.py (a processor gains about 2 times below the limit, less above) and benchmarks/bench_gpu.py
# (an H200 gains 5 times at 5e6 operations, 2 times at 2e9).
SMALL_STEP, TOGETHER = 2e5, 16
SMALL_STEP_GPU, TOGETHER_GPU = 1e9, 64


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
    """How many such cells run at once; 1 where one after another is about as fast.

    A small step costs more to start than to compute, and cells together start once. A large one keeps a processor busy,
    and cells together only fill its cache.
    """
    if cell.function != TRAIN_AND_MEASURE or batching is False:
        return 1
    if batching is not True:
        return batching
    largest, together = (SMALL_STEP_GPU, TOGETHER_GPU) if device == "gpu" else (SMALL_STEP, TOGETHER)
    return together if step_work(cell) <= largest else 1


def step_work(cell: Cell) -> float:
    """Floating-point operations of one step, n H (4 T d^2 + 8 T^2 d) for the H different heads."""
    n, T, d = cell.data.num_examples, cell.data.num_tokens, cell.data.dim
    return n * num_classes(cell) * (4.0 * T * d * d + 8.0 * T * T * d)
