"""The margin of the iterates over time, normalized by the readout as γ_lin and γ_attn are."""

from __future__ import annotations

from manyheads.studies.kit.cells import (
    descend,
    focus,
    mixture_of,
    normalized_margins,
    records,
    sample_margin,
)
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.theory.deora2023.expressivity import attention_margin
from manyheads.theory.deora2023.mixture import linear_margin


def over_time(cell: Cell) -> dict:
    r"""`margin`: $\min_i y_i\tilde\Phi(X_i)/\|\tilde U\|$ at the recorded steps, with `focus` and `train_loss`.

    `linear`: the formula for the best linear margin, `linear_sample` the best one on this sample (a lower bound proved
    by two feasible points), `attention`: the supremum $S\sqrt{T/2}$ over attention, all on the same scale.
    """
    setup = set_up(cell)
    task = mixture_of(setup)
    run = descend(setup, record="log", snapshots="records")
    return {
        **records(run, "train_loss", margin=normalized_margins(run), focus=focus(run)),
        "linear": linear_margin(task),
        "linear_sample": sample_margin(setup.dataset),
        "attention": attention_margin(task),
    }
