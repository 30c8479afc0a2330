"""Theorem 1 where its hypotheses are literally true, and how many heads each version of it asks for."""

from __future__ import annotations

import math

import numpy as np

from manyheads.certificates.targets import mixture_direction
from manyheads.certificates.verdict import EXPLICIT, OURS, PRINTED
from manyheads.certificates.walk import follow
from manyheads.papers.deora2023.initialization import good_start
from manyheads.papers.deora2023.regime import Ray, heads_to_realize, run_literally, smallest_heads
from manyheads.papers.deora2023.training import heads_needed
from manyheads.studies.kit.cells import mixture_of, verdicts
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up
from manyheads.training.start import first_phase


def literal(cell: Cell, *, certified: float, steps: list[int]) -> dict:
    """Heads asked for, the run at the smallest number that our version certifies, and what suffices in fact.

    `asked_*`: heads for a target with loss 1/K along the paper's direction, K the cell's number of steps. `threshold`:
    the smallest number at which Theorem 1′ certifies a mean loss below `certified`, over the paper's direction and the
    best tangent direction; `bound` and `mean_loss` of the run there;
    `curve` its loss. `suffices`: the smallest power of two whose run, with the same steps and step size, stays below
    `certified`.
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
    found = smallest_heads(setup.start, setup.dataset, directions, certified=certified, num_steps=steps, token_radius=R)
    run = run_literally(setup.start, setup.dataset, found, R)
    name = f"{run.case.num_heads:.3g} heads, literal regime, seed {cell.seed}"
    at = np.unique(np.geomspace(1, run.case.num_steps, 40).round().astype(int))
    return {
        **asked,
        "threshold": run.case.num_heads,
        "steps": run.case.num_steps,
        "step_size": run.case.step_size,
        "bound": run.conditions.bound,
        "mean_loss": run.walk.mean_loss,
        "curve": (("point",), run.walk.loss[at]),
        "curve_step": (("point",), at),
        "violated": sum(c.verdict.name == "VIOLATED" for c in run.certificates),
        "holding": sum(c.verdict.name == "HOLDS" for c in run.certificates),
        "suffices": suffices(setup, run.case.step_size, run.walk.num_steps, certified),
        "certificates": verdicts(name, run.certificates),
    }


def suffices(setup: Setup, step_size: float, num_steps: int, certified: float) -> float:
    """The smallest power of two whose run from the same first-phase data has a mean loss below `certified`.

    Infinite where none up to a thousand heads has.
    """
    if setup.first is None:
        raise ValueError("the literal regime starts from a first phase; write start.kind = 'first_phase'.")
    for heads in (2**k for k in range(11)):
        start = first_phase(setup.first, heads, signs=setup.cell.start.signs)
        if follow(start, setup.dataset, step_size=step_size, num_steps=num_steps).mean_loss < certified:
            return float(heads)
    return math.inf
