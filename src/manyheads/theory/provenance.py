"""Which sequences a stored run was trained on, and whether its records are those of such a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.origin import Origin
from manyheads.measures.rounding import score_error
from manyheads.model.loss import LOSSES
from manyheads.theory.targets import train_loss
from manyheads.training.descent import train
from manyheads.training.resume import fingerprint
from manyheads.training.rules import RULES, Rule
from manyheads.training.trajectory import RECORDS, Trajectory


def trained_on(run: Trajectory, dataset: Dataset) -> Dataset:
    """The sequences a run was trained on: all of the dataset, or those rows of it that the run names."""
    try:
        run.start.objective(dataset[:1])
    except ValueError as error:
        raise _other(str(error)) from None
    count = run.settings.get("num_examples", dataset.num_examples)
    stored = run.sources.get("data")
    # The whole comes first: most files are used whole, and then no row needs to be looked up.
    for part in (dataset, _rows(run.origins.get("data"), dataset)):
        if part is not None and part.num_examples == count:
            if stored in (None, fingerprint(part)):
                return part
    if count > dataset.num_examples:
        raise _other(f"the run was trained on {count} sequences, these are {dataset.num_examples}")
    origin = run.origins.get("data", Origin())
    raise _other(f"the run's fingerprint is not that of these data (it was trained on {origin})")


def tested_on(run: Trajectory, dataset: Dataset) -> Dataset | None:
    """The test sequences of a run, where the dataset holds them."""
    stored, part = run.sources.get("test"), _rows(run.origins.get("test"), dataset)
    return part if part is not None and stored == fingerprint(part) else None


def _rows(origin: Origin | None, dataset: Dataset) -> Dataset | None:
    rows = None if origin is None else origin.rows
    fits = rows is not None and len(rows) and rows.max() < dataset.num_examples
    return dataset.subset(rows) if fits else None


def check_ends(run: Trajectory, dataset: Dataset) -> None:
    """Compare the first records with the first steps, and the last loss with that of the last parameters.

    This costs a few steps, and says that start, rule and parameters belong together.
    """
    _compare_run(run, dataset, max([1, *map(int, run.steps[:2])]))
    _compare_last(run, dataset)


def check_records(run: Trajectory, dataset: Dataset, test: Dataset | None = None) -> None:
    """Repeat the run in its own precision and compare every record, the snapshots and the last parameters.

    The test losses are compared where `test` is what the run was tested on.
    """
    known = test is not None and run.sources.get("test") == fingerprint(test)
    _compare_run(run, dataset, int(run.last_step), test if known else None)
    _compare_last(run, dataset)


def compare(
    run: Trajectory, dataset: Dataset, loss: np.ndarray, gradient_norm: np.ndarray, last: int
) -> None:
    """Compare the records up to a step with a repetition in float64, which has one entry for each step."""
    of_gradient, of_loss = _allowed(run, dataset, float(np.min(loss)))
    steps = run.steps[run.steps <= last]
    _compare_one("gradient_norm", run.gradient_norm[:1], gradient_norm[steps[:1]], of_gradient)
    _compare_one("train_loss", run.train_loss[: len(steps)], loss[steps], of_loss)


def _compare_last(run: Trajectory, dataset: Dataset) -> None:
    name = run.settings.get("loss")
    if name in LOSSES and len(run.steps) and run.steps[-1] == run.last_step:
        allowed = _allowed(run, dataset, float(run.train_loss[-1]))[1]
        found = train_loss(run.final, dataset, name)
        _compare_one("train_loss", run.train_loss[-1:], np.array([found]), allowed)


def _compare_run(
    run: Trajectory, dataset: Dataset, num_steps: int, test: Dataset | None = None
) -> None:
    rule, loss = _rule(run.settings), run.settings.get("loss")
    if rule is None or loss not in LOSSES:
        # a transform or a loss of the user's own, which no file can hold
        return
    again = train(
        run.start,
        dataset,
        rule=rule,
        num_steps=num_steps,
        loss=loss,
        test=test,
        record=[int(step) for step in run.steps[run.steps <= num_steps]],
        snapshots=[int(step) for step in run.snapshot_steps[run.snapshot_steps <= num_steps]],
        dtype=run.settings.get("dtype"),
    )
    if again.last_step < num_steps or not len(again.train_loss):
        raise _other(f"a repetition diverges after step {again.last_step}, the run did not")
    of_gradient, of_loss = _allowed(run, dataset, float(np.min(again.train_loss)))
    _compare_one("gradient_norm", run.gradient_norm[:1], again.gradient_norm[:1], of_gradient)
    for name, stored, repeated in _pairs(run, again, num_steps):
        _compare_one(name, stored, repeated, of_loss)


def _pairs(run: Trajectory, again: Trajectory, last: int) -> Iterator[tuple[str, Any, Any]]:
    """Records, snapshots and last parameters of a run beside those of its repetition."""
    steps = run.steps[run.steps <= last]
    where = np.searchsorted(again.steps, steps)
    for name in RECORDS:
        stored, repeated = getattr(run, name), getattr(again, name)
        if stored is not None and repeated is not None:
            yield name, stored[: len(steps)], repeated[where]
    moved = [("snapshots", run.snapshots, again.snapshots)]
    if last == run.last_step:
        moved.append(("parameters", run.displacement, again.displacement))
    for name, stored, repeated in moved:
        count = len(again.snapshot_steps)
        for old, new in zip(jax.tree.leaves(stored), jax.tree.leaves(repeated), strict=True):
            yield name, (old[:count] if name == "snapshots" else old), new


def _rule(settings: dict) -> Rule | None:
    """The rule of descent that the settings of a run name; None where it is an optax transform."""
    kind = RULES.get(settings.get("optimizer", ""))
    if kind is None:
        return None
    names = [item.name for item in fields(kind) if item.name in settings]
    return kind(**{name: settings[name] for name in names})


def _allowed(run: Trajectory, dataset: Dataset, least_loss: float) -> tuple[float, float]:
    """By how much the first gradient and the losses may differ, relative to their size.

    In single precision very many heads leave few digits of a score.
    """
    if run.settings.get("dtype") == "float64":
        return 1e-8, 1e-6
    rounding = float(np.finfo(np.float32).eps) * score_error(run.start, dataset)
    return 1e-3 + rounding, 2e-2 + rounding / max(least_loss, 1e-3)


def _compare_one(name: str, stored: Any, repeated: Any, allowed: float) -> None:
    """Refuse numbers that differ; those near zero are compared with the largest."""
    old, new = np.asarray(stored, np.float64), np.asarray(repeated, np.float64)
    if old.shape != new.shape:
        raise _other(f"the stored {name} has shape {old.shape}, a repetition {new.shape}")
    if not old.size:
        return
    floor = 1e-3 if name in ("train_loss", "gradient_norm") else max(1e-3, np.abs(new).max())
    off = float(np.max(np.abs(old - new) / np.maximum(np.abs(new), floor)))
    if math.isnan(off) or off >= allowed:
        raise _other(
            f"the stored records differ from a repetition on these data by {100 * off:.3g}% "
            f"({name})"
        )


def _other(why: str) -> ValueError:
    return ValueError(
        f"{why}: pass the dataset that the run was trained on (a run with sample weights cannot be "
        "certified: the "
        "theory is about the plain mean)"
    )
