"""Theorem 1 where all its hypotheses hold, and how many heads each version of it requires."""

from __future__ import annotations

import math

import numpy as np

from manyheads.studies.kit.cells import coordinate, mixture_of, verdicts
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up
from manyheads.theory.deora2023.initialization import good_start
from manyheads.theory.deora2023.regime import Ray, heads_to_realize, run_literally, smallest_heads
from manyheads.theory.deora2023.training import heads_needed
from manyheads.theory.targets import mixture_direction
from manyheads.theory.verdict import EXPLICIT, OURS, PRINTED
from manyheads.theory.walk import follow
from manyheads.training.start import first_phase


def literal(cell: Cell, *, levels: list[float], steps: list[int]) -> dict:
    """Heads required, runs at the smallest numbers that Theorem 1′ certifies, and the number that actually suffices.

    `asked_*`: heads for a target with loss 1/K along the paper's direction, K the cell's number of steps. `heads`: the
    smallest number at which Theorem 1′ certifies a mean loss below each of the `levels`, along the paper's direction
    and along the best tangent direction (NaN where the tangent features do not separate). `bound` and `mean_loss` of
    the run at the smaller of the two, `curve` the loss of the first. `suffices`: the smallest power of two whose run,
    with the same steps and step size, stays below the level.
    """
    setup = set_up(cell)
    task = mixture_of(setup)
    direction = mixture_direction(setup.start, task)
    R, K = task.token_radius, cell.train.num_steps
    ray = Ray(setup.start, setup.dataset, direction, R)
    asked = {
        f"asked_{variant}": heads_to_realize(
            ray, num_steps=K, need=lambda case, v=variant: heads_needed(case, v)
        ).num_heads
        for variant in (OURS, EXPLICIT, PRINTED)
    }
    good = good_start(setup.start, setup.dataset, token_radius=R)
    directions = [direction, good.theta_star()] if good.holds else [direction]
    heads, runs = np.full((len(levels), 2), np.nan), []
    for i, level in enumerate(levels):
        found = [
            smallest_heads(
                setup.start, setup.dataset, [one], certified=level, num_steps=steps, token_radius=R
            )
            for one in directions
        ]
        heads[i, : len(found)] = [one.num_heads for one in found]
        least = min(found, key=lambda one: one.num_heads)
        runs.append(run_literally(setup.start, setup.dataset, least, R))
    at = np.unique(np.geomspace(1, runs[0].case.num_steps, 40).round().astype(int))
    certificates = [c for run in runs for c in run.certificates]
    return {
        **asked,
        "certified": coordinate("level", levels),
        "heads": (("level", "direction"), heads),
        "bound": _by_level(run.conditions.bound for run in runs),
        "mean_loss": _by_level(run.walk.mean_loss for run in runs),
        "suffices": _by_level(
            suffices(setup, run.case.step_size, run.walk.num_steps, level)
            for run, level in zip(runs, levels, strict=True)
        ),
        "curve": (("point",), runs[0].walk.loss[at]),
        "curve_step": (("point",), at),
        "violated": sum(c.verdict.name == "VIOLATED" for c in certificates),
        "holding": sum(c.verdict.name == "HOLDS" for c in certificates),
        "certificates": verdicts(
            f"{runs[0].case.num_heads:.3g} heads, literal regime, seed {cell.seed}", certificates
        ),
    }


def _by_level(values) -> tuple:
    return ("level",), np.array(list(values), dtype=float)


def suffices(setup: Setup, step_size: float, num_steps: int, level: float) -> float:
    """The smallest power of two up to a thousand whose run stays below a mean loss; infinite if none does."""
    if setup.first is None:
        raise ValueError(
            "the literal regime starts from a first phase; write start.kind = 'first_phase'."
        )
    for heads in (2**k for k in range(11)):
        start = first_phase(setup.first, heads, signs=setup.cell.start.signs)
        if follow(start, setup.dataset, step_size=step_size, num_steps=num_steps).mean_loss < level:
            return float(heads)
    return math.inf
