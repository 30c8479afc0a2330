"""Descent of many runs of one shape at once: the compiled loop, vectorized over runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.gradient import loss_and_gradient
from manyheads.model.loss import get_loss
from manyheads.training.descent import train
from manyheads.training.loop import Method, Problem, State, initial_state, norm, record_row, update
from manyheads.training.problem import (
    checked_plan,
    choose_device,
    choose_dtype,
    choose_method,
    choose_steps,
    make_problem,
)
from manyheads.training.trajectory import RECORDS, Trajectory


class Many(NamedTuple):
    """The runs' own state, with a leading axis over runs; the step and the number of records are common to all."""

    displacement: Heads
    optimizer: Any
    records: dict[str, jax.Array]
    finite: jax.Array  # (runs,)


def train_together(
    models: Sequence[MultiHead],
    datasets: Sequence[Dataset],
    *,
    step_sizes: Sequence[float],
    num_steps: int,
    optimizer: str = "gd",
    loss: str = "logistic",
    tests: Sequence[Dataset | None] | None = None,
    record: str | int | Sequence[int] = "log",
    dtype: str | None = None,
    device: str | None = None,
) -> list[Trajectory]:
    """`train` for several runs whose arrays have equal shapes, in one program; they may differ in everything else.

    Each result agrees with that of `train` to rounding. A run that diverges is run again alone, so that its last good
    step is found in the same way. Worth it where one step is so little work that starting it costs more (a GPU, or tiny
    problems); there is no bar and no checkpoint.
    """
    tests = tests or [None] * len(models)
    shapes = {run_shape(*run) for run in zip(models, datasets, tests, strict=True)}
    if len(shapes) > 1:
        raise ValueError(f"the runs have {len(shapes)} different shapes; group them by shape, or use train for each.")
    method = choose_method(models[0], optimizer, None, get_loss(loss), False)
    kinds = {choose_dtype(dtype, model) for model in models}
    if len(kinds) > 1:
        raise ValueError("the runs need different precisions; pass dtype='float64' for all of them.")
    (kind,) = kinds
    where = choose_device(device)
    steps = choose_steps(record, num_steps, "record")
    with jax.enable_x64(kind == np.float64), jax.default_device(where):
        problems: list[Any] = []
        for model, dataset, test, step_size in zip(models, datasets, tests, step_sizes, strict=True):
            count, eta = checked_plan(method, step_size, num_steps)
            problem = make_problem(model, dataset, test, None, kind, None, where, eta, count, steps)
            problems.append(jax.tree.map(np.asarray, problem))
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *problems)
        states = initial_state(problems[0], method, kind)
        zero = jax.tree.map(
            lambda leaf: np.repeat(np.asarray(leaf)[None], len(problems), axis=0),
            (states.displacement, states.optimizer, states.records, states.finite),
        )
        moved = advance_together(method, stacked, steps.astype(np.int32), np.int32(num_steps), Many(*zero))
        done: Any = jax.tree.map(np.asarray, moved)
    results = []
    for i, (model, dataset, test) in enumerate(zip(models, datasets, tests, strict=True)):
        if not done.finite[i]:
            alone: dict[str, Any] = dict(
                step_size=float(step_sizes[i]), num_steps=num_steps, optimizer=optimizer, loss=loss
            )
            results.append(train(model, dataset, test=test, record=record, dtype=kind.name, device=device, **alone))
            continue
        settings = {
            "optimizer": optimizer,
            "coordinates": method.coordinates,
            "step_size": float(step_sizes[i]),
            "num_steps": int(num_steps),
            "loss": method.loss.name,
            "dtype": kind.name,
            "tf32": False,
            "device": where.platform,
            "num_examples": dataset.num_examples,
            "data": dataset.name,
            "chunk": int(problems[i].batch.labels.shape[1]),
        }
        results.append(_trajectory(model, jax.tree.map(lambda leaf, i=i: leaf[i], done), steps, settings))
    return results


def run_shape(model: MultiHead, dataset: Dataset, test: Dataset | None) -> tuple:
    """What must agree for runs to share a program."""

    def of(data):
        return None if data is None else (data.tokens.shape, data.mask is None, data.relevant is None)

    leaves, tree = jax.tree.flatten(model.heads)
    return tuple(leaf.shape for leaf in leaves), str(tree), model.decoder, of(dataset), of(test)


def _trajectory(model: MultiHead, one: Any, steps: np.ndarray, settings: dict) -> Trajectory:
    return Trajectory(
        start=model,
        steps=steps.astype(np.int64),
        snapshot_steps=np.zeros(0, np.int64),
        snapshots=jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), one.displacement),
        displacement=one.displacement,
        last_step=settings["num_steps"],
        status="finished",
        settings=settings,
        optimizer_state=tuple(jax.tree.leaves(one.optimizer)),
        **{name: one.records.get(name) for name in RECORDS},
    )


@partial(jax.jit, static_argnums=0)
def advance_together(
    method: Method, problems: Problem, record_steps: jax.Array, num_steps: jax.Array, many: Many
) -> Many:
    """All steps of all runs. A run whose loss or gradient leaves the finite numbers stands still from there on."""

    def state(step, written, displacement, optimizer, records) -> State:
        return State(step, displacement, optimizer, written, records, jnp.zeros(()), jnp.array(True))

    def evaluate(problem: Problem, displacement):
        point = jax.tree.map(jnp.add, problem.start, displacement)
        loss, scores, gradient = loss_and_gradient(
            point, problem.weights, problem.batch, problem.sample_weight, loss=method.loss, precision=method.precision
        )
        return loss, scores, gradient, norm(gradient, problem.counts)

    def body(carry):
        step, written, many = carry
        loss, scores, gradient, length = jax.vmap(evaluate)(problems, many.displacement)
        finite = many.finite & jnp.isfinite(loss) & jnp.isfinite(length)
        next_record = jnp.minimum(written, len(record_steps) - 1)
        due = (written < len(record_steps)) & (record_steps[next_record] == step)

        def record(problem, displacement, records, loss, scores, length):
            point = jax.tree.map(jnp.add, problem.start, displacement)
            here = state(step, written, displacement, (), records)
            return record_row(method, problem, here, point, loss, scores, length)

        records = jax.lax.cond(  # one condition for all runs, so that a step without a record costs none
            due,
            lambda: jax.vmap(record)(problems, many.displacement, many.records, loss, scores, length),
            lambda: many.records,
        )

        def move(problem, displacement, optimizer, loss, gradient, length, live):
            here = state(step, written, displacement, optimizer, {})
            moves, after = update(method, problem, here, loss, gradient, length)
            new = (jax.tree.map(jnp.add, displacement, moves), after)
            return jax.tree.map(lambda a, b: jnp.where(live, a, b), new, (displacement, optimizer))

        live = finite & (step < num_steps)
        displacement, optimizer = jax.vmap(move)(
            problems, many.displacement, many.optimizer, loss, gradient, length, live
        )
        return step + 1, written + due, Many(displacement, optimizer, records, finite)

    zero = jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(lambda c: (c[0] <= num_steps) & c[2].finite.any(), body, (zero, zero, many))[2]
