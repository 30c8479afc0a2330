"""Full-batch descent: `train(model, dataset, ...)` -> `Trajectory`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from manyheads.data.dataset import Dataset, checked_path
from manyheads.data.door import shown
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.gradient import checked_dataset
from manyheads.model.loss import Loss, get_loss
from manyheads.training.keyboard import CtrlC
from manyheads.training.loop import Method, Problem, State, advance, initial_state
from manyheads.training.problem import (
    checked_plan,
    checked_weight,
    choose_device,
    choose_dtype,
    choose_method,
    choose_steps,
    listed_steps,
    make_problem,
)
from manyheads.training.progress import Bar
from manyheads.training.resume import check_same_run, fingerprint, restore
from manyheads.training.trajectory import RECORDS, Trajectory

STRETCH_SECONDS = 0.2  # between two looks at the bar and the keyboard
CHECKPOINT_SECONDS = 30.0


def train(
    model: MultiHead,
    dataset: Dataset,
    *,
    step_size: float | None = None,
    num_steps: int,
    optimizer: str | optax.GradientTransformation = "gd",
    coordinates: str | None = None,
    loss: str | Loss = "logistic",
    test: Dataset | None = None,
    record: str | int | Sequence[int] = "log",
    snapshots: str | Sequence[int] = (),
    sample_weight: np.ndarray | None = None,
    dtype: str | None = None,
    chunk: int | None = None,
    device: str | None = None,
    tf32: bool = False,
    progress: bool = False,
    checkpoint: str | Path | None = None,
    resume: Trajectory | str | Path | None = None,
) -> Trajectory:
    r"""Full-batch descent on the train loss from `model`.

    `optimizer` is "gd" (the paper's), "normalized" (step_size times the unit gradient), "polyak" (loss over squared
    gradient norm, at most step_size), "adam", or any optax transform, which then brings its own step size. "gd",
    "normalized" and "polyak" treat the H-head model as one vector; "adam" acts on one head of each class, as it would
    on all its members. For a model with multiplicities an optax transform must say which of the two is right for it by
    `coordinates="class"` or `"head"`.

    `record` chooses the recorded steps: "log" (about 60, evenly spaced in the logarithm), "all", every m-th, or a list;
    step 0 and the last are always there. `snapshots` keeps the parameters at these steps, or at the recorded ones
    ("records"). `dtype` is "float32" or "float64" (None: float32, from 10^6 heads on float64). `sample_weight` replaces
    the weights 1/n. `chunk` is the number of sequences evaluated together. `tf32` lets a GPU round products.

    Ctrl-C ends the run with status "interrupted" and keeps what was done; `resume=` continues it, from a trajectory or
    a file, as if it had never stopped. `checkpoint=` saves the trajectory there every half a minute and at the end.
    """
    if not isinstance(model, MultiHead):
        raise ValueError(f"model={shown(model)} must be a MultiHead; make one with zero_start or first_phase, say.")
    checked_dataset(dataset)
    if test is not None:
        checked_dataset(test, "test")
    method = choose_method(model, optimizer, coordinates, get_loss(loss), tf32)
    num_steps, eta = checked_plan(method, step_size, num_steps)
    kind = choose_dtype(dtype, model)
    if eta is not None and not float(np.finfo(kind).tiny) <= eta <= float(np.finfo(kind).max):
        raise ValueError(f"step_size={eta:g} does not fit {kind}; pass dtype='float64' or another step size.")
    where = choose_device(device)
    record_steps = choose_steps(record, num_steps, "record")
    wanted = (
        record_steps if isinstance(snapshots, str) and snapshots == "records" else listed_steps(snapshots, num_steps)
    )
    settings = {
        "optimizer": optimizer if isinstance(optimizer, str) else "optax",
        "coordinates": method.coordinates,
        "step_size": None if method.rule == "optax" else eta,
        "num_steps": num_steps,
        "loss": method.loss.name,
        "dtype": kind.name,
        "tf32": bool(tf32),
        "device": where.platform,
        "num_examples": dataset.num_examples,
        "data": dataset.name,
    }
    if sample_weight is not None:
        sample_weight = checked_weight(sample_weight, dataset.num_examples)
    sources = {"data": fingerprint(dataset, sample_weight), "test": None if test is None else fingerprint(test)}
    before = resume if resume is None or isinstance(resume, Trajectory) else Trajectory.load(resume)
    if before is not None:
        check_same_run(before, model, settings, sources)
        record_steps = np.union1d(before.steps, record_steps[record_steps >= before.last_step])
        late = np.setdiff1d(wanted[wanted < before.last_step], before.snapshot_steps)
        if isinstance(snapshots, str):
            wanted = np.setdiff1d(wanted, late)
        elif len(late):
            raise ValueError(f"snapshots={late.tolist()} lie before step {before.last_step}, where the run resumes.")
    if checkpoint is not None:
        checked_path(checkpoint, "checkpoint")

    with CtrlC() as ctrl_c, jax.enable_x64(kind == np.float64), jax.default_device(where):
        problem = make_problem(model, dataset, test, sample_weight, kind, chunk, where, eta, num_steps, record_steps)
        settings["chunk"] = int(problem.batch.labels.shape[1])
        state = _first_state(problem, method, kind)
        if before is not None:
            state = restore(state, before, record_steps)
        state = jax.device_put(state, where)  # as the loop leaves it: all stretches run the same program
        run = _Run(model, method, problem, settings, sources, wanted, before)
        return run.go(state, progress, checkpoint, ctrl_c)


class _Run:
    """One call of train: stretches of the compiled loop, with a bar, snapshots, checkpoints and Ctrl-C in between."""

    def __init__(self, model, method, problem, settings, sources, wanted, before):
        self.model, self.method, self.problem, self.settings = model, method, problem, settings
        self.sources = sources
        self.num_steps = settings["num_steps"]
        self.wanted = wanted
        self.kept: dict[int, Heads] = {}
        if before is not None:
            kept = [
                jax.tree.map(lambda leaf, i=i: leaf[i], before.snapshots) for i in range(len(before.snapshot_steps))
            ]
            self.kept = dict(zip(before.snapshot_steps.tolist(), kept, strict=True))

    def go(self, state: State, progress: bool, checkpoint, ctrl_c: CtrlC) -> Trajectory:
        past, status, saved = [state, state], "finished", time.monotonic()
        stretch, first = 1, int(state.step)
        with Bar(self.num_steps, int(state.step), progress) as bar:
            try:
                while True:
                    now = int(state.step)
                    if now in self.wanted and now not in self.kept:
                        self.kept[now] = jax.tree.map(np.asarray, state.displacement)
                    if now > self.num_steps:
                        break
                    if ctrl_c.pressed:
                        raise KeyboardInterrupt
                    later = self.wanted[self.wanted > now]
                    stop = min([now + stretch, self.num_steps + 1, *later[:1]])
                    began = time.monotonic()
                    new = advance(self.method, self.problem, state, np.int32(stop))
                    finite = bool(new.finite)
                    past = [past[1], state]
                    if not finite:
                        status = "diverged"
                        state = self._last_good(new, past)
                        break
                    state = new
                    took = time.monotonic() - began
                    if now > first:  # the first stretch compiles
                        wanted = (stop - now) * STRETCH_SECONDS / max(took, 1e-4)
                        stretch = int(np.clip(wanted, 1, min(2 * stretch, 10**6)))
                    else:
                        stretch = 8
                    bar.show(int(state.step), float(state.loss))
                    if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                        self.trajectory(state, "interrupted").save(checkpoint)
                        saved = time.monotonic()
            except KeyboardInterrupt:
                status = "interrupted"
        if status == "finished" and ctrl_c.pressed:  # in the last stretch
            status = "interrupted"
        ctrl_c.answered = status == "interrupted"
        done = self.trajectory(state, status)
        if checkpoint is not None:
            done.save(checkpoint)
        return done

    def _last_good(self, bad: State, past: list[State]) -> State:
        """The state at the last point with a finite loss and gradient; records come from the run that found out."""
        last = max(int(bad.step) - 1, 0)
        origin = past[1] if int(past[1].step) <= last else past[0]
        state = origin
        if int(origin.step) < last:
            state = advance(self.method, self.problem, origin, np.int32(last))
        return state._replace(records=bad.records, written=bad.written)

    def trajectory(self, state: State, status: str) -> Trajectory:
        count = int(state.written)
        written = {name: np.asarray(values)[:count] for name, values in state.records.items()}
        records: dict[str, Any] = {name: written.get(name) for name in RECORDS}
        steps = sorted(step for step in self.kept if step <= int(state.step))  # a diverged run ends before
        like = jax.tree.map(np.asarray, state.displacement)
        stacked = [jax.tree.map(np.asarray, self.kept[k]) for k in steps]
        snapshots = jax.tree.map(
            lambda leaf, *rows: np.stack(rows) if rows else np.zeros((0, *leaf.shape), leaf.dtype), like, *stacked
        )
        return Trajectory(
            start=self.model,
            steps=np.asarray(self.problem.record_steps)[:count].astype(np.int64),
            snapshot_steps=np.array(steps, np.int64),
            snapshots=snapshots,
            displacement=like,
            last_step=min(int(state.step), self.num_steps),
            status=status,
            settings=self.settings,
            sources=self.sources,
            optimizer_state=tuple(np.asarray(leaf) for leaf in jax.tree.leaves(state.optimizer)),
            **records,
        )


def _first_state(problem: Problem, method: Method, dtype) -> State:
    """The state at step 0; an optax transform that cannot be used here is refused before anything runs."""
    if method.rule != "optax":
        return initial_state(problem, method, dtype)
    try:
        state = initial_state(problem, method, dtype)
        jax.eval_shape(partial(advance, method), problem, state, np.int32(1))
        if any(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in jax.tree.leaves(state.optimizer)):
            raise ValueError("its state holds a typed random key, which cannot be saved; pass jax.random.PRNGKey(0)")
    except Exception as error:  # whatever the transform raises
        text = " ".join(str(error).split())[:160]
        raise ValueError(
            f"this optax transform cannot be used by train ({type(error).__name__}: {text}); it gets the gradient, the "
            "parameters and the loss of each step, and no function to evaluate."
        ) from None
    return state
