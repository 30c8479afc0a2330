"""The compiled loop of descent: evaluate, record, move; a runtime bound says how far."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from manyheads._types import AnyArray
from manyheads.model.attention import Heads
from manyheads.model.gradient import Batch, Weights, attention_mass, batch_scores, evaluate
from manyheads.model.loss import Loss

RULES = ("gd", "normalized", "polyak", "adam", "optax")


class Problem(NamedTuple):
    """Everything the loop reads and never writes."""

    start: Heads
    weights: Weights
    counts: AnyArray  # (classes,) multiplicity
    batch: Batch
    sample_weight: AnyArray  # (n,)
    relevant: AnyArray | None  # (chunks, size, T)
    test_batch: Batch | None
    test_weight: AnyArray | None
    step_size: AnyArray
    num_steps: AnyArray
    record_steps: AnyArray  # (records,) increasing


class State(NamedTuple):
    """Where descent is: `displacement` belongs to `step`, which is evaluated next."""

    step: jax.Array
    displacement: Heads
    optimizer: Any
    written: jax.Array  # records written so far
    records: dict[str, jax.Array]
    loss: jax.Array  # of the last evaluation
    finite: jax.Array


class Method(NamedTuple):
    """What is compiled in: the rule of descent, the loss, the precision of products."""

    rule: str
    transform: optax.GradientTransformationExtraArgs | None
    coordinates: str  # "head" or "class"
    loss: Loss
    precision: Any


ADAM = optax.with_extra_args_support(optax.scale_by_adam())


def norm(heads: Heads, counts: AnyArray) -> jax.Array:
    r"""$(\sum_g N_g \|\cdot\|^2)^{1/2}$, the norm of the full H-head vector; no square overflows or underflows."""
    leaves = jax.tree.leaves(heads)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
    unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1.0)
    squares = (jnp.sum(counts * jnp.sum((leaf / unit).reshape(leaf.shape[0], -1) ** 2, axis=1)) for leaf in leaves)
    return unit * jnp.sqrt(sum(squares))


def largest_readout(readout: jax.Array, batch: Batch) -> jax.Array:
    r"""$\|U\|_{2,\infty} = \max_h \|U_h\|_F$; a pooled readout stands for $U = 1_T u^\top$."""
    copies = batch.tokens.shape[-2] if readout.ndim == 2 and batch.last is None else 1
    return jnp.sqrt(copies * jnp.max(jnp.sum(readout.reshape(readout.shape[0], -1) ** 2, axis=1)))


def _by_class(heads: Any, factor: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf * factor.reshape(-1, *(1,) * (leaf.ndim - 1)), heads)


def initial_state(problem: Problem, method: Method, dtype) -> State:
    """The state at step 0."""
    zeros = jax.tree.map(lambda a: jnp.zeros(jnp.shape(a), dtype), problem.start)
    records = len(problem.record_steps)
    names = ["train_loss", "gradient_norm", "distance", "readout_norm", "margin"]
    buffers = {name: jnp.full(records, jnp.nan, dtype) for name in names}
    if problem.relevant is not None:
        buffers["attention_mass"] = jnp.full((records, len(problem.counts)), jnp.nan, dtype)
    if problem.test_batch is not None:
        buffers["test_loss"] = jnp.full(records, jnp.nan, dtype)
    optimizer: Any = ()
    if method.transform is not None:  # some transforms remember where they began
        start = jax.tree.map(lambda a: jnp.asarray(a, dtype), problem.start)
        root = jnp.sqrt(jnp.asarray(problem.counts, dtype))
        optimizer = method.transform.init(_by_class(start, root) if method.coordinates == "class" else start)
    return State(
        jnp.zeros((), jnp.int32),
        zeros,
        optimizer,
        jnp.zeros((), jnp.int32),
        buffers,
        jnp.zeros((), dtype),
        jnp.array(True),
    )


def update(method: Method, problem: Problem, state: State, loss, gradient: Heads, length):
    """The move of each head, and the optimizer's next state."""
    eta = problem.step_size
    if method.transform is None:
        scale = {
            "gd": lambda: eta,
            "normalized": lambda: jnp.where(length > 0, eta / length, 0.0),
            "polyak": lambda: jnp.where(length > 0, jnp.minimum(eta, loss / length / length), 0.0),
        }[method.rule]()
        return jax.tree.map(lambda g: -scale * g, gradient), state.optimizer
    point = jax.tree.map(jnp.add, problem.start, state.displacement)
    if method.coordinates == "class":
        root = jnp.sqrt(problem.counts)
        moves, optimizer = method.transform.update(
            _by_class(gradient, root),
            state.optimizer,
            _by_class(point, root),
            value=loss,
            grad=_by_class(gradient, root),
        )
        return _by_class(moves, 1 / root), optimizer
    moves, optimizer = method.transform.update(gradient, state.optimizer, point, value=loss, grad=gradient)
    if method.rule == "adam":
        moves = jax.tree.map(lambda u: -eta * u, moves)
    return moves, optimizer


