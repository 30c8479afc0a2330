"""Descent of many runs of one shape at once: a vmap of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._check import check, none, whole
from manyheads.data.dataset import Dataset
from manyheads.model.autodiff import as_model
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.training.batches import checked_on
from manyheads.training.descent import Finish, Steps, run_observers, run_settings
from manyheads.training.devices import default_device
from manyheads.training.loop import (
    RUNS,
    Observer,
    Problem,
    Run,
    State,
    at_steps,
    forgetful,
    whole_run,
)
from manyheads.training.problem import (
    choose_dtype,
    choose_steps,
    chunk_of,
    make_problem,
)
from manyheads.training.rules import Rule
from manyheads.training.trajectory import Trajectory


@check(num_steps=whole(0), loss=is_loss, dtype=_check.dtype | none)
def train_together(
    models: Sequence[Any],
    datasets: Sequence[Dataset],
    *,
    rules: Sequence[Rule],
    num_steps: int,
    loss: str | Loss = "logistic",
    tests: Sequence[Dataset | None] | None = None,
    record: str | int | Sequence[int] = "log",
    dtype: str | None = None,
) -> list[Trajectory]:
    """`train` for several runs whose arrays have equal shapes, in one program; they may differ in everything else.

    Each result agrees with that of `train` to rounding; a run that diverges leaves the others
    alone. Worth it where one step is so little work that starting it costs more (a GPU, or tiny
    problems); there is no bar and no checkpoint.

    Args:
        models: where each run starts.
        datasets: the training sequences of each.
        rules: the rule of each; they may differ in their step sizes.
        num_steps: where all runs end.
        loss: that of all runs.
        tests: sequences on which each records its loss too.
        record: as for `train`.
        dtype: "float32" or "float64".
    """
    models = [as_model(model) for model in models]
    tests = tests or [None] * len(models)
    if any(data.in_place for data in (*datasets, *tests) if data is not None):
        raise ValueError(
            "data that are read block by block are trained on one run at a time; use train for "
            "each."
        )
    kinds = {choose_dtype(dtype, model) for model in models}
    if len(kinds) > 1:
        raise ValueError(
            "the runs need different precisions; pass dtype='float64' for all of them."
        )
    (kind,), where, loss = kinds, default_device(), get_loss(loss)
    steps = Steps(choose_steps(record, num_steps, "record"), np.zeros(0, int))
    problems, finishes = [], []
    for model, data, test, rule in zip(models, datasets, tests, rules, strict=True):
        rule = checked_on(rule, model, data.num_examples)
        problem = make_problem(model, data, rule, loss, dtype=kind, platform=where.platform)
        problems.append(problem)
        observers = run_observers(model, test, steps, kind, where.platform)
        settings = run_settings(rule, loss, num_steps, kind, [where], data)
        settings["chunk"] = chunk_of(problem)
        finishes.append(Finish(model, at_steps(observers, num_steps), settings))
    shapes = {str((jax.tree.structure(p), jax.tree.map(np.shape, p))) for p in problems}
    if len(shapes) > 1:
        raise ValueError(
            f"the runs have {len(shapes)} different shapes; group them by shape, or use train for "
            "each."
        )
    arguments = [{n: o.arguments for n, o in finish.observers.items()} for finish in finishes]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(problems, arguments, strict=True))
    with jax.enable_x64(kind == np.float64), jax.default_device(where):
        runs = _all_runs(*stacked, finishes[0].observers, np.int32(num_steps))
    done = jax.tree.map(np.asarray, runs)
    results = []
    for i, finish in enumerate(finishes):
        run = jax.tree.map(lambda leaf, i=i: leaf[i], done)
        results.append(finish(State(num_steps + 1, {}, run), "finished"))
    return results


@forgetful
@jax.jit
def _all_runs(
    problems: Problem, arguments: dict[str, tuple], observers: dict[str, Observer], last
) -> Run:
    def one(problem, arguments):
        own = {
            name: Observer(o.look, o.steps, arguments[name], o.extras)
            for name, o in observers.items()
        }
        return whole_run(problem, own, last, RUNS)

    return jax.vmap(one, axis_name=RUNS)(problems, arguments)
