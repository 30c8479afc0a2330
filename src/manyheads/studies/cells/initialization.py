"""One start: Definition 1 on it, how many heads are different, and what training makes of it."""

from __future__ import annotations

import json

import numpy as np

from manyheads.model.attention import MultiHead, collapse
from manyheads.papers.deora2023.initialization import GoodStart, good_start
from manyheads.studies.cells.mixture import mixture_of
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.training.descent import train
from manyheads.training.trajectory import Trajectory


def look(cell: Cell, *, card: str = "") -> dict:
    r"""Definition 1 as measured (`b2`, `b_phi`, `p3_margin` and its certified upper end), distinct heads, and the run.

    `distinct` counts the different heads at the start, `distinct_end` those after training. `margin` is
    $\min_i y_i\tilde\Phi(X_i)/\|\tilde U-\tilde U_0\|$: per unit of readout moved, so that cancelling readouts at the
    start do not count. With a `card` it also keeps what the report's card and ledger show.
    """
    setup = set_up(cell)
    good = good_start(setup.start, setup.dataset, token_radius=mixture_of(setup).token_radius)
    run = train(
        setup.start,
        setup.dataset,
        step_size=cell.train.step_size,
        num_steps=cell.train.num_steps,
        test=setup.test,
        record="log",
        snapshots="records",
        dtype="float64",
    )
    low, high = good.interval.p3_interval
    counts = setup.start.multiplicity
    return {
        "b2": good.parameter_bound,
        "b_phi": good.model_bound,
        "p3_margin": low,
        "p3_upper": high,
        "distinct": collapse(setup.start).num_classes,
        "distinct_end": collapse(run.final).num_classes,
        "step": (("record",), run.steps, {"units": "steps", "coordinate": True}),
        "train_loss": (("record",), run.train_loss),
        "test_loss": (("record",), run.test_loss),
        "focus": (("record",), run.attention_mass @ counts / counts.sum()),
        "margin": (("record",), moved_margins(run)),
        "good_start": json.dumps([_card(card, good, setup.start)] if card else []),
        "certificates": json.dumps(
            [_certificate(f"{card} start, seed {cell.seed}", c) for c in good.certificates()] if card else []
        ),
        "status": run.status,
    }


def moved_margins(run: Trajectory) -> np.ndarray:
    """Smallest margin over the distance that all readouts together have moved; NaN before the first step."""
    moved = np.asarray(run.snapshots.readout)
    squares = np.sum(moved.reshape(*moved.shape[:2], -1) ** 2, axis=2) @ run.start.multiplicity
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares > 0, run.margin / np.sqrt(squares), np.nan)


def _card(name: str, good: GoodStart, start: MultiHead) -> dict:
    heads = f"{start.num_heads:.15g}"
    return {
        "name": name,
        "about": f"{heads} heads on {good.dataset.num_examples} sequences of the {good.dataset.name}",
        "b2": good.parameter_bound,
        "b_phi": good.model_bound,
        "p3_margin": good.interval.p3_interval[0],
        "p3_upper": good.interval.p3_interval[1],
        "distinct": f"{collapse(start).num_classes} of {heads}",
    }


def _certificate(name: str, certificate) -> dict:
    return {"run": name, "certificate": certificate.to_dict()}
