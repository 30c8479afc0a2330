"""Full-batch descent: `train(model, dataset, ...)` -> `Trajectory`."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from manyheads._types import AnyArray
from manyheads.data.dataset import Dataset
from manyheads.data.door import FROM_ZERO, guarded, shown
from manyheads.data.files import checked_path, failing_warns, why_not
from manyheads.data.labels import check_same_labels
from manyheads.data.origin import Origin
from manyheads.model.gradient import checked_dataset
from manyheads.model.loss import Loss, get_loss
from manyheads.model.protocol import Model, checked_model, norm
from manyheads.model.sharded import on_mesh, sharded_objective
from manyheads.training.devices import choose_device, choose_devices, make_mesh, paying_devices
from manyheads.training.hosts import HostLost, Hosts
from manyheads.training.keyboard import CtrlC
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
    stretches,
)
from manyheads.training.problem import (
    check_descent,
    check_step_size,
    checked_steps,
    checked_weight,
    choose_dtype,
    choose_rule,
    choose_steps,
    chunk_of,
    fits,
    listed_steps,
    make_problem,
    precision_of,
)
from manyheads.training.progress import Bar
from manyheads.training.resume import check_same_run, restore, sources_of
from manyheads.training.rules import Optax, Rule
from manyheads.training.trajectory import RECORDS, Trajectory, Unsaved
from manyheads.training.until import Questions

CHECKPOINT_SECONDS = 30.0


class Data(NamedTuple):
    """The training data as a function of `observe` sees them, in the precision of the run."""

    tokens: AnyArray  # (n, T, d)
    labels: AnyArray  # (n,)
    mask: AnyArray | None  # (n, T)


@guarded(num_steps=FROM_ZERO, record=None, snapshots=None, device=None, devices=None)
def train(
    model: Any,
    dataset: Dataset,
    *,
    rule: Rule | optax.GradientTransformation | None = None,
    step_size: float | None = None,
    num_steps: int,
    optimizer: str | optax.GradientTransformation = "gd",
    coordinates: str | None = None,
    loss: str | Loss = "logistic",
    test: Dataset | None = None,
    record: str | int | Sequence[int] = "log",
    snapshots: str | Sequence[int] = (),
    observe: Mapping[str, Callable[[Any, Data], Any]] | None = None,
    sample_weight: np.ndarray | None = None,
    dtype: str | None = None,
    chunk: int | None = None,
    device: str | None = None,
    devices: str | int | None = None,
    tf32: bool = False,
    progress: bool = False,
    forecast: bool = False,
    until: str | Callable[[int, Any], Any] | None = None,
    seed: int | None = None,
    checkpoint: str | Path | None = None,
    resume: Trajectory | str | Path | None = None,
) -> Trajectory:
    r"""Full-batch descent on the train loss from `model`: a MultiHead, or any other model (`model.protocol`).

    `rule` is `GD(step_size)` (the paper's), `Normalized(step_size)` (step_size times the unit gradient),
    `Polyak(step_size)` (loss over squared gradient norm, at most step_size), `Adam(step_size)`, or any optax transform,
    which brings its own step size. The first three treat the H-head model as one vector; Adam acts on one head of each
    class, as it would on all its members. For a model with multiplicities an optax transform must say which of the two
    is right for it by `Optax(transform, coordinates="class")` or `"head"`. Normalized and Polyak descent go on exactly
    where the loss underflows. `optimizer`, `step_size` and `coordinates` name the same rules.

    `record` chooses the recorded steps: "log" (about 60, evenly spaced in the logarithm), "all", every m-th, or a list;
    step 0 and the last are always there. `observe={"name": fn}` also records `fn(parameters, data)`, a JAX function of
    the parameters and of the `tokens`, `labels` and `mask` of the training data; find it in `trajectory.observed`.
    `snapshots` keeps the parameters at these steps, or at the recorded ones ("records"). `dtype` is "float32" or
    "float64" (None: float32, from 10^6 heads on float64). `sample_weight` replaces the weights 1/n. `chunk` is the
    number of sequences evaluated together. `tf32` lets a GPU round products.

    `devices` ("all" or a number) splits the sequences over that many devices, of all processes where
    `jax.distributed.initialize()` was called: each process makes the same call and gets the same trajectory, and
    process 0 writes the checkpoint. Another number of devices gives the same results up to rounding. A function of
    `observe` needs all data on every device. If not given, one device is used, or after `mh.use_cores()` as many cores
    as make the run faster.

    `until(step, model)` is asked at steps 0, 1, 2, 3, 5, 8, ..., which are then recorded; where it returns something
    true, or a sentence why, the run ends with status "stopped". `until="certified"` ends it where half the loss is
    proved to come (`mh.forecast`). `forecast=True` shows in the progress line what is proved, and records at these
    steps `observed["indicator"]` and `observed["steps_to_half"]`.

    Ctrl-C ends the run with status "interrupted" and keeps what was done; `resume=` continues it, from a trajectory or
    a file, as if it had never stopped. `checkpoint=` saves the trajectory there every half a minute and at the end, and
    warns where that fails, on a full disk for example. `seed`, that of the start and the data, and the names of the
    labels are kept in `trajectory.settings`.
    """
    model = checked_model(model)
    checked_dataset(dataset)
    loss = get_loss(loss)
    rule = choose_rule(model, rule, optimizer, step_size, coordinates)
    num_steps = checked_steps(num_steps)
    kind = choose_dtype(dtype, model)
    check_step_size(rule, kind)
    before = (
        resume
        if resume is None or isinstance(resume, Trajectory)
        else Trajectory.load(resume, like=model)
    )
    where = choose_device(device)
    if devices is None and device in (None, "cpu") and observe is None:
        devices = paying_devices(
            dataset, None if before is None else before.settings.get("devices", 1)
        )
    chosen = choose_devices(devices, device)
    mesh = make_mesh(chosen)
    hosts = Hosts(mesh)
    record_steps = choose_steps(record, num_steps, "record")
    settings = run_settings(rule, loss, num_steps, kind, tf32, where, dataset, len(chosen))
    settings |= {} if seed is None else {"seed": seed}
    questions = Questions(
        until, forecast, model, dataset, settings | {"weighted": sample_weight is not None}
    )
    record_steps = np.union1d(record_steps, questions.steps)
    at_records = isinstance(snapshots, str) and snapshots == "records"
    wanted = record_steps if at_records else listed_steps(snapshots, num_steps)
    entries = sum(np.size(leaf) for leaf in jax.tree.leaves(model.parameters))
    check_descent(
        model, dataset, num_steps, records=20.0 * len(record_steps) + float(entries) * len(wanted)
    )
    if sample_weight is not None:
        sample_weight = checked_weight(sample_weight, dataset.num_examples)
    if test is not None:
        check_same_labels(dataset, checked_dataset(test, "test"))
    sources = sources_of(dataset, sample_weight, test)
    if before is not None:
        check_same_run(before, model, settings, sources)
        record_steps = np.union1d(before.steps, record_steps[record_steps >= before.last_step])
        late = np.setdiff1d(wanted[wanted < before.last_step], before.snapshot_steps)
        if len(late) and not at_records:
            raise ValueError(
                f"snapshots={late.tolist()} lie before step {before.last_step}, where the run resumes."
            )
        wanted = np.union1d(before.snapshot_steps, np.setdiff1d(wanted, late))
        questions.remember(before.steps, before.observed)
    done_before = 0 if before is None else before.last_step
    hosts.check_same(
        model.parameters, settings, sources, record_steps.tolist(), wanted.tolist(), done_before
    )
    if not hosts.first:
        checkpoint, progress = None, False
    if checkpoint is not None:
        checked_path(checkpoint, "checkpoint")

    with CtrlC() as ctrl_c, jax.enable_x64(kind == np.float64), jax.default_device(where):
        problem = make_problem(
            model,
            dataset,
            rule,
            loss,
            precision=precision_of(tf32),
            sample_weight=sample_weight,
            dtype=kind,
            chunk=chunk,
            platform=where.platform,
            mesh=mesh,
        )
        settings["chunk"] = chunk_of(problem)
        observers = run_observers(model, test, record_steps, kind, where.platform, mesh)
        observers["snapshots"] = Observer(displacement, wanted)
        for name, function in _checked_functions(observe).items():
            seen = Data(dataset.tokens.astype(kind), dataset.labels.astype(kind), dataset.mask)
            observers[f"observed {name}"] = Observer(_observed(function), record_steps, (seen,))
        observers = at_steps(observers, num_steps)
        state = _first_state(problem, observers)
        if before is not None:
            state = restore(state, before, observers)
        # the state as the loop leaves it: all stretches run the same program
        parts = (problem, observers, state)
        problem, observers, state = (
            jax.device_put(parts, where) if mesh is None else on_mesh(parts, mesh)
        )
        finish = Finish(model, observers, settings, sources, int(state.step), questions.records)
        finish.origins = {"data": dataset.origin}
        finish.origins |= {} if test is None else {"test": test.origin}
        status, saved = "finished", time.monotonic()
        with Bar(num_steps, int(state.step), progress) as bar:
            try:
                further = stretches(problem, observers, state, num_steps, questions.steps, hosts)
                states = itertools.chain([state], further)
                for state in states:
                    if hosts.largest(ctrl_c.pressed):
                        raise KeyboardInterrupt
                    if int(state.step) in questions.steps and state.run.finite:
                        reason = hosts.first_text(
                            questions.ask(int(state.step), finish.model_at(state))
                        )
                        if reason:
                            settings["reason"], status = reason, "stopped"
                            state = hosts.run(
                                advance, problem, observers, state, state.step + 1, state.step
                            )  # records it
                            break
                    bar.show(int(state.step), float(state.run.loss), more=questions.note)
                    if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                        with failing_warns(checkpoint):
                            finish(state, "interrupted").save(checkpoint)
                        saved = time.monotonic()
            except KeyboardInterrupt:
                status = "interrupted"
            except HostLost as lost:
                raise HostLost(
                    f"{lost}; {_rescued(finish(state, 'interrupted'), checkpoint)}"
                ) from None
        done = finish(state, status)
        ctrl_c.answered = done.status == "interrupted"
    if checkpoint is not None:
        try:
            done.save(checkpoint)
        except (OSError, ValueError) as error:
            remedy = "the run is not lost: save what `train` returns elsewhere"
            warnings.warn(Unsaved(f"{why_not(checkpoint, error)}; {remedy}", done), stacklevel=2)
    return done


@lru_cache(maxsize=32)  # the same function compiles once
def _observed(function: Callable) -> Callable[[View, Data], jax.Array]:
    return lambda view, data: jnp.asarray(function(view.point, data))


def _checked_functions(observe) -> dict[str, Callable]:
    functions = {} if observe is None else observe
    if not isinstance(functions, Mapping) or not all(
        isinstance(k, str) and callable(f) for k, f in functions.items()
    ):
        raise ValueError(
            f"observe={shown(observe)} must map names to functions; pass observe={{'name': fn}}, fn(parameters, data)."
        )
    return dict(functions)


def run_settings(
    rule: Rule, loss: Loss, num_steps, kind, tf32, where, dataset: Dataset, devices: int = 1
) -> dict:
    """What a trajectory says about how it was made."""
    return {
        **rule.settings,
        "num_steps": num_steps,
        "loss": loss.name,
        "dtype": kind.name,
        "tf32": bool(tf32),
        "device": where.platform,
        "devices": devices,
        "num_examples": dataset.num_examples,
        "data": dataset.name,
        "label_names": list(dataset.label_names),
    }


def _rescued(run: Trajectory, checkpoint: str | Path | None) -> str:
    """Save what was done before a host was lost; what to do next."""
    if checkpoint is None:
        return "begin again, or resume from the checkpoint of process 0 where there is one."
    try:
        run.save(checkpoint)
    except (OSError, ValueError) as error:
        return f"{why_not(checkpoint, error)}."
    return f"{checkpoint} holds the run up to step {run.last_step}: resume it, on any number of devices."


def run_observers(
    model: Model,
    test: Dataset | None,
    steps: np.ndarray,
    kind,
    platform: str,
    mesh: Mesh | None = None,
) -> dict[str, Observer]:
    """What every run records."""
    arguments: tuple = ()
    if test is not None:
        fits(kind, {"the test tokens": test.tokens})
        weight = np.full(test.num_examples, 1 / test.num_examples, kind)
        arguments = (sharded_objective(model, test, kind, None, mesh, platform), weight)
    return {"records": Observer(_records, steps, arguments, extras=True)}


def _records(view: View, test: Any = None, test_weight: Any = None) -> dict[str, jax.Array]:
    objective, weight = view.objective, view.problem.sample_weight
    margin = jnp.min(jnp.where(weight > 0, objective.labels * view.scores, jnp.inf))
    row = {
        "train_loss": view.loss,
        "gradient_norm": view.gradient_norm,
        "distance": norm(objective.copies, view.displacement),
        "margin": jnp.where(margin == 0, 0.0, margin),  # no negative zero
        **view.extras,
        **view.measured,
    }
    if test is not None:
        row["test_loss"] = jnp.sum(
            test_weight * view.problem.method.loss.value(test.labels * test.scores(view.point))
        )
    return jax.tree.map(lambda value: value.astype(view.loss.dtype), row)


class Finish:
    """Makes the trajectory of a state."""

    def __init__(
        self,
        model: Model,
        observers: dict[str, Observer],
        settings: dict,
        sources: dict,
        first: int = 0,
        more=None,
    ):
        self.model, self.settings, self.sources, self.first = model, settings, sources, first
        self.more = more or (lambda steps: {})  # further records by name
        self.origins: dict[str, Origin] = {}
        self.steps = {name: np.asarray(o.steps, np.int64) for name, o in observers.items()}

    def model_at(self, state: State) -> Model:
        """The model that is evaluated next."""
        return self.model.displaced(jax.tree.map(np.asarray, state.run.displacement))

    def __call__(self, state: State, status: str) -> Trajectory:
        """What was kept before `step`; of a diverged run, up to its last finite evaluation."""
        run: Run = jax.tree.map(np.asarray, state.run)
        if not run.finite:
            status = "diverged"
        done = int(state.step) - (status == "stopped")  # the step that ends such a run is evaluated
        last = (
            min(done, self.settings["num_steps"])
            if run.finite
            else max(run.evaluated - 1, self.first)
        )
        count = {
            name: int(np.searchsorted(steps, run.evaluated)) for name, steps in self.steps.items()
        }
        rows = {
            name: jax.tree.map(lambda a, c=count[name]: a[:c], kept)
            for name, kept in run.kept.items()
        }
        zero = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), run.displacement)
        steps = self.steps["records"][: count["records"]]
        observed = {
            name.removeprefix("observed "): r
            for name, r in rows.items()
            if name.startswith("observed ")
        }
        return Trajectory(
            start=self.model,
            steps=steps,
            snapshot_steps=self.steps["snapshots"][: count["snapshots"]]
            if "snapshots" in rows
            else np.zeros(0, int),
            snapshots=rows.get("snapshots", zero),
            displacement=run.displacement,
            last_step=int(last),
            status=status,
            settings=self.settings,
            sources=self.sources,
            optimizer_state=tuple(jax.tree.leaves(run.optimizer)),
            observed=observed | self.more(steps),
            origins=self.origins,
            **{name: rows["records"].get(name) for name in RECORDS},
        )


def _first_state(problem: Problem, observers: dict[str, Observer]) -> State:
    """The state at step 0; an optax transform that cannot be used here is refused before anything runs."""
    if not isinstance(problem.rule, Optax):
        return begin(problem, observers)
    try:
        state = begin(problem, observers)
        jax.eval_shape(advance, problem, observers, state, np.int32(1), np.int32(1))
        if any(
            jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended)
            for leaf in jax.tree.leaves(state.run.optimizer)
        ):
            raise ValueError(
                "its state holds a typed random key, which cannot be saved; pass jax.random.PRNGKey(0)"
            )
    except Exception as error:  # whatever the transform raises
        text = " ".join(str(error).split())[:160]
        raise ValueError(
            f"this optax transform cannot be used by train ({type(error).__name__}: {text}); it gets the gradient, the "
            "parameters and the loss of each step, and no function to evaluate."
        ) from None
    return state
