"""What several cells share. Cells may import JAX; studies may not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import hard_margin
from manyheads.model.attention import MultiHead
from manyheads.sweeps.setup import Setup
from manyheads.theory.verdict import Certificate
from manyheads.training.descent import train
from manyheads.training.rules import RULES
from manyheads.training.trajectory import Trajectory


def mixture_of(setup: Setup) -> Any:
    """The data model of a cell, which must be the mixture: some formulas exist only there."""
    if not isinstance(setup.task, TokenizedMixture):
        raise ValueError(
            f"data.kind = {setup.cell.data.kind!r} is not the mixture; write data.kind = 'mixture'."
        )
    return setup.task


def descend(setup: Setup, step_size: float | None = None, **options: Any) -> Trajectory:
    """Train from the cell's start with its steps, in float64 by default, at its step size or another one."""
    spec = setup.cell.train
    options = {
        "rule": RULES[spec.optimizer](step_size or spec.step_size),
        "num_steps": spec.num_steps,
        "dtype": "float64",
        **options,
    }
    return train(setup.start, setup.dataset, **options)


def records(run: Trajectory, *names: str, **others: Any) -> dict[str, Any]:
    """What a cell returns about a run: records by their names, others as given, each over steps."""
    values = {name: getattr(run, name) for name in names} | others
    return {
        "step": (("record",), run.steps, {"units": "steps", "coordinate": True}),
        **{name: (("record",), value) for name, value in values.items()},
        "status": run.status,
    }


def coordinate(dim: str, values: Iterable[float]) -> tuple:
    """The positions along a dimension of a cell's arrays."""
    return (dim,), np.array(list(values)), {"coordinate": True}


def focus(run: Trajectory) -> np.ndarray:
    """The attention on relevant tokens at each record, averaged over heads."""
    return np.asarray(run.attention_mass) @ run.start.multiplicity / run.start.num_heads


def normalized_margins(run: Trajectory, moved: bool = False) -> np.ndarray:
    """Smallest margin divided by the norm of all readouts, or of their displacement; NaN where that is zero."""
    readout = np.asarray(run.snapshots.readout) + (
        0 if moved else np.asarray(run.start.readout)[None]
    )
    squares = np.sum(readout.reshape(*readout.shape[:2], -1) ** 2, axis=2) @ run.start.multiplicity
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares > 0, run.margin / np.sqrt(squares), np.nan)


def sample_margin(data: Dataset) -> float:
    """The best linear margin on a sample: a lower bound proved by two feasible points, 0 if there is none."""
    return hard_margin(data.labels, features=data.tokens.reshape(data.num_examples, -1)).lower


def p3_margin(start: MultiHead, data: Dataset) -> float:
    """The best tangent margin of a start (lower bound), for directions of norm √2."""
    kernel = tangent_kernel(start, data)
    return hard_margin(
        data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy, tolerance=1e-4
    ).p3_interval[0]


def verdicts(run: str, certificates: Iterable[Certificate]) -> str:
    """Certificates about a run, as the report's ledger reads them."""
    return json.dumps(
        [{"run": run, "certificate": certificate.to_dict()} for certificate in certificates]
    )
