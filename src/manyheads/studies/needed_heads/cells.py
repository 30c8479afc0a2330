"""The smallest number of heads with which training reaches zero error, and the steps that takes."""

from __future__ import annotations

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.studies.kit.cells import coordinate
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up, stream
from manyheads.theory.manyheads2026.parity import count_parity
from manyheads.training.descent import train
from manyheads.training.rules import RULES
from manyheads.training.start import gaussian_start
from manyheads.training.together import train_together

RECORDS, LOOKS = 10, 100  # looks at the error per run: for heads needed, for steps to fit
RESTARTS = 100  # first stream of a seed that the restarts use


def memorize(cell: Cell, *, sizes: list[int], candidates: list[int], restarts: int) -> dict:
    """`needed`: for each number of sequences the first candidate H for which a start reaches zero error.

    Infinite if none does: more than `largest`, the last candidate, are needed. Every search begins at the smallest
    candidate, so a larger sample may get fewer heads than a smaller one.
    """
    whole = set_up(cell).dataset
    found = [_search(cell, whole, size, candidates, restarts) for size in sizes]
    return {
        "sizes": coordinate("size", sizes),
        "needed": (("size",), np.array([heads for heads, _ in found], float)),
        "largest": max(candidates),
        "runs": sum(runs for _, runs in found),
    }


def parity(cell: Cell, *, lengths: list[int], heads: list[int], starts: int) -> dict:
    """Steps to fit the parity of a sequence of two kinds of tokens; the data section is not used.

    `steps` is the first of `LOOKS` looks at which a start has zero error, for every length and number of heads,
    infinite if none is. `needed` is the smallest number of heads with which one of the starts fits; `one_head` says
    whether a start with one head did; `largest` is the largest number of heads.
    """
    if heads[0] != 1:
        raise ValueError(
            f"heads={heads!r} must begin with 1, because the question is whether one head suffices."
        )
    steps = np.array(
        [_parity_steps(cell, length, max(lengths), heads, starts) for length in lengths]
    )
    fitted = np.any(np.isfinite(steps), axis=2)
    needed = np.where(fitted.any(axis=1), np.array(heads)[fitted.argmax(axis=1)], np.inf)
    return {
        "lengths": coordinate("length", lengths),
        "heads": coordinate("head", heads),
        "steps": (("length", "head", "drawn"), steps),
        "one_head": (("length",), fitted[:, 0]),
        "needed": (("length",), needed),
        "largest": max(heads),
        "limit": cell.train.num_steps,
        "runs": steps.size,
    }


def _parity_steps(
    cell: Cell, length: int, longest: int, heads: list[int], starts: int
) -> np.ndarray:
    """Steps to zero error, one row per number of heads, one column per start. One program is used for all lengths."""
    data = count_parity(length, longest)
    data = data.subset(np.arange(2**longest) % data.num_examples)
    models = []
    for count in heads:
        for start in range(starts):
            drawn = _start(cell, data, max(heads), RESTARTS + start, count)
            models.append(
                MultiHead(
                    drawn.key_query, drawn.readout, (np.arange(max(heads)) < count).astype(float)
                )
            )
    spec, many = cell.train, len(models)
    runs = train_together(
        models,
        [data] * many,
        rules=[RULES[spec.optimizer](spec.step_size)] * many,
        num_steps=spec.num_steps,
        record=max(1, spec.num_steps // LOOKS),
    )
    first = [
        run.steps[np.argmax(run.margin > 0)] if np.any(run.margin > 0) else np.inf for run in runs
    ]
    return np.array(first, float).reshape(len(heads), starts)


def _start(cell: Cell, data: Dataset, classes: int, number: int, heads: int) -> MultiHead:
    return gaussian_start(
        classes,
        num_tokens=data.num_tokens,
        dim=data.dim,
        key=jax.random.fold_in(stream(cell.seed, number), heads),
        key_query_scale=cell.start.key_query_scale,
        readout_scale=cell.start.readout_scale,
    )


def _search(
    cell: Cell, data: Dataset, size: int, candidates: list[int], restarts: int
) -> tuple[float, int]:
    """The first candidate that fits, infinite if none does, and how many runs that took."""
    runs = 0
    for heads in candidates:
        fitted, tried = _fit(cell, data, size, candidates, heads, restarts)
        runs += tried
        if fitted:
            return float(heads), runs
    return np.inf, runs


def _fit(
    cell: Cell, data: Dataset, size: int, candidates: list[int], heads: int, restarts: int
) -> tuple[bool, int]:
    """Whether one of several Gaussian starts reaches zero error on the first `size` sequences, and how many were tried.

    Unused sequences and heads have weight zero, so that the shapes are equal for all sizes and candidates.
    """
    weights = np.where(np.arange(data.num_examples) < size, 1 / size, 0.0)
    count = (np.arange(max(candidates)) < heads).astype(float)
    spec = cell.train
    for restart in range(restarts):
        drawn = _start(cell, data, max(candidates), RESTARTS + restart, heads)
        run = train(
            MultiHead(drawn.key_query, drawn.readout, count),
            data,
            rule=RULES[spec.optimizer](spec.step_size),
            num_steps=spec.num_steps,
            sample_weight=weights,
            record=max(1, spec.num_steps // RECORDS),
        )
        if np.max(run.margin) > 0:
            return True, restart + 1
    return False, restarts
