"""The only loop of descent: evaluate, observe, move.

A `Problem` is an objective, a start and a rule. An `Observer` says what is kept at which steps.
`descend` runs both in compiled stretches that leave room for Ctrl-C, a bar and checkpoints in
between; `whole_run` is the same loop as one function that can be traced, so many runs together are
`jax.vmap` of it. Steps and the need for a record are common to all runs of a vmap, so that a step
without a record pays for none.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from manyheads._types import AnyArray
from manyheads.model.loss import Loss
from manyheads.model.protocol import Objective, norm
from manyheads.training.batches import MiniBatches
from manyheads.training.rules import Rule

# of a compiled stretch, between two looks at the keyboard
STRETCH_SECONDS = 0.2
# that a compiled function keeps; one holds 5 to 10 MB
MOST_PROGRAMS = 16
# the name of the axis over runs under vmap
RUNS = "runs"


class Method(NamedTuple):
    """What is compiled in beside the rule of descent: the loss, the precision of products."""

    loss: Loss
    precision: Any = jax.lax.Precision.HIGHEST


class Problem(eqx.Module):
    """Everything the loop reads and never writes."""

    start: Any
    objective: Any
    sample_weight: AnyArray  # (n,)
    rule: Rule
    method: Method = eqx.field(static=True)

    @property
    def step_size(self) -> Any:
        """That of the rule; None where an optax transform has its own."""
        return self.rule.step_size


class View(NamedTuple):
    """What an observer sees at a step. `row` counts what it has kept so far."""

    step: jax.Array
    row: jax.Array
    point: Any
    displacement: Any
    loss: jax.Array
    scores: jax.Array
    gradient: Any
    extras: dict[str, jax.Array]
    problem: Problem

    @property
    def objective(self) -> Objective:
        return self.problem.objective

    @property
    def gradient_norm(self) -> jax.Array:
        """Of the full model; computed where an observer or a rule asks for it."""
        return norm(self.objective.copies, self.gradient)

    @property
    def measured(self) -> dict[str, jax.Array]:
        """Further records of the point, where the objective has some."""
        return getattr(self.objective, "measured", lambda _: {})(self.point)

    @property
    def readout_norm(self) -> jax.Array:
        """NaN where there is no readout."""
        return self.measured.get("readout_norm", jnp.full_like(self.loss, jnp.nan))

    def at(self, displacement: Any, loss: Loss | None = None) -> tuple[jax.Array, jax.Array, Any]:
        """Loss, scores and gradient at another displacement from the start, or for another loss."""
        problem, method = self.problem, self.problem.method
        point = jax.tree.map(jnp.add, problem.start, displacement)
        how = {"loss": loss or method.loss, "precision": method.precision}
        return problem.objective.loss_and_gradient(point, problem.sample_weight, **how)


def displacement(view: View) -> Any:
    """The look of an observer that keeps the path."""
    return view.displacement


class Observer(eqx.Module):
    """`look(view, *arguments)`, any pytree of arrays, is kept at each of `steps` (None: at all).

    `look` is compiled in, so keep its identity from call to call and pass arrays as `arguments`.
    `extras` asks for those of the objective (the attention mass, say) in `view.extras`.
    """

    look: Callable[..., Any] = eqx.field(static=True)
    steps: Any = None  # increasing
    arguments: tuple = ()
    extras: bool = eqx.field(static=True, default=False)


class Run(NamedTuple):
    """The state of one run: `displacement` is evaluated next. One that diverged stands at its last finite point."""

    displacement: Any
    optimizer: Any
    # displacement and optimizer at the last finite evaluation
    before: tuple[Any, Any]
    # steps with a finite evaluation; the next one is `step` unless the run diverged
    evaluated: jax.Array
    kept: dict[str, Any]
    loss: jax.Array  # of the last evaluation
    finite: jax.Array


class State(NamedTuple):
    """Where descent is. Under vmap `step` and `written` have no axis over runs."""

    step: Any
    written: dict[str, Any]  # rows kept so far
    run: Run


def descend(
    problem: Problem, observers: Mapping[str, Observer], steps: int
) -> tuple[Run, dict[str, Any]]:
    """Descent to step `steps`, and what each observer kept, stacked over its steps, in NumPy.

    The precision is that of `problem.sample_weight`. Rows after a divergence are NaN.
    """
    with jax.enable_x64(np.dtype(problem.sample_weight.dtype) == np.float64):
        watching = at_steps(observers, steps)
        states = stretches(problem, watching, begin(problem, watching), steps)
        run = jax.tree.map(np.asarray, deque(states, maxlen=1)[0].run)
    return run, run.kept


def whole_run(
    problem: Problem, observers: Mapping[str, Observer], steps: AnyArray, axis: str | None = None
) -> Run:
    """`descend` as one function to be traced, by vmap with this axis name for example; observers name their steps."""
    return _loop(problem, observers, begin(problem, observers), steps + 1, steps, axis).run


def at_steps(observers: Mapping[str, Observer], last: int) -> dict[str, Observer]:
    """Observers of all steps told which these are."""

    def told(observer):
        steps = range(last + 1) if observer.steps is None else observer.steps
        return dataclasses.replace(observer, steps=np.asarray(steps, np.int32))

    return {name: told(observer) for name, observer in observers.items()}


def stretches(
    problem: Problem,
    observers: dict[str, Observer],
    state: State,
    last: int,
    marks: Sequence[int] | np.ndarray = (),
    agreed: Callable[[int], int] = int,
) -> Iterator[State]:
    """The state after each compiled stretch, until step `last` is done or the run diverged; none passes a mark.

    How far a stretch goes depends on the clock: `agreed` makes that the same in all processes of a
    run.
    """
    stretch, first = 1, int(state.step)
    while (now := int(state.step)) <= last and state.run.finite:
        ends = [now + stretch, last + 1, *(int(mark) for mark in marks if mark > now)]
        stop = agreed(min(ends))
        began = time.monotonic()
        state = advance(problem, observers, state, np.int32(stop), np.int32(last))
        state = jax.block_until_ready(state)
        took = time.monotonic() - began
        # the first stretch compiles
        if now > first:
            wanted = (stop - now) * STRETCH_SECONDS / max(took, 1e-4)
            stretch = int(np.clip(wanted, 1, min(2 * stretch, 10**6)))
        else:
            stretch = 8
        yield state


def begin(problem: Problem, observers: Mapping[str, Observer]) -> State:
    """The state at step 0."""
    dtype = jnp.result_type(problem.sample_weight)
    start = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), problem.start)
    zeros = jax.tree.map(jnp.zeros_like, start)
    copies = jnp.asarray(problem.objective.copies, dtype)
    if isinstance(problem.rule, MiniBatches):
        memory = problem.rule.begin(start, copies, len(problem.sample_weight))
    else:
        memory = problem.rule.begin(start, copies)
    rows = _rows.eval_shape(problem, observers)
    kept = {
        name: jax.tree.map(partial(_blank, len(o.steps)), rows[name])
        for name, o in observers.items()
    }
    none = jnp.zeros((), jnp.int32)
    run = Run(zeros, memory, (zeros, memory), none, kept, jnp.zeros((), dtype), jnp.array(True))
    return State(none, dict.fromkeys(observers, none), run)


def _blank(count: int, row: jax.ShapeDtypeStruct) -> jax.Array:
    return jnp.full(
        (count, *row.shape), jnp.nan if jnp.issubdtype(row.dtype, jnp.inexact) else 0, row.dtype
    )


@jax.jit
def _rows(problem: Problem, observers: dict[str, Observer]) -> dict[str, Any]:
    """One row of every observer, for its shape."""
    zero = jax.tree.map(jnp.zeros_like, problem.start)
    step = jnp.zeros((), jnp.int32)
    view = _view(problem, step, zero, _evaluated(problem, zero, True, observers))
    return {name: o.look(view, *o.arguments) for name, o in observers.items()}


def _evaluated(problem: Problem, displacement, due, observers: Mapping[str, Observer]) -> tuple:
    """Loss, scores, gradient, and the extras of the objective where an observer that wants them is `due`."""
    objective, method = problem.objective, problem.method
    point = jax.tree.map(jnp.add, problem.start, displacement)
    how = {"loss": method.loss, "precision": method.precision}
    if any(o.extras for o in observers.values()) and hasattr(objective, "evaluate"):
        return objective.evaluate(point, problem.sample_weight, due, **how)
    return *objective.loss_and_gradient(point, problem.sample_weight, **how), {}


def _view(problem: Problem, step, displacement, found: tuple) -> View:
    point = jax.tree.map(jnp.add, problem.start, displacement)
    return View(step, jnp.zeros_like(step), point, displacement, *found, problem)


def _views(problem: Problem, step, run: Run, due, observers: Mapping[str, Observer]):
    """What the observers see and what the rule sees, and the rule's memory.

    They differ for mini-batches: all data are evaluated only at steps at which something is kept.
    """
    wanted = [due[name] for name, o in observers.items() if o.extras]
    extras = jnp.any(jnp.array(wanted or [False]))

    def whole():
        return _evaluated(problem, run.displacement, extras, observers)

    if not isinstance(problem.rule, MiniBatches):
        view = _view(problem, step, run.displacement, whole())
        return view, view, run.optimizer

    def nothing():
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(whole))

    some_due = jnp.any(jnp.array([*due.values(), False]))
    view = _view(problem, step, run.displacement, jax.lax.cond(some_due, whole, nothing))
    part, order = problem.rule.batch(problem, step, run.optimizer)
    found = _evaluated(part, run.displacement, False, {})
    return view, _view(part, step, run.displacement, found), (order, run.optimizer[1])


def forgetful(program: Any) -> Callable:
    """A compiled function that forgets its programs when it has seen `MOST_PROGRAMS` shapes: JAX keeps thousands."""
    seen: set[Any] = set()

    @wraps(program)
    def call(*arguments):
        leaves, tree = jax.tree.flatten(arguments)
        shapes = tree, *((np.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
        if shapes not in seen and len(seen) == MOST_PROGRAMS:
            program.clear_cache()
            seen.clear()
        seen.add(shapes)
        return program(*arguments)

    return call


@forgetful
@jax.jit
def advance(
    problem: Problem, observers: dict[str, Observer], state: State, until: AnyArray, last: AnyArray
) -> State:
    """Steps up to (not including) `until`; step `last` is evaluated and not left."""
    state = _loop(problem, observers, state, until, last, None)
    return getattr(problem.objective, "replicated", lambda whole: whole)(state)


def rounding_of_step(problem: Problem, observers: dict[str, Observer], state: State) -> float:
    """Which share of the last step is rounding: 1 where the step is zero or nothing of it is known.

    The step is made twice, the second time from parameters that are moved by one rounding each, by
    the program of the run. `state` is one that has reached its last step.
    """
    last = np.int32(int(state.step) - 1)
    here, eps = state.run.displacement, float(jnp.finfo(state.run.loss.dtype).eps)
    signs = np.random.default_rng(0)

    def moved(start):
        again = state._replace(step=jnp.asarray(last))
        there = advance(
            dataclasses.replace(problem, start=start), observers, again, last + 1, last + 1
        )
        return jax.tree.leaves(
            jax.tree.map(lambda a, b: np.asarray(a - b), there.run.displacement, here)
        )

    def nudged(leaf, away):
        return leaf + eps * signs.choice([-1, 1], leaf.shape).astype(leaf.dtype) * abs(leaf + away)

    move = moved(problem.start)
    other = moved(jax.tree.map(nudged, problem.start, here))
    length = sum(np.sum(leaf**2) for leaf in move) ** 0.5
    change = sum(np.sum((a - b) ** 2) for a, b in zip(move, other, strict=True)) ** 0.5
    return float(min(change / length, 1.0)) if length > 0 else 1.0


def _loop(problem, observers, state: State, until, last, axis: str | None) -> State:
    body = partial(
        _step, problem, {name: o for name, o in observers.items() if len(o.steps)}, last, axis
    )
    return jax.lax.while_loop(lambda s: s.step < until, body, state)


def _step(
    problem: Problem, observers: dict[str, Observer], last, axis: str | None, state: State
) -> State:
    """Evaluate, keep what is due, and move unless this was the last step or the run diverged."""
    step, written, run = state
    at = {name: jnp.minimum(written[name], len(o.steps) - 1) for name, o in observers.items()}
    due = {
        name: (written[name] < len(o.steps)) & (jnp.asarray(o.steps)[at[name]] == step)
        for name, o in observers.items()
    }
    view, moving, memory = _views(problem, step, run, due, observers)
    numbers = [view.loss, moving.loss, *jax.tree.leaves((view.gradient, moving.gradient))]
    finite = run.finite & jnp.all(jnp.stack([jnp.all(jnp.isfinite(value)) for value in numbers]))
    kept = dict(run.kept)
    for name, observer in observers.items():
        keep = partial(_kept, observer, view._replace(row=at[name]), finite)
        kept[name] = jax.lax.cond(due[name], keep, lambda rows: rows, kept[name])
    here = (run.displacement, run.optimizer)
    moves, optimizer = problem.rule.move(moving.problem, moving, memory, axis)
    new = (jax.tree.map(jnp.add, run.displacement, moves), optimizer)
    good = _choose(finite, here, run.before)
    displacement, optimizer = _choose(finite & (step < last), new, good)
    return State(
        step + 1,
        {name: written[name] + due[name] if name in due else written[name] for name in written},
        Run(displacement, optimizer, good, run.evaluated + finite, kept, moving.loss, finite),
    )


def _kept(observer: Observer, view: View, finite, rows):
    new = observer.look(view, *observer.arguments)
    return jax.tree.map(
        lambda r, row: r.at[view.row].set(jnp.where(finite, row, r[view.row])), rows, new
    )


def _choose(flag, new, old):
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), new, old)
