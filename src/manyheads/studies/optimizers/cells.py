"""One optimizer at several step sizes: loss, margin and focus over time."""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit.cells import (
    coordinate,
    descend,
    focus,
    mixture_of,
    normalized_margins,
    sample_margin,
)
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.theory.deora2023.expressivity import attention_margin
from manyheads.training.problem import choose_steps


def ladder(cell: Cell, *, step_sizes: list[float]) -> dict:
    r"""`train_loss`, `margin` ($\min_i y_i\tilde\Phi(X_i)/\|\tilde U\|$) and `focus` for each step size.

    NaN once diverged. `attention`: the best margin of attention, `linear`: the best linear one on this sample (0 where
    there is none), both on the scale of `margin`.
    """
    setup, spec = set_up(cell), cell.train
    steps = choose_steps(spec.record, spec.num_steps, "record")
    curves = {
        name: np.full((len(step_sizes), len(steps)), np.nan)
        for name in ("train_loss", "margin", "focus")
    }
    for i, step_size in enumerate(step_sizes):
        run = descend(setup, step_size, record=spec.record, snapshots="records")
        found = {
            "train_loss": run.train_loss,
            "margin": normalized_margins(run),
            "focus": focus(run),
        }
        for name, values in found.items():
            curves[name][i, : len(values)] = values
    return {
        "step": (("record",), steps, {"units": "steps", "coordinate": True}),
        "step_size_tried": coordinate("rung", step_sizes),
        **{name: (("rung", "record"), values) for name, values in curves.items()},
        "attention": attention_margin(mixture_of(setup)),
        "linear": sample_margin(setup.dataset),
    }
