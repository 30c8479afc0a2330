"""A run beside what was promised about it."""

import math

import numpy as np

from manyheads.theory.manyheads2026.forecast import ENLARGE
from manyheads.theory.walk import follow


def compared(start, data, step, promise):
    """The run from that step on, for as many steps as are certified to halve the loss."""
    eta, steps = promise.step_size, promise.steps_to_reduce
    at = follow(start, data, step_size=eta, num_steps=step).final
    loss = np.minimum.accumulate(follow(at, data, step_size=eta, num_steps=steps).loss)
    within = promise.steps <= steps
    kept = loss[promise.steps[within]] <= promise.certified_loss[within] * (1 + ENLARGE)
    half = np.flatnonzero(loss <= loss[0] / 2 * (1 + ENLARGE))
    measured = int(half[0]) if len(half) else math.inf
    counts = {"levels": int(within.sum()), "kept": int(kept.sum())}
    return {"promised": steps, "measured": measured, **counts}
