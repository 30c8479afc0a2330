"""Descent of many runs of one shape at once: a vmap of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.door import FROM_ZERO, guarded
from manyheads.model.attention import MultiHead
from manyheads.model.loss import Loss, get_loss
from manyheads.model.protocol import Model, checked_model
from manyheads.training.descent import Finish, run_observers, run_settings
from manyheads.training.devices import choose_device
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
    checked_steps,
    choose_dtype,
    choose_steps,
    chunk_of,
    make_problem,
)
from manyheads.training.rules import Rule, checked_rule
from manyheads.training.trajectory import Trajectory


@guarded(num_steps=FROM_ZERO, record=None, device=None)
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
    device: str | None = None,
) -> list[Trajectory]:
    """`train` for several runs whose arrays have equal shapes, in one program; they may differ in everything else.

    Each result agrees with that of `train` to rounding; a run that diverges leaves the others alone. Worth it where one
    step is so little work that starting it costs more (a GPU, or tiny problems); there is no bar and no checkpoint.
    """
    models = [checked_model(model) for model in models]
    tests = tests or [None] * len(models)
    shapes = {run_shape(*run) for run in zip(models, datasets, tests, strict=True)}
    if len(shapes) > 1:
        raise ValueError(
            f"the runs have {len(shapes)} different shapes; group them by shape, or use train for each."
        )
    if any(data.in_place for data in (*datasets, *tests) if data is not None):
        raise ValueError(
            "data that are read block by block are trained on one run at a time; use train for each."
        )
    loss, count = get_loss(loss), checked_steps(num_steps)
    kinds = {choose_dtype(dtype, model) for model in models}
    if len(kinds) > 1:
        raise ValueError(
            "the runs need different precisions; pass dtype='float64' for all of them."
        )
    (kind,) = kinds
    where = choose_device(device)
    steps = choose_steps(record, num_steps, "record")
    problems, observers, settings = [], [], []
    for model, dataset, test, rule in zip(models, datasets, tests, rules, strict=True):
        rule = checked_rule(rule, model.copies)
        problems.append(
            make_problem(model, dataset, rule, loss, dtype=kind, platform=where.platform)
        )
        observers.append(at_steps(run_observers(model, test, steps, kind, where.platform), count))
        chunk = {"chunk": chunk_of(problems[-1])}
        settings.append(run_settings(rule, loss, count, kind, False, where, dataset) | chunk)
    arguments = [{name: o.arguments for name, o in one.items()} for one in observers]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *zip(problems, arguments, strict=True))
    with jax.enable_x64(kind == np.float64), jax.default_device(where):
        done = jax.tree.map(np.asarray, _all_runs(*stacked, observers[0], np.int32(num_steps)))
    results = []
    for i, model in enumerate(models):
        run = jax.tree.map(lambda leaf, i=i: leaf[i], done)
        results.append(
            Finish(model, observers[i], settings[i], {})(State(num_steps + 1, {}, run), "finished")
        )
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


def run_shape(model: Model, dataset: Dataset, test: Dataset | None) -> tuple:
    """What must agree for runs to share a program."""

    def of(data):
        return (
            None if data is None else (data.tokens.shape, data.mask is None, data.relevant is None)
        )

    leaves, tree = jax.tree.flatten(model.parameters)
    kind = model.decoder if isinstance(model, MultiHead) else str(jax.tree.structure(model))
    return tuple(leaf.shape for leaf in leaves), str(tree), kind, of(dataset), of(test)
