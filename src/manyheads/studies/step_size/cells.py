"""The largest step size at which the loss never increases, and the ones that the theory allows."""

from __future__ import annotations

import numpy as np

from manyheads.data.mixture import TokenizedMixture
from manyheads.studies.kit.cells import descend, mixture_of
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.regime import Ray
from manyheads.theory.deora2023.training import largest_step
from manyheads.theory.targets import mixture_direction, readout_norm, train_loss
from manyheads.theory.verdict import EXPLICIT

CEILING = 2.0**12  # if one step fits separable data, every step size may descend
REFINEMENTS = 3  # bisections in the logarithm: the answer is known to a factor 2^(1/8)


def largest_steps(cell: Cell) -> dict:
    r"""The measured step size and the theory's.

    `stable`: the largest at which the loss never rises in K steps (`capped` if even the largest tried was stable).
    `ours`: $1/b_2(M)$, `printed`: $1/\beta_2(M)$, both with
    $M=\|U_0\|_{2,\infty}+1$, which Theorem 1 allows. `explicit` (mixture only): $1/\rho$ of Section 6.1 for the target
    along the paper's direction with loss 1/K.
    """
    setup = set_up(cell)
    H, data = cell.model.num_heads, setup.dataset
    M = readout_norm(setup.start, data) + 1
    shape = Shape(data.num_tokens, data.dim, data.token_radius)
    stable, capped = largest_stable(setup)
    return {
        "stable": stable,
        "capped": capped,
        "ours": 1 / shape.b2(M, H),
        "printed": 1 / shape.beta2(M, H),
        "explicit": _explicit(setup) if isinstance(setup.task, TokenizedMixture) else np.nan,
    }


def _explicit(setup: Setup) -> float:
    K, H = setup.cell.train.num_steps, setup.cell.model.num_heads
    task = mixture_of(setup)
    ray = Ray(setup.start, setup.dataset, mixture_direction(setup.start, task), task.token_radius)
    scale = ray.scale_for_loss(1 / K, H)
    return largest_step(
        ray.case(H, scale, K, 1 / K, train_loss(setup.start, setup.dataset)), EXPLICIT
    )


def largest_stable(setup: Setup) -> tuple[float, bool]:
    """The largest step size, on a grid of factor 2^(1/8), up to which the loss never rises in K steps."""
    low = 4.0
    while not _descends(setup, low):
        low /= 4
    high = 2 * low
    while _descends(setup, high):
        if high >= CEILING:
            return high, True
        low, high = high, 2 * high
    for _ in range(REFINEMENTS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if _descends(setup, middle) else (low, middle)
    return low, False


def _descends(setup: Setup, step_size: float) -> bool:
    losses = _losses(setup, step_size)
    return len(losses) == setup.cell.train.num_steps + 1 and bool(np.all(np.diff(losses) <= 0))


def _losses(setup: Setup, step_size: float) -> np.ndarray:
    return descend(setup, step_size, record="all").train_loss
