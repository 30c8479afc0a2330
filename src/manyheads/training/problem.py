"""What a run needs, checked: the rule of descent, the plan, the precision, the arrays of the problem."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from manyheads.data.budget import descent_seconds, fits_memory, fits_time
from manyheads.data.dataset import Dataset
from manyheads.data.door import array_of, shown
from manyheads.data.mapped import Mapped
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.model.protocol import Model, num_copies
from manyheads.model.sharded import sharded_objective
from manyheads.training.loop import Method, Problem
from manyheads.training.rules import RULES, Optax, Rule, checked_rule

FLOAT64_FROM = 1e6  # heads
MOST_RECORDS = 10**7


def checked_weight(sample_weight, n: int) -> np.ndarray:
    """The weights of n sequences as float64, finite, nonnegative and not all zero."""
    weight = array_of(sample_weight, "sample_weight")
    if (
        weight.shape != (n,)
        or weight.dtype.kind not in "fiub"
        or not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any())
    ):
        raise ValueError(
            f"sample_weight must hold {n} finite numbers >= 0, not all zero; 1/n each is the default."
        )
    return weight.astype(np.float64)


@np.errstate(over="ignore")  # what does not fit the dtype is reported below
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
    rule = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), rule)
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
                f"{name} hold values too large for {np.dtype(dtype)}; pass dtype='float64', or scale them down."
            )


def choose_rule(model: Model, rule: Any, optimizer: Any, step_size: Any, coordinates: Any) -> Rule:
    """The rule of descent: an object, or as `optimizer`, `step_size` and `coordinates` name it."""
    if rule is not None:
        if (optimizer, step_size, coordinates) != ("gd", None, None):
            raise ValueError(
                "rule= says everything; leave out optimizer, step_size and coordinates."
            )
        return checked_rule(rule, model.copies)
    if coordinates not in (None, "head", "class"):
        raise ValueError(
            f"coordinates={shown(coordinates)} is not known; choose 'head' or 'class'."
        )
    if not isinstance(optimizer, str):
        if step_size is not None:
            raise ValueError(
                f"step_size={step_size} is not used with an optax transform, which brings its own; leave it out."
            )
        return checked_rule(Optax(optimizer, coordinates), model.copies)
    if optimizer not in RULES:
        raise ValueError(
            f"optimizer={shown(optimizer)} is not known; choose one of {', '.join(map(repr, RULES))}, "
            "or pass an optax transform."
        )
    if coordinates == "class" and optimizer == "adam":
        raise ValueError(
            "coordinates='class' is not for optimizer='adam', which acts on one head of each class; leave it out, "
            "or pass optax.adam(...) itself."
        )
    if step_size is None:
        raise ValueError(
            "step_size is missing; pass step_size=0.1, say, or let `manyheads.plan` choose one."
        )
    return RULES[optimizer](step_size)


def checked_steps(num_steps: Any) -> int:
    """The number of steps."""
    if not (
        isinstance(num_steps, int | np.integer)
        and not isinstance(num_steps, bool)
        and 0 <= num_steps < 2**31 - 1
    ):
        raise ValueError(
            f"num_steps={shown(num_steps)} must be a whole number from 0 to {2**31 - 2}."
        )
    return int(num_steps)


def check_step_size(rule: Rule, kind: np.dtype) -> None:
    """Refuse a step size that the precision cannot hold."""
    eta = rule.step_size
    if eta is not None and not float(np.finfo(kind).tiny) <= eta <= float(np.finfo(kind).max):
        raise ValueError(
            f"step_size={eta:g} does not fit {kind}; pass dtype='float64' or another step size."
        )


def precision_of(tf32: bool) -> Any:
    """The precision of products: full, or what a GPU does by itself."""
    return jax.lax.Precision.DEFAULT if tf32 else jax.lax.Precision.HIGHEST


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


def choose_dtype(dtype, model: Model) -> np.dtype:
    """float32, unless told otherwise or updates would be smaller than rounding: float64 from 10^6 heads on."""
    if dtype is None:
        return np.dtype("float64" if num_copies(model) >= FLOAT64_FROM else "float32")
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind not in (np.dtype("float32"), np.dtype("float64")):
        raise ValueError(f"dtype={shown(dtype)} is not supported; choose 'float32' or 'float64'.")
    return kind


def choose_steps(record, num_steps: int, name: str) -> np.ndarray:
    """Increasing steps from 0 to num_steps: "log", "all", every m-th, or a list (the ends are added)."""
    every = 1 if isinstance(record, str) and record == "all" else record
    if isinstance(every, int | np.integer) and 0 < every < num_steps / MOST_RECORDS:
        raise ValueError(
            f"{name}={record} keeps {num_steps // every:,} records, more than {MOST_RECORDS:,}; pass 'log' or "
            f"{name}={-(-num_steps // MOST_RECORDS)}."
        )
    if isinstance(record, str):
        if record == "all":
            return np.arange(num_steps + 1)
        if record == "log":
            inner = np.geomspace(1, max(num_steps, 1), 60).round().astype(int)
            return np.unique(np.concatenate([[0], inner[inner <= num_steps], [num_steps]]))
        raise ValueError(
            f"{name}={shown(record)} is not known; choose 'log', 'all', a whole number or a list of steps."
        )
    if isinstance(record, int | np.integer) and not isinstance(record, bool):
        if record < 1:
            raise ValueError(f"{name}={record} must be at least 1: every m-th step.")
        return np.union1d(np.arange(0, num_steps + 1, record), [num_steps])
    return np.union1d(listed_steps(record, num_steps, name), [0, num_steps]).astype(int)


def listed_steps(steps, num_steps: int, name: str = "snapshots") -> np.ndarray:
    """The steps of a list, increasing and each once."""
    with contextlib.suppress(TypeError, ValueError):
        array = np.asarray(steps)
        if array.ndim == 1 and (
            array.size == 0
            or (array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= num_steps)
        ):
            return np.unique(array.astype(int))
    raise ValueError(
        f"{name}={shown(steps)} must be a list of whole steps from 0 to num_steps={num_steps}."
    )
