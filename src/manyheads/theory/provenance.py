"""Check that data are the data a stored run was trained on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.measures.rounding import score_error
from manyheads.theory.walk import follow
from manyheads.training.resume import fingerprint
from manyheads.training.trajectory import Trajectory


def trained_on(run: Trajectory, dataset: Dataset) -> bool | None:
    """Whether the run's own fingerprint matches: True or False; None if it cannot decide.

    The fingerprint of a run may or may not include which tokens are relevant, which no loss depends on. If it does and
    the data do not say which are relevant, the fingerprint cannot decide.
    """
    stored = run.sources.get("data")
    if stored is None:
        return None
    if stored in (
        fingerprint(data, like=stored) for data in (dataset, replace(dataset, relevant=None))
    ):
        return True
    return None if dataset.relevant is None and run.attention_mass is not None else False


def check_data(run: Trajectory, dataset: Dataset) -> None:
    """Refuse data that the run was not trained on: by the fingerprint, else by its first loss and gradient."""
    try:
        run.start.objective(dataset)
    except ValueError as error:
        raise _other(str(error)) from None
    count = run.settings.get("num_examples", dataset.num_examples)
    if count != dataset.num_examples:
        raise _other(f"the run was trained on {count} sequences, these are {dataset.num_examples}")
    known = trained_on(run, dataset)
    if known is False:
        raise _other("the run's fingerprint is not that of these data")
    if known is None and run.settings.get("optimizer") == "gd" and len(run.steps):
        first = int(run.steps[0])
        eta, loss = float(run.settings["step_size"]), str(run.settings["loss"])
        again = follow(run.start, dataset, step_size=eta, num_steps=max(first, 1), loss=loss)
        compare(run, dataset, again.loss, again.gradient_norm, first)


def compare(
    run: Trajectory, dataset: Dataset, loss: np.ndarray, gradient_norm: np.ndarray, last: int
) -> None:
    """Refuse records that differ from a repetition (one entry per step). The first gradient is the sharpest test.

    In single precision very many heads leave few digits of a score; that loss is allowed for.
    """
    if run.settings.get("dtype") == "float64":
        of_gradient, of_loss = 1e-8, 1e-6
    else:
        rounding = float(np.finfo(np.float32).eps) * score_error(run.start, dataset)
        of_gradient, of_loss = 1e-3 + rounding, 2e-2 + rounding / max(float(np.min(loss)), 1e-3)
    steps = run.steps[run.steps <= last]
    pairs = (
        (run.gradient_norm[:1], gradient_norm[steps[:1]], of_gradient),
        (run.train_loss[: len(steps)], loss[steps], of_loss),
    )
    for stored, again, allowed in pairs:
        off = float(
            np.max(np.abs(np.asarray(stored, float) - again) / np.maximum(np.abs(again), 1e-3))
        )
        if not off < allowed:
            raise _other(
                f"the stored records differ from a repetition on these data by {100 * off:.3g}%"
            )


def _other(why: str) -> ValueError:
    return ValueError(
        f"{why}: pass the dataset that the run was trained on (a run with sample weights cannot be certified: the "
        "theory is about the plain mean)"
    )
