"""One optimizer at several step sizes: loss, margin and focus over time."""

from __future__ import annotations

import numpy as np

from manyheads.measures.margin import hard_margin
from manyheads.papers.deora2023.expressivity import attention_margin
from manyheads.studies.cells.margins import normalized_margins
from manyheads.studies.cells.mixture import mixture_of
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.training.descent import train
from manyheads.training.problem import choose_steps


def ladder(cell: Cell, *, step_sizes: list[float]) -> dict:
    r"""`train_loss`, `margin` ($\min_i y_i\tilde\Phi(X_i)/\|\tilde U\|$) and `focus` for each step size.

    NaN once diverged. `attention`: the best margin of attention, `linear`: the best linear one on this sample (0 where
    there is none), both on the scale of `margin`.
    """
    setup = set_up(cell)
    data, counts = setup.dataset, setup.start.multiplicity
    curves: dict[str, list] = {"train_loss": [], "margin": [], "focus": []}
    for step_size in step_sizes:
        run = train(
            setup.start,
            data,
            step_size=step_size,
            num_steps=cell.train.num_steps,
            optimizer=cell.train.optimizer,
            record=cell.train.record,
            snapshots="records",
            dtype="float64",
        )
        curves["train_loss"].append(run.train_loss)
        curves["margin"].append(normalized_margins(run))
        curves["focus"].append(run.attention_mass @ counts / counts.sum())
    steps = choose_steps(cell.train.record, cell.train.num_steps, "record")
    filled = {name: np.full((len(step_sizes), len(steps)), np.nan) for name in curves}
    for name, rows in curves.items():
        for row, values in zip(filled[name], rows, strict=True):
            row[: len(values)] = values
    return {
        "step": (("record",), steps, {"units": "steps", "coordinate": True}),
        "step_size_tried": (("rung",), np.array(step_sizes), {"coordinate": True}),
        **{name: (("rung", "record"), values) for name, values in filled.items()},
        "attention": attention_margin(mixture_of(setup)),
        "linear": hard_margin(data.labels, features=data.tokens.reshape(data.num_examples, -1)).lower,
    }
