"""From a cell's sections to what training needs: the source, the samples, the start."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads._fields import SpecError
from manyheads._lazy import lazy
from manyheads.data.dataset import Dataset
from manyheads.data.source import make_source
from manyheads.sweeps.cost import make_start, shape
from manyheads.sweeps.plan import Cell
from manyheads.training.start import LARGEST_EXPLICIT

jax = lazy("jax")
_TRAIN, _TEST, _FIRST, _START = range(4)  # streams of one seed


@dataclass(frozen=True, eq=False)
class Setup:
    """A cell made concrete. The first-phase, training and test sequences are disjoint draws."""

    cell: Cell
    task: Any  # the data source
    dataset: Dataset
    test: Dataset | None
    first: Dataset | None
    start: Any  # a model


def set_up(cell: Cell) -> Setup:
    """Draw the data and make the start. The data depend on the data section and the seed alone, not on the model."""
    task = make_task(cell.data)
    dataset, test, first = _drawn(task, cell) if hasattr(task, "sample") else _cut(task, cell)
    start = make_start(cell).make(
        cell.model.num_heads,
        dataset,
        fresh=first,
        source=task,
        key=stream(cell.seed, _START),
        decoder=cell.model.decoder,
        rank=cell.model.rank,
        exponent=cell.model.exponent,
        loss=cell.train.loss,
    )
    return Setup(cell, task, dataset, test, first, start)


def make_task(data: Any) -> Any:
    """The source that a data section describes."""
    return make_source(data.kind, data, jax.random.key(getattr(data, "task_seed", 0)))


def check_cell(cell: Cell) -> None:
    """What ranges cannot say: settings that contradict each other. A SpecError before anything runs."""
    data, model = cell.data, cell.model
    try:
        task = make_task(data)
        if not hasattr(task, "sample"):
            _check_counts(task, cell, _collection_size(data, cell.file_hash))
    except ValueError as error:
        raise SpecError(f"data: {error}") from None
    start, kind = make_start(cell), cell.start.kind
    if start.needs_mixture and (data.kind != "mixture" or model.decoder != "full"):
        raise SpecError(
            f"start.kind = {kind!r} needs data.kind = 'mixture' and model.decoder = 'full', here they are "
            f"{data.kind!r} and {model.decoder!r}; write start.kind = 'first_phase'"
        )
    dim = getattr(data, "dim", None)
    if model.rank is not None and not (start.takes_rank and (dim is None or model.rank <= dim)):
        raise SpecError(
            f"model.rank = {model.rank} needs start.kind = 'gaussian' and rank <= data.dim = {shape(cell)[1]}, here "
            f"start.kind = {kind!r}; change one of them or leave model.rank out"
        )
    if start.num_classes(model.num_heads) > LARGEST_EXPLICIT:
        raise SpecError(
            f"model.num_heads = {model.num_heads:.15g} is too many for a start that draws every head; write at most "
            f"{LARGEST_EXPLICIT}, or start.kind = 'zero' or 'first_phase' with start.signs = 'balanced'"
        )


def stream(seed: int, which: int) -> Any:
    """One of the independent streams of a seed."""
    return jax.random.fold_in(jax.random.key(seed), which)


def _counts(cell: Cell) -> tuple[int, int, int]:
    """Sequences for training, for the test, and fresh ones for the start."""
    return cell.data.num_examples, cell.data.num_test, getattr(cell.start, "num_examples", 0)


def _data_seed(cell: Cell) -> int:
    return cell.seed if cell.data.seed is None else cell.data.seed


def _drawn(task: Any, cell: Cell) -> tuple[Dataset, Dataset | None, Dataset | None]:
    n, m, k = _counts(cell)
    seed = _data_seed(cell)
    dataset = task.sample(n, key=stream(seed, _TRAIN))
    test = task.sample(m, key=stream(seed, _TEST)) if m else None
    return dataset, test, task.sample(k, key=stream(seed, _FIRST)) if k else None


@functools.lru_cache(maxsize=8)
def _collection_size(data: Any, file_hash: str) -> int:
    """How many sequences the fixed collection of a data section has; `file_hash` changes with its content."""
    return make_task(data).load().num_examples


def _check_counts(task: Any, cell: Cell, size: int) -> None:
    """Refuse to cut more out of a collection than is in it."""
    n, m, k = _counts(cell)
    if n + m + k > size:
        raise ValueError(
            f"{task} has {size} sequences; data.num_examples = {n}, data.num_test = {m} and the first phase's {k} are "
            f"{n + m + k}. Lower one of them."
        )


def _cut(task: Any, cell: Cell) -> tuple[Dataset, Dataset | None, Dataset | None]:
    """Disjoint parts of a fixed collection."""
    if cell.file_hash and task.fingerprint() != cell.file_hash:
        raise ValueError(
            f"{task} has changed since the sweep was planned; put it back or start a new sweep."
        )
    whole, (n, m, k) = task.load(), _counts(cell)
    _check_counts(task, cell, whole.num_examples)
    order = np.asarray(jax.random.permutation(stream(_data_seed(cell), _TRAIN), whole.num_examples))
    train, test, first = order[:n], order[n : n + m], order[n + m : n + m + k]
    return (
        whole.subset(train),
        whole.subset(test) if m else None,
        whole.subset(first) if k else None,
    )
