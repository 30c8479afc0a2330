"""The smallest number of heads with which training reaches zero error."""

from __future__ import annotations

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.papers.manyheads2026.parity import count_parity
from manyheads.studies.kit.cells import coordinate
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up, stream
from manyheads.training.descent import train
from manyheads.training.start import gaussian_start

RECORDS = 10  # looks at the error per run
RESTARTS = 100  # first stream of a seed that the restarts use


def memorize(cell: Cell, *, sizes: list[int], candidates: list[int], restarts: int) -> dict:
    """`needed`: for each number of sequences the first candidate H for which a start reaches zero error.

    Infinite if none does: more than `largest`, the last candidate, are needed. Every search begins at the smallest
    candidate, so that a larger sample may come out with fewer heads than a smaller one.
    """
    whole = set_up(cell).dataset
    found = [_search(cell, whole, size, candidates, restarts) for size in sizes]
    return {"sizes": coordinate("size", sizes), **_needed("size", found, candidates)}


def parity(cell: Cell, *, lengths: list[int], candidates: list[int], restarts: int) -> dict:
    """`needed` for the parity of a sequence of two kinds of tokens, for each length; the data section is not used.

    `one_head` says whether any start with one head, the first candidate, fitted it; `largest` is the last candidate.
    """
    if candidates[0] != 1:
        raise ValueError(f"candidates={candidates!r}: begin with 1, as the question is whether one head does.")
    longest = max(lengths)
    found = []
    for length in lengths:
        data = count_parity(length, longest)
        padded = data.subset(np.arange(2**longest) % data.num_examples)
        found.append(_search(cell, padded, data.num_examples, candidates, restarts))
    one_head = np.array([heads == 1 for heads, _ in found])
    return {
        "lengths": coordinate("length", lengths),
        "one_head": (("length",), one_head),
        **_needed("length", found, candidates),
    }


def _needed(dim: str, found: list[tuple[float, int]], candidates: list[int]) -> dict:
    return {
        "needed": ((dim,), np.array([heads for heads, _ in found], float)),
        "largest": max(candidates),
        "runs": sum(runs for _, runs in found),
    }


def _search(cell: Cell, data: Dataset, size: int, candidates: list[int], restarts: int) -> tuple[float, int]:
    """The first candidate that fits, infinite if none does, and how many runs that took."""
    runs = 0
    for heads in candidates:
        fitted, tried = _fit(cell, data, size, candidates, heads, restarts)
        runs += tried
        if fitted:
            return float(heads), runs
    return np.inf, runs


def _fit(cell: Cell, data: Dataset, size: int, candidates: list[int], heads: int, restarts: int) -> tuple[bool, int]:
    """Whether one of several Gaussian starts reaches zero error on the first `size` sequences, and how many were tried.

    Sequences and heads that do not take part have weight zero: the shapes are equal for all sizes and candidates.
    """
    weights = np.where(np.arange(data.num_examples) < size, 1 / size, 0.0)
    count = (np.arange(max(candidates)) < heads).astype(float)
    spec = cell.train
    for restart in range(restarts):
        drawn = gaussian_start(
            max(candidates),
            num_tokens=data.num_tokens,
            dim=data.dim,
            key=jax.random.fold_in(stream(cell.seed, RESTARTS + restart), heads),
            key_query_scale=cell.start.key_query_scale,
            readout_scale=cell.start.readout_scale,
        )
        run = train(
            MultiHead(drawn.key_query, drawn.readout, count),
            data,
            step_size=spec.step_size,
            num_steps=spec.num_steps,
            optimizer=spec.optimizer,
            sample_weight=weights,
            record=max(1, spec.num_steps // RECORDS),
        )
        if np.max(run.margin) > 0:
            return True, restart + 1
    return False, restarts
