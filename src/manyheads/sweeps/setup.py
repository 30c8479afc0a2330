"""From a cell's sections to what training needs: the task, the samples, the start."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.data.planted import Planted, RandomLabels
from manyheads.model.attention import MultiHead
from manyheads.sweeps.fields import SpecError
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.sections import FILE, MIXTURE, PLANTED, DataSpec
from manyheads.training.start import LARGEST_EXPLICIT, first_phase, gaussian_start, population_first_phase, zero_start

MIXTURE_FIELDS = (
    "num_tokens", "dim", "num_patterns", "sparsity", "signal", "noise_mu", "noise_nu", "noise_norm", "noise",
    "positions", "frame",
)  # fmt: skip
_TRAIN, _TEST, _FIRST, _START = range(4)  # streams of one seed


@dataclass(frozen=True, eq=False)
class Setup:
    """A cell made concrete. The first-phase, training and test sequences are disjoint draws."""

    cell: Cell
    task: TokenizedMixture | Planted | RandomLabels | None  # None: the user's own file
    dataset: Dataset
    test: Dataset | None
    first: Dataset | None
    start: MultiHead


def set_up(cell: Cell) -> Setup:
    """Draw the data and make the start. The data depend on the data section and the seed alone, not on the model."""
    task = make_task(cell.data)
    dataset, test, first = _from_file(cell) if task is None else _drawn(task, cell)
    return Setup(cell, task, dataset, test, first, _start(cell, task, dataset, first))


def make_task(data: DataSpec) -> Any:
    """The data model of a section; None for a file."""
    key = jax.random.key(data.task_seed)
    if data.kind == MIXTURE:
        return TokenizedMixture(**{name: getattr(data, name) for name in MIXTURE_FIELDS}, key=key)
    if data.kind == PLANTED:
        names = ("num_tokens", "dim", "margin", "token_scale", "teacher_scale")
        return Planted(num_heads=data.teacher_heads, **{name: getattr(data, name) for name in names}, key=key)
    if data.kind == FILE:
        return None
    return RandomLabels(data.num_tokens, data.dim, data.token_norm)


def check_cell(cell: Cell) -> None:
    """What ranges cannot say: fields that contradict each other. A SpecError before anything runs."""
    data, start, model = cell.data, cell.start, cell.model
    try:
        if data.kind == MIXTURE:
            make_task(replace(data, frame="axis"))
    except ValueError as error:
        raise SpecError([f"data: {error}"]) from None
    if start.kind == "population" and (data.kind != MIXTURE or model.decoder != "full"):
        raise SpecError(
            [
                "start.kind = 'population' needs data.kind = 'mixture' and model.decoder = 'full', here they are "
                f"{data.kind!r} and {model.decoder!r}; write start.kind = 'first_phase'"
            ]
        )
    if model.rank is not None and (start.kind != "gaussian" or (data.kind != FILE and model.rank > data.dim)):
        raise SpecError(
            [
                f"model.rank = {model.rank} needs start.kind = 'gaussian' and rank <= data.dim = {data.dim}, here "
                f"start.kind = {start.kind!r}; change one of them or leave model.rank out"
            ]
        )
    explicit = start.kind == "gaussian" or (start.kind in ("first_phase", "population") and start.signs == "uniform")
    if explicit and model.num_heads > LARGEST_EXPLICIT:
        raise SpecError(
            [
                f"model.num_heads = {model.num_heads:.15g} is too many for a start that draws every head; write at "
                f"most {LARGEST_EXPLICIT}, or start.kind = 'zero' or 'first_phase' with start.signs = 'balanced'"
            ]
        )


def stream(seed: int, which: int) -> jax.Array:
    """One of the independent streams of a seed."""
    return jax.random.fold_in(jax.random.key(seed), which)


def _drawn(task: Any, cell: Cell) -> tuple[Dataset, Dataset | None, Dataset | None]:
    seed = cell.seed if cell.data.seed is None else cell.data.seed
    dataset = task.sample(cell.data.num_examples, key=stream(seed, _TRAIN))
    test = task.sample(cell.data.num_test, key=stream(seed, _TEST)) if cell.data.num_test else None
    wanted = cell.start.kind == "first_phase"
    return dataset, test, task.sample(cell.start.num_examples, key=stream(seed, _FIRST)) if wanted else None


def _from_file(cell: Cell) -> tuple[Dataset, Dataset | None, Dataset | None]:
    path = Path(cell.data.path)
    whole = Dataset.load(path)
    if cell.file_hash and hashlib.sha256(path.read_bytes()).hexdigest() != cell.file_hash:
        raise ValueError(f"{path} has changed since the sweep was planned; put the old file back or start a new sweep.")
    seed = cell.seed if cell.data.seed is None else cell.data.seed
    n, m = cell.data.num_examples, cell.data.num_test
    k = cell.start.num_examples if cell.start.kind == "first_phase" else 0
    if n + m + k > whole.num_examples:
        raise ValueError(
            f"{path} has {whole.num_examples} sequences; data.num_examples = {n}, data.num_test = {m} and the first "
            f"phase's {k} are {n + m + k}. Lower one of them."
        )
    order = np.asarray(jax.random.permutation(stream(seed, _TRAIN), whole.num_examples))
    train, test, first = order[:n], order[n : n + m], order[n + m : n + m + k]
    return whole.subset(train), whole.subset(test) if m else None, whole.subset(first) if k else None


def _start(cell: Cell, task: Any, dataset: Dataset, first: Dataset | None) -> MultiHead:
    start, model = cell.start, cell.model
    key = stream(cell.seed, _START)
    common: dict[str, Any] = dict(decoder=model.decoder, exponent=model.exponent)
    shape: dict[str, Any] = dict(num_tokens=dataset.num_tokens, dim=dataset.dim)
    if start.kind == "zero":
        return zero_start(model.num_heads, **shape, **common)
    if start.kind == "gaussian":
        scales: dict[str, Any] = dict(key_query_scale=start.key_query_scale, readout_scale=start.readout_scale)
        return gaussian_start(model.num_heads, **shape, **scales, key=key, rank=model.rank, **common)
    if start.kind == "population":
        return population_first_phase(task, model.num_heads, signs=start.signs, key=key, exponent=model.exponent)
    assert first is not None
    return first_phase(first, model.num_heads, signs=start.signs, key=key, loss=cell.train.loss, **common)
