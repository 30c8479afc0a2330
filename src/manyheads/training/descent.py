"""Descent on the train loss: `train(start, data, rule=..., num_steps=...)` -> `Trajectory`."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from manyheads import _check
from manyheads._check import RUNS_CALLERS_CODE, check, none, shown, whole
from manyheads._types import AnyArray
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.files import checked_path, failing_warns, why_not
from manyheads.data.labels import check_same_labels
from manyheads.data.mapped import Mapped
from manyheads.model.autodiff import as_model, is_model
from manyheads.model.loss import Loss, Weighted, loss_and_weights
from manyheads.model.protocol import Model, norm
from manyheads.training.batches import MiniBatches, checked_on
from manyheads.training.devices import (
    as_process_0,
    check_same,
    choose_devices,
    make_mesh,
    on_mesh,
    paying_devices,
    sharded_objective,
)
from manyheads.training.loop import (
    Observer,
    Problem,
    Run,
    State,
    View,
    advance,
    at_steps,
    begin,
    displacement,
    rounding_of_step,
    stretches,
)
from manyheads.training.problem import (
    check_descent,
    check_step_size,
    choose_dtype,
    choose_steps,
    chunk_of,
    fits,
    listed_steps,
    make_problem,
)
from manyheads.training.progress import Bar
from manyheads.training.resume import check_same_run, restore, sources_of
from manyheads.training.rules import Optax, Rule
from manyheads.training.stop import Watch, is_stop
from manyheads.training.trajectory import RECORDS, Trajectory, Unsaved, is_trajectory

CHECKPOINT_SECONDS = 30.0
TF32 = "tf32"
# before the names of `observe=`
OBSERVED = "observed "
# of the last step: a larger share is kept in the settings of the run
ROUNDING_SAID = 0.01


class Data(NamedTuple):
    """The training data as a function of `observe` sees them, in the precision of the run."""

    tokens: AnyArray  # (n, T, d)
    labels: AnyArray  # (n,)
    mask: AnyArray | None  # (n, T)


@check(
    RUNS_CALLERS_CODE,
    start=is_model,
    data=is_dataset,
    num_steps=whole(0),
    test=is_dataset | none,
    dtype=_check.dtype | _check.one_of(TF32) | none,
    stop=is_stop | none,
    checkpoint=_check.path | none,
    resume=is_trajectory | _check.path | none,
)
def train(
    start: Any,
    data: Dataset,
    *,
    rule: Rule | optax.GradientTransformation,
    num_steps: int,
    loss: str | Loss | Weighted = "logistic",
    test: Dataset | None = None,
    record: str | int | Sequence[int] = "log",
    snapshots: str | Sequence[int] = (),
    observe: Mapping[str, Callable[[Any, Data], Any]] | None = None,
    dtype: str | None = None,
    devices: str | int | Sequence[Any] | None = None,
    stop: Any = None,
    checkpoint: str | Path | None = None,
    resume: Trajectory | str | Path | None = None,
) -> Trajectory:
    r"""Descent on the train loss from `start`.

    Ctrl-C ends the run with status "interrupted" and keeps what was done; `resume=` continues it as
    if it had never stopped, bit for bit. `with mh.progress():` shows a bar.

    Args:
        start: a MultiHead, or any other model (`model.protocol`), an Equinox module for example.
        data: the training sequences.
        rule: `GD(step_size)` (the paper's), `Normalized(step_size)` (times the unit gradient),
            `Polyak(step_size)`
            (loss over squared gradient norm, at most step_size), `Adam(step_size)`, or any optax
                transform, which brings
            its own step size. The first three treat the H-head model as one vector; Adam acts on
                one head of each class,
            as it would on all its members. For a model with multiplicities an optax transform must
                say which of the two
            is right for it by `Optax(transform, coordinates="class")` or `"head"`.
                `MiniBatches(rule, batch_size)` makes
            any of them act on a few sequences at a time.
        num_steps: where the run ends.
        loss: "logistic", "hyperbolic", a `Loss`, or `Weighted(weights, loss)` for other weights of
            the sequences than
            1/n.
        test: sequences on which the loss is recorded too.
        record: the recorded steps: "log" (about 60, evenly spaced in the logarithm), "all", every
            m-th, or a list; step
            0 and the last are always there.
        snapshots: steps at which the parameters are kept, or "records".
        observe: `{"name": fn}` also records `fn(parameters, data)`, a JAX function of the
            parameters and of the
            `tokens`, `labels` and `mask` of the training data, in `trajectory.observed`.
        dtype: "float32", "float64", or "tf32" for float32 whose products a GPU may round; None:
            float32, from 10^6
            heads on float64.
        devices: "all", a number, or a list of JAX's devices: the sequences are split over them,
            those of all processes
            after `jax.distributed.initialize()`. Each process then makes the same call and gets the
                same trajectory,
            and process 0 writes the checkpoint. Another number of devices gives the same results up
                to rounding. None:
            one device, or after `mh.use_cores()` as many cores as make the run faster.
        stop: `stop(step, model)` is asked at steps 0, 1, 2, 3, 5, 8, ..., which are then recorded;
            where it returns
            something true, or a sentence why, the run ends with status "stopped". `Certified()`
                ends it where half the
            loss is proved to come (`mh.forecast`).
        checkpoint: a file in which the trajectory is saved every half a minute and at the end, with
            a warning where
            that fails, on a full disk for example.
        resume: a trajectory, or its file, that this call continues.
    """
    model = as_model(start)
    rule = checked_on(rule, model, data.num_examples)
    loss, weights = loss_and_weights(loss, data.num_examples)
    kind = choose_dtype("float32" if dtype == TF32 else dtype, model)
    check_step_size(rule, kind)
    loaded = resume is None or isinstance(resume, Trajectory)
    before = resume if loaded else Trajectory.load(resume, like=model)
    chosen = _devices(devices, data, before, rule, observe)
    settings = run_settings(rule, loss, num_steps, kind, chosen, data)
    settings |= {"tf32": dtype == TF32, "weighted": weights is not None}
    watch = Watch(stop, model, data, settings)
    if test is not None:
        check_same_labels(data, test)
    sources = sources_of(data, weights, test)
    if before is not None:
        check_same_run(before, model, settings, sources)
        watch.remember(before.steps, before.observed)
    steps = _steps(record, snapshots, num_steps, watch.steps, before)
    sizes = [np.size(leaf) for leaf in jax.tree.leaves(model.parameters)]
    kept = 20.0 * len(steps.records) + float(sum(sizes)) * len(steps.snapshots)
    check_descent(model, data, num_steps, records=kept)
    if checkpoint is not None:
        checked_path(checkpoint, "checkpoint")

    mesh = make_mesh(chosen)
    several = len({device.process_index for device in chosen}) > 1
    if several:
        done = 0 if before is None else before.last_step
        listed = [steps.records.tolist(), steps.snapshots.tolist()]
        check_same(model.parameters, settings, sources, listed, done)
        # all processes compute the same; one of them writes
        checkpoint = checkpoint if jax.process_index() == 0 else None
    where = next(device for device in chosen if device.process_index == jax.process_index())
    with jax.enable_x64(kind == np.float64), jax.default_device(where):
        problem = make_problem(
            model,
            data,
            rule,
            loss,
            precision=jax.lax.Precision.DEFAULT if dtype == TF32 else jax.lax.Precision.HIGHEST,
            sample_weight=weights,
            dtype=kind,
            platform=where.platform,
            mesh=mesh,
        )
        settings["chunk"] = chunk_of(problem)
        observers = run_observers(model, test, steps, kind, where.platform, mesh)
        for name, function in _checked_functions(observe).items():
            seen = Data(data.tokens.astype(kind), data.labels.astype(kind), data.mask)
            observers[OBSERVED + name] = Observer(_observed(function), steps.records, (seen,))
        observers = at_steps(observers, num_steps)
        state = _first_state(problem, observers)
        if before is not None:
            state = restore(state, before, observers)
        # the state as the loop leaves it: all stretches run the same program
        parts = (problem, observers, state)
        placed = jax.device_put(parts, where) if mesh is None else on_mesh(parts, mesh)
        problem, observers, state = placed
        origins = {"data": data.origin} | ({} if test is None else {"test": test.origin})
        first = int(state.step)
        finish = Finish(model, observers, settings, sources, origins, first, watch.records)
        agreed = as_process_0 if several else int
        further = stretches(problem, observers, state, num_steps, watch.steps, agreed)
        status, saved = "finished", time.monotonic()
        with Bar("training", num_steps, int(state.step)) as bar:
            try:
                for moved in itertools.chain([state], further):
                    state, step = moved, int(moved.step)
                    if step in watch.steps and state.run.finite:
                        if reason := watch.ask(step, finish.model_at(state)):
                            settings["reason"], status = reason, "stopped"
                            # evaluated once more, which records this step
                            state = advance(problem, observers, state, state.step + 1, state.step)
                            break
                    bar.show(step, f"loss {float(state.run.loss):.4g}  {watch.note}")
                    if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                        with failing_warns(checkpoint):
                            finish(state, "interrupted").save(checkpoint)
                        saved = time.monotonic()
            except KeyboardInterrupt:
                # the others would wait for this one
                if several:
                    raise
                status = "interrupted"
        reached = status == "finished" and state.run.finite and int(state.step) > num_steps
        if reached and rule.magnifies and mesh is None and num_steps > 0:
            share = rounding_of_step(problem, observers, state)
            settings |= {"rounding": share} if share > ROUNDING_SAID else {}
        done = finish(state, status)
    if checkpoint is not None:
        try:
            done.save(checkpoint)
        except (OSError, ValueError) as error:
            remedy = "the run is not lost: save what `train` returns elsewhere"
            warnings.warn(Unsaved(f"{why_not(checkpoint, error)}; {remedy}", done), stacklevel=2)
    return done


def _devices(devices: Any, data: Dataset, before: Trajectory | None, rule: Rule, observe) -> list:
    """The devices of a run; where nothing is said, those that pay off."""
    whole_data = isinstance(rule, MiniBatches)
    if whole_data and isinstance(data.tokens, Mapped):
        raise ValueError(
            f"mini-batches need the tokens in memory, and those of {data.name!r} stream from their "
            "file; load the "
            "data with Dataset.load, or train on all of them."
        )
    if devices is None and observe is None and not whole_data:
        known = None if before is None else before.settings.get("devices", 1)
        devices = paying_devices(data, known)
    chosen = choose_devices(devices)
    if whole_data and len(chosen) > 1:
        raise ValueError(f"mini-batches are for one device; leave devices={shown(devices)} out.")
    return chosen


class Steps(NamedTuple):
    """The steps at which a run keeps something."""

    records: np.ndarray
    snapshots: np.ndarray


def _steps(record, snapshots, num_steps, asked, before: Trajectory | None) -> Steps:
    """Those of this call; of a run that is resumed also those that it has."""
    records = np.union1d(choose_steps(record, num_steps, "record"), asked)
    at_records = isinstance(snapshots, str) and snapshots == "records"
    wanted = records if at_records else listed_steps(snapshots, num_steps)
    if before is None:
        return Steps(records, wanted)
    done = before.last_step
    late = np.setdiff1d(wanted[wanted < done], before.snapshot_steps)
    if len(late) and not at_records:
        raise ValueError(
            f"snapshots={late.tolist()} lie before step {done}, where the run resumes."
        )
    return Steps(
        np.union1d(before.steps, records[records >= done]),
        np.union1d(before.snapshot_steps, np.setdiff1d(wanted, late)),
    )


# the same function compiles once
@lru_cache(maxsize=32)
def _observed(function: Callable) -> Callable[[View, Data], jax.Array]:
    return lambda view, data: jnp.asarray(function(view.point, data))


def _checked_functions(observe) -> dict[str, Callable]:
    functions = {} if observe is None else observe
    named = isinstance(functions, Mapping) and all(isinstance(name, str) for name in functions)
    if not (named and all(map(callable, functions.values()))):
        raise ValueError(
            f"observe={shown(observe)} must map names to functions; pass observe={{'name': fn}}, "
            "fn(parameters, data)."
        )
    return dict(functions)


def run_settings(rule: Rule, loss: Loss, num_steps, kind, devices: list, data: Dataset) -> dict:
    """What a trajectory says about how it was made."""
    return {
        **rule.settings,
        "num_steps": num_steps,
        "loss": loss.name,
        "dtype": kind.name,
        "device": devices[0].platform,
        "devices": len(devices),
        "num_examples": data.num_examples,
        "data": data.name,
        "label_names": list(data.label_names),
        "tf32": False,
        "weighted": False,
    }


def run_observers(
    model: Model, test: Dataset | None, steps: Steps, kind, platform: str, mesh: Mesh | None = None
) -> dict[str, Observer]:
    """What every run keeps."""
    arguments: tuple = ()
    if test is not None:
        fits(kind, {"the test tokens": test.tokens})
        weight = np.full(test.num_examples, 1 / test.num_examples, kind)
        arguments = (sharded_objective(model, test, kind, None, mesh, platform), weight)
    return {
        "records": Observer(_records, steps.records, arguments, extras=True),
        "snapshots": Observer(displacement, steps.snapshots),
    }


def _records(view: View, test: Any = None, test_weight: Any = None) -> dict[str, jax.Array]:
    objective, weight = view.objective, view.problem.sample_weight
    margin = jnp.min(jnp.where(weight > 0, objective.labels * view.scores, jnp.inf))
    row = {
        "train_loss": view.loss,
        "gradient_norm": view.gradient_norm,
        "distance": norm(objective.copies, view.displacement),
        # no negative zero
        "margin": jnp.where(margin == 0, 0.0, margin),
        **view.extras,
        **view.measured,
    }
    if test is not None:
        losses = view.problem.method.loss.value(test.labels * test.scores(view.point))
        row["test_loss"] = jnp.sum(test_weight * losses)
    return jax.tree.map(lambda value: value.astype(view.loss.dtype), row)


@dataclass(frozen=True)
class Finish:
    """Makes the trajectory of a state."""

    model: Model
    observers: dict[str, Observer]
    settings: dict
    sources: dict = field(default_factory=dict)
    origins: dict = field(default_factory=dict)
    first: int = 0
    more: Callable = lambda steps: {}  # further records by name

    def model_at(self, state: State) -> Model:
        """The model that is evaluated next."""
        return self.model.displaced(jax.tree.map(np.asarray, state.run.displacement))

    def __call__(self, state: State, status: str) -> Trajectory:
        """What was kept before `step`; of a diverged run, up to its last finite evaluation."""
        run: Run = jax.tree.map(np.asarray, state.run)
        if run.finite:
            # the step that ends a stopped run is evaluated, and not left
            done = int(state.step) - (status == "stopped")
            last = min(done, self.settings["num_steps"])
        else:
            status, last = "diverged", max(int(run.evaluated) - 1, self.first)
        steps, rows = {}, {}
        for name, observer in self.observers.items():
            planned = np.asarray(observer.steps, np.int64)
            count = int(np.searchsorted(planned, run.evaluated))
            steps[name] = planned[:count]
            rows[name] = jax.tree.map(lambda kept, count=count: kept[:count], run.kept[name])
        observed = {
            name.removeprefix(OBSERVED): kept
            for name, kept in rows.items()
            if name.startswith(OBSERVED)
        }
        return Trajectory(
            start=self.model,
            steps=steps["records"],
            snapshot_steps=steps["snapshots"],
            snapshots=rows["snapshots"],
            displacement=run.displacement,
            last_step=last,
            status=status,
            settings=self.settings,
            sources=self.sources,
            origins=self.origins,
            optimizer_state=tuple(jax.tree.leaves(run.optimizer)),
            observed=observed | self.more(steps["records"]),
            **{name: rows["records"].get(name) for name in RECORDS},
        )


def _first_state(problem: Problem, observers: dict[str, Observer]) -> State:
    """The state at step 0; an optax transform that cannot be used here is refused before anything runs."""
    if not isinstance(getattr(problem.rule, "rule", problem.rule), Optax):
        return begin(problem, observers)
    try:
        state = begin(problem, observers)
        jax.eval_shape(advance, problem, observers, state, np.int32(1), np.int32(1))
        if any(
            jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended)
            for leaf in jax.tree.leaves(state.run.optimizer)
        ):
            raise ValueError(
                "its state holds a typed random key, which cannot be saved; pass "
                "jax.random.PRNGKey(0)"
            )
    except Exception as error:  # whatever the transform raises
        text = " ".join(str(error).split())[:160]
        raise ValueError(
            f"this optax transform cannot be used by train ({type(error).__name__}: {text}); it "
            "gets the gradient, the "
            "parameters and the loss of each step, and no function to evaluate."
        ) from None
    return state
