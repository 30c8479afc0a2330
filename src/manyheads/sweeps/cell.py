"""What a worker does with one batch of cells: set up, train, measure, and never raise for one bad cell."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from manyheads._fields import SpecError
from manyheads._registry import nearest
from manyheads.sweeps.environment import on_device, worker_facts, working
from manyheads.sweeps.local import lost
from manyheads.sweeps.measures import Run, find_measure, resolve
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.sections import TrainSpec
from manyheads.sweeps.setup import Setup, set_up
from manyheads.sweeps.spec import TRAIN_AND_MEASURE
from manyheads.training.descent import train
from manyheads.training.keyboard import AllOrNothing
from manyheads.training.problem import choose_dtype
from manyheads.training.rules import RULES, Rule
from manyheads.training.together import run_shape, train_together
from manyheads.training.trajectory import Trajectory

Values = dict[str, tuple[tuple[str, ...], np.ndarray, dict]]


def run_batch(job: dict[str, Any]) -> dict[str, Any]:
    """Run the cells of one job and return plain values: `cells` in the order of the job, and facts about the worker.

    Ctrl-C raises KeyboardInterrupt, whatever the cells do with it: an interrupted batch is not stored.
    """
    for entry in job["python_path"]:
        if entry not in sys.path:
            sys.path.append(entry)
    try:
        cells = [Cell.from_dict(content) for content in job["cells"]]
    except SpecError as error:
        return lost(
            f"{error}; if a plug-in defines it, name that in MANYHEADS_PLUGINS for the workers"
        )
    with AllOrNothing(), working(job["threads"], job["cache"]):
        if len(cells) > 1 and all(cell.function == TRAIN_AND_MEASURE for cell in cells):
            results = _together(cells, job)
        else:
            results = [_guarded(cell, job, lambda cell=cell: _alone(cell, job)) for cell in cells]
        return dict(cells=results, worker=worker_facts(job["threads"], job["device"], job["git"]))


def train_and_measure(cell: Cell, *, device: str | None = None) -> dict[str, Any]:
    """The default cell: train from the start, keep the records, compute the measures and certificates it names."""
    setup = set_up(cell)
    return measured(Run(setup, train_setup(setup, device=device)))


def train_setup(setup: Setup, *, device: str | None = None) -> Trajectory:
    """Train as the cell says."""
    spec = setup.cell.train
    options: dict[str, Any] = dict(
        rule=_rule(spec), test=setup.test, device=device, **_options(spec)
    )
    trajectory = train(setup.start, setup.dataset, **options)
    if trajectory.status == "interrupted":
        raise KeyboardInterrupt
    return trajectory


def _rule(spec: TrainSpec) -> Rule:
    return RULES[spec.optimizer](spec.step_size)


def _options(spec: TrainSpec) -> dict[str, Any]:
    """What cells that are trained together have in common."""
    dtype = None if spec.dtype == "auto" else spec.dtype
    return dict(
        num_steps=spec.num_steps,
        loss=spec.loss,
        record=spec.record,
        dtype=dtype,
    )


def measured(run: Run) -> dict[str, Any]:
    """The records of a run and everything its cell asks to be computed from it."""
    trajectory = run.trajectory
    values: dict[str, Any] = {
        "step": (("record",), trajectory.steps, {"units": "steps", "coordinate": True}),
        "last_step": ((), np.asarray(trajectory.last_step), {"units": "steps"}),
    }
    for name in ("train_loss", "test_loss", "gradient_norm", "distance", "readout_norm", "margin"):
        if getattr(trajectory, name) is not None:
            values[name] = (("record",), getattr(trajectory, name))
    if trajectory.attention_mass is not None:
        values["attention_mass"] = (("record", "head_class"), trajectory.attention_mass)
    for name in run.setup.cell.measures:
        values.update(find_measure(name)(run))
    if run.setup.cell.certificates:
        from manyheads.sweeps.certified import certificate_values

        values.update(certificate_values(run))
    values["status"] = trajectory.status
    return values


def _alone(cell: Cell, job: Mapping[str, Any]) -> dict[str, Any]:
    if cell.function == TRAIN_AND_MEASURE:
        return train_and_measure(cell, device=job["device"])
    with on_device(job["device"]):
        values = resolve(cell.function)(cell, **cell.parameters)
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{cell.function} returned {type(values).__name__}; it must return a dict of values."
        )
    return dict(values)


def _together(cells: Sequence[Cell], job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Train cells of equal shape in one program; each sets up, measures and fails for itself."""
    results: list[dict[str, Any] | None] = [None] * len(cells)
    setups: dict[int, Setup] = {}
    for i, cell in enumerate(cells):
        try:
            setups[i] = set_up(cell)
        except Exception as error:
            results[i] = _failure(cell, error)
    groups: dict[Any, list[int]] = {}
    for i, setup in setups.items():
        kind = choose_dtype(
            _options(cells[i].train)["dtype"], setup.start
        )  # very many heads need float64
        groups.setdefault((kind, run_shape(setup.start, setup.dataset, setup.test)), []).append(i)
    for members in groups.values():
        began = time.perf_counter()
        try:
            trajectories = train_together(
                [setups[i].start for i in members],
                [setups[i].dataset for i in members],
                tests=[setups[i].test for i in members],
                rules=[_rule(cells[i].train) for i in members],
                device=job["device"],
                **_options(cells[members[0]].train),
            )
        except Exception as error:
            for i in members:
                results[i] = _failure(cells[i], error)
            continue
        share = (time.perf_counter() - began) / len(members)
        for i, trajectory in zip(members, trajectories, strict=True):
            run = Run(setups[i], trajectory)
            results[i] = _guarded(cells[i], job, lambda run=run: measured(run), share)
    return [result for result in results if result is not None]