def record_row(
    method: Method, problem: Problem, state: State, point: Heads, loss, scores, length, mass=None
) -> dict[str, jax.Array]:
    """The buffers with a row for the current point."""
    labels = problem.batch.labels.reshape(-1)[: scores.shape[0]]
    margins = jnp.where(problem.sample_weight > 0, labels * scores, jnp.inf)
    row = {
        "train_loss": loss,
        "gradient_norm": length,
        "distance": norm(state.displacement, problem.counts),
        "readout_norm": largest_readout(point.readout, problem.batch),
        "margin": jnp.where(jnp.min(margins) == 0, 0.0, jnp.min(margins)),
    }
    if mass is not None:
        row["attention_mass"] = mass
    elif problem.relevant is not None:
        row["attention_mass"] = attention_mass(
            point.key_query, problem.batch, problem.relevant, problem.sample_weight, precision=method.precision
        )
    if problem.test_batch is not None and problem.test_weight is not None:
        n = problem.test_weight.shape[0]
        test = batch_scores(point, problem.weights, problem.test_batch, n, precision=method.precision)
        labels = problem.test_batch.labels.reshape(-1)[:n]
        row["test_loss"] = jnp.sum(problem.test_weight * method.loss.value(labels * test))
    return {
        name: state.records[name].at[state.written].set(row[name].astype(state.records[name].dtype)) for name in row
    }


def step(method: Method, problem: Problem, state: State) -> State:
    """Evaluate the current point, record it if it is due, and move unless this was the last step."""
    point = jax.tree.map(jnp.add, problem.start, state.displacement)
    next_record = jnp.minimum(state.written, len(problem.record_steps) - 1)
    due = (state.written < len(problem.record_steps)) & (jnp.asarray(problem.record_steps)[next_record] == state.step)
    loss, scores, gradient, mass = evaluate(
        point, problem.weights, problem.batch, problem.sample_weight, problem.relevant, due,
        loss=method.loss, precision=method.precision,
    )  # fmt: skip
    length = norm(gradient, problem.counts)
    finite = jnp.isfinite(loss) & jnp.isfinite(length)
    due = due & finite
    records = jax.lax.cond(
        due, lambda: record_row(method, problem, state, point, loss, scores, length, mass), lambda: state.records
    )
    moves, optimizer = update(method, problem, state, loss, gradient, length)
    live = finite & (state.step < problem.num_steps)
    keep = partial(jax.tree.map, lambda new, old: jnp.where(live, new, old))
    return State(
        state.step + finite.astype(jnp.int32),
        keep(jax.tree.map(jnp.add, state.displacement, moves), state.displacement),
        keep(optimizer, state.optimizer),
        state.written + due.astype(jnp.int32),
        records,
        loss,
        finite,
    )


@partial(jax.jit, static_argnums=0)
def advance(method: Method, problem: Problem, state: State, until: jax.Array) -> State:
    """Steps up to (not including) `until`, or to the first evaluation that is not finite."""
    return jax.lax.while_loop(lambda s: (s.step < until) & s.finite, lambda s: step(method, problem, s), state)
