"""One run, and what was proved about it in advance."""

from __future__ import annotations

import math

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.studies.kit.cells import descend
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up
from manyheads.theory.manyheads2026.forecast import ENLARGE, Forecast, first_forecast, forecast
from manyheads.theory.walk import follow

CURVES, POINTS = 3, 40


def speaks(cell: Cell, *, draw: bool = False) -> dict:
    """The first step at which the loss is certified to halve, within how many steps, and how many it actually takes.

    `first_step` is infinite if no step of the run certifies it; then `nats_last` and `indicator_last` say how much the
    last one certifies. `kept` counts the certified levels, out of `levels`, that the run reached in time. With `draw`
    the loss and the certified curves from several steps are stored.
    """
    setup = set_up(cell)
    run = descend(setup, record="all" if draw else "log")
    found = first_forecast(run, setup.dataset)
    eta = cell.train.step_size
    start = forecast(setup.start, setup.dataset, step_size=eta)
    last = forecast(run, setup.dataset) if found is None else None
    values = {
        "nats_start": start.nats,
        "nats_last": math.nan if last is None else last.nats,
        "indicator_start": start.indicator,
        "indicator_last": math.nan if last is None else last.indicator,
        "first_step": math.inf,
        "promised": math.nan,
        "measured": math.nan,
        "levels": 0,
        "kept": 0,
    }
    if found is not None:
        step, promise = found
        values |= {"first_step": step} | compared(setup.start, setup.dataset, step, promise)
    if draw:
        values |= _curves(setup, run, 0 if found is None else found[0])
    return values


def compared(start: MultiHead, data: Dataset, step: int, promise: Forecast) -> dict:
    """The run from that step on, for as many steps as are certified to halve the loss."""
    eta, steps = promise.step_size, promise.steps_to_reduce
    assert steps is not None
    at = follow(start, data, step_size=eta, num_steps=step).final
    loss = np.minimum.accumulate(follow(at, data, step_size=eta, num_steps=steps).loss)
    within = promise.steps <= steps
    kept = loss[promise.steps[within]] <= promise.certified_loss[within] * (1 + ENLARGE)
    half = np.flatnonzero(loss <= loss[0] / 2 * (1 + ENLARGE))
    return {
        "promised": steps,
        "measured": int(half[0]) if len(half) else math.inf,
        "levels": int(within.sum()),
        "kept": int(kept.sum()),
    }


def _curves(setup: Setup, run, first: int) -> dict:
    """Certified curves from the first certified step and from later ones, in steps of the run."""
    steps, losses = np.full((CURVES, POINTS), np.nan), np.full((CURVES, POINTS), np.nan)
    eta, data = setup.cell.train.step_size, setup.dataset
    for i, step in enumerate(dict.fromkeys([first, max(4 * first, 10), max(16 * first, 40)])):
        if step >= run.last_step:
            continue
        at = follow(setup.start, data, step_size=eta, num_steps=step).final
        promise = forecast(at, data, step_size=eta)
        if not promise.pieces:
            continue
        chosen = np.unique(np.linspace(0, len(promise.steps) - 1, POINTS - 1).astype(int))
        steps[i, : len(chosen) + 1] = step + np.array([0, *promise.steps[chosen]])
        losses[i, : len(chosen) + 1] = [promise.loss, *promise.certified_loss[chosen]]
    at = np.unique(np.geomspace(1, run.last_step, 60).astype(int))
    return {
        "loss": (("point",), run.train_loss[at]),
        "loss_step": (("point",), at),
        "curve_step": (("curve", "place"), steps),
        "curve_loss": (("curve", "place"), losses),
    }