def _guarded(cell: Cell, job: Mapping[str, Any], compute, seconds: float = 0.0) -> dict[str, Any]:
    """The result of a cell, or its failure as a result."""
    began = time.perf_counter()
    try:
        values = compute()
        status = str(values.pop("status", "finished"))
        message = str(values.pop("message", ""))
        if status == "interrupted":
            raise KeyboardInterrupt
        if status not in ("finished", "diverged", "failed"):
            raise ValueError(
                f"status={status!r} is not known; return 'finished', 'diverged' or 'failed'."
            )
        plain = {name: _plain(name, value, job["dims"]) for name, value in values.items()}
    except Exception as error:
        return _failure(cell, error, seconds + time.perf_counter() - began)
    took = seconds + time.perf_counter() - began
    return dict(hash=cell.hash, status=status, message=message, seconds=took, values=plain)


def _failure(cell: Cell, error: BaseException, seconds: float = 0.0) -> dict[str, Any]:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return dict(hash=cell.hash, status="failed", message=text[:500], seconds=seconds, values={})


def _plain(name: str, value: Any, dims: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray, dict]:
    """A value as (dims, array, attributes), checked for what the store can hold."""
    own, array, attributes = _parts(value)
    array = np.asarray(array)
    if own is None:
        own = tuple(f"{name}_{i}" for i in range(array.ndim))
    own = (own,) if isinstance(own, str) else tuple(own)
    if name in dims or (name in own and array.ndim != 1) or "/" in name:
        raise ValueError(
            f"a value named {name!r} clashes with a dimension of the sweep; give it another name."
        )
    if len(own) != array.ndim or len(set(own)) < len(own) or set(own) & set(dims):
        raise ValueError(
            f"{name!r} has dims {own} for an array of shape {array.shape}; name one new dim per axis, "
            f"none of {tuple(dims)}."
        )
    if array.dtype.kind not in "fiubUc":
        raise ValueError(
            f"{name!r} holds {array.dtype}; the store keeps numbers, true or false, and texts."
        )
    return own, np.ascontiguousarray(array) if array.ndim else array, dict(attributes)


def _parts(value: Any) -> tuple[Any, Any, Mapping]:
    if isinstance(value, tuple) and len(value) in (2, 3) and _are_dims(value[0]):
        return value[0], value[1], value[2] if len(value) == 3 else {}
    return None, value, {}


def _are_dims(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, tuple | list) and all(isinstance(v, str) for v in value)
    )


def check_function(cell: Cell) -> None:
    """That a cell's function and all it names can be imported and takes the cell's parameters, before anything runs."""
    for name in cell.measures:
        find_measure(name)
    if cell.certificates:
        from manyheads.sweeps.certified import check_certificate

        for name in cell.certificates:
            check_certificate(name)
    if cell.function == TRAIN_AND_MEASURE:
        return
    function = resolve(cell.function)
    accepted = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        return
    names = [
        name
        for name, p in list(accepted.items())[1:]
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    for name in cell.parameters:
        if name not in names:
            raise SpecError(
                f"{cell.function} takes no parameter {name!r}; {nearest(name, names) if names else 'it takes none'}"
            )
    missing = [
        n
        for n in names
        if accepted[n].default is inspect.Parameter.empty and n not in cell.parameters
    ]
    if missing:
        raise SpecError(
            f"{cell.function} needs a parameter {missing[0]!r}; write it under [parameters] or as an axis"
        )
