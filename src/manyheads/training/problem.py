"""What a run needs, checked: its steps, its precision, the arrays of the problem."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from manyheads import _check
from manyheads._check import REFUSED, checked, many, shown, whole
from manyheads.data.budget import descent_seconds, fits_memory, fits_time
from manyheads.data.dataset import Dataset
from manyheads.data.mapped import Mapped
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.model.protocol import Model, num_copies
from manyheads.training.devices import sharded_objective
from manyheads.training.loop import Method, Problem
from manyheads.training.rules import Rule

# heads
FLOAT64_FROM = 1e6
MOST_RECORDS = 10**7


# what does not fit the dtype is reported below
@np.errstate(over="ignore")
def make_problem(
    model: Model,
    dataset: Dataset,
    rule: Rule,
    loss: Loss = LOGISTIC,
    *,
    precision: Any = jax.lax.Precision.HIGHEST,
    sample_weight: np.ndarray | None = None,
    dtype: Any = np.float64,
    chunk: int | None = None,
    platform: str = "cpu",
    mesh: Mesh | None = None,
) -> Problem:
    """The arrays of a run in its precision, in NumPy; what does not fit the precision is refused."""
    n = dataset.num_examples
    objective = sharded_objective(model, dataset, dtype, chunk, mesh, platform)
    start = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), model.parameters)
    weight = np.asarray(np.full(n, 1 / n) if sample_weight is None else sample_weight, dtype)
    fits(dtype, {"tokens": dataset.tokens, "the parameters": start, "sample_weight": weight})
    # its numbers in the precision of the run; a random key stays as it is
    rule = jax.tree.map(
        lambda leaf: leaf if getattr(leaf, "dtype", None) == np.uint32 else np.asarray(leaf, dtype),
        rule,
    )
    return Problem(start, objective, weight, rule, Method(loss, precision))


def chunk_of(problem: Problem) -> int | None:
    """Sequences evaluated together, where the objective cuts its data."""
    batch = getattr(getattr(problem.objective, "parts", problem.objective), "batch", None)
    return None if batch is None else int(batch.labels.shape[-1])


@np.errstate(over="ignore")
def fits(dtype, parts: dict[str, Any]) -> None:
    """Refuse values that are infinite in `dtype`."""
    for name, part in parts.items():
        leaves = [
            leaf.largest[0] if isinstance(leaf, Mapped) else leaf for leaf in jax.tree.leaves(part)
        ]
        if not all(np.isfinite(np.asarray(leaf, dtype)).all() for leaf in leaves):
            raise ValueError(
                f"{name} hold values too large for {np.dtype(dtype)}; pass dtype='float64', or "
                "scale them down."
            )


def check_step_size(rule: Rule, kind: np.dtype) -> None:
    """Refuse a step size that the precision cannot hold."""
    eta = rule.step_size
    if eta is not None and not float(np.finfo(kind).tiny) <= eta <= float(np.finfo(kind).max):
        raise ValueError(
            f"step_size={eta:g} does not fit {kind}; pass dtype='float64' or another step size."
        )


def check_descent(
    model: Model, dataset: Dataset, num_steps: int, runs: int = 1, records: float = 0.0
) -> None:
    """Refuse runs that would take days, and records (that many numbers) that would not fit."""
    what = f"{num_steps:,} steps" if runs == 1 else f"{runs:,} runs of {num_steps:,} steps"
    fits_memory(f"the records of {what}", 8 * records, "pass fewer steps")
    seconds = runs * descent_seconds(
        num_steps, *dataset.tokens.shape, 1 if model.copies is None else len(model.copies)
    )
    fits_time(
        what,
        seconds,
        "pass fewer steps" if runs <= 2 else "pass fewer steps, num_left_out=50 or fewer sequences",
    )


def choose_dtype(dtype: str | None, model: Model) -> np.dtype:
    """float32, unless told otherwise or updates would be smaller than rounding: float64 from 10^6 heads on."""
    if dtype is None:
        return np.dtype("float64" if num_copies(model) >= FLOAT64_FROM else "float32")
    return np.dtype(checked("dtype", dtype, _check.dtype))


def choose_steps(record, num_steps: int, name: str) -> np.ndarray:
    """Increasing steps from 0 to num_steps: "log", "all", every m-th, or a list (the ends are added)."""
    if isinstance(record, str) and record == "log":
        inner = np.geomspace(1, max(num_steps, 1), 60).round().astype(int)
        return np.unique([0, *inner[inner <= num_steps], num_steps])
    every = 1 if isinstance(record, str) and record == "all" else whole().accept(record)
    if not isinstance(every, int):
        return np.union1d(listed_steps(record, num_steps, name), [0, num_steps]).astype(int)
    if num_steps > every * MOST_RECORDS:
        raise ValueError(
            f"{name}={record} keeps {num_steps // every:,} records, more than {MOST_RECORDS:,}; "
            "pass 'log' or "
            f"{name}={-(-num_steps // MOST_RECORDS)}."
        )
    return np.union1d(np.arange(0, num_steps + 1, every), [num_steps])


def listed_steps(steps, num_steps: int, name: str = "snapshots") -> np.ndarray:
    """The steps of a list, increasing and each once."""
    listed = many(whole(0, num_steps)).accept(steps)
    if listed is REFUSED:
        other = "'records'" if name == "snapshots" else "'log', 'all', every m-th step"
        raise ValueError(
            f"{name}={shown(steps)} must be {other} or a list of whole steps from 0 to "
            f"num_steps={num_steps}."
        )
    return np.unique(np.array(listed, int))
