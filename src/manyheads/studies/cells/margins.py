"""The margin of the iterates over time, normalized by the readout as γ_lin and γ_attn are."""

from __future__ import annotations

import numpy as np

from manyheads.measures.margin import hard_margin
from manyheads.papers.deora2023.expressivity import attention_margin
from manyheads.papers.deora2023.mixture import linear_margin
from manyheads.studies.cells.mixture import mixture_of
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.training.descent import train
from manyheads.training.trajectory import Trajectory


def over_time(cell: Cell) -> dict:
    r"""`margin`: $\min_i y_i\tilde\Phi(X_i)/\|\tilde U\|$ at the recorded steps, `focus` and `train_loss` beside it.

    `linear`: the formula for the best linear margin, `linear_sample` the best one on this sample (a lower end that two
    feasible points prove), `attention`: the supremum $S\sqrt{T/2}$ over attention, all on the same scale.
    """
    setup = set_up(cell)
    task = mixture_of(setup)
    spec = cell.train
    run = train(
        setup.start,
        setup.dataset,
        step_size=spec.step_size,
        num_steps=spec.num_steps,
        record="log",
        snapshots="records",
        dtype="float64",
    )
    data = setup.dataset
    sample = hard_margin(data.labels, features=data.tokens.reshape(data.num_examples, -1))
    return {
        "step": (("record",), run.steps, {"units": "steps", "coordinate": True}),
        "margin": (("record",), normalized_margins(run)),
        "focus": (("record",), run.attention_mass @ setup.start.multiplicity / setup.start.num_heads),
        "train_loss": (("record",), run.train_loss),
        "linear": linear_margin(task),
        "linear_sample": sample.lower,
        "attention": attention_margin(task),
        "status": run.status,
    }


def normalized_margins(run: Trajectory) -> np.ndarray:
    """Smallest margin over the norm of all readouts together; NaN where the readout is zero."""
    moved = np.asarray(run.start.readout)[None] + np.asarray(run.snapshots.readout)
    squares = np.sum(moved.reshape(*moved.shape[:2], -1) ** 2, axis=2) @ run.start.multiplicity
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares > 0, run.margin / np.sqrt(squares), np.nan)
