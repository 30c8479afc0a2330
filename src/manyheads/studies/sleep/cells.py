"""When attention wakes: the first step at which a query has moved a given share of its attention."""

from __future__ import annotations

import math

import jax
import numpy as np

from manyheads.studies.kit.cells import coordinate, descend
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up
from manyheads.theory.deora2023.initialization import good_start
from manyheads.theory.deora2023.regime import smallest_heads
from manyheads.theory.manyheads2026.sleep import Uniform
from manyheads.theory.shift import attention_shift, from_uniform
from manyheads.training.start import zero_start

SHORTER = (1_000, 20_000)  # lengths tried before the full one


def wake(cell: Cell, *, shares: list[float]) -> dict:
    """`woke`: the first step at which some query of some head has moved each share, infinite if none has.

    `promised`: the steps for which Theorem W promises that none does.
    """
    setup, spec = set_up(cell), cell.train
    for num_steps in sorted({min(length, spec.num_steps) for length in (*SHORTER, spec.num_steps)}):
        moved = _moved_in(setup, num_steps)
        if moved.max() > max(shares):  # a longer run would begin the same way
            break
    uniform = Uniform(setup.start, setup.dataset)
    promises = [uniform.sleep(share, spec.step_size) for share in shares]
    return {
        "share": coordinate("share", shares),
        "woke": (("share",), np.array([_first(moved > share) for share in shares])),
        "promised": (
            ("share",),
            np.array([p.steps if spec.optimizer == "gd" else p.normalized_steps for p in promises]),
        ),
    }


def _moved_in(setup: Setup, num_steps: int) -> np.ndarray:
    """The share that has moved at every step of a run of this length."""
    spec = setup.cell.train
    if spec.optimizer == "gd":
        plan = {"step_size": spec.step_size, "num_steps": num_steps}
        return attention_shift(setup.start, setup.dataset, **plan).moved
    run = descend(
        setup,
        num_steps=num_steps,
        record="all",
        observe={"moved": _moved},
    )
    return np.asarray(run.observed["moved"])


def _moved(parameters, data) -> jax.Array:
    return from_uniform(parameters.key_query, data.tokens)


def _first(true: np.ndarray) -> float:
    return float(np.argmax(true)) if true.any() else np.inf


def where_theorem_1_speaks(cell: Cell, *, levels: list[float]) -> dict:
    """At the smallest number of heads for which Theorem 1′ certifies each mean loss: how far attention moved.

    From the zero start. `moved` is measured on the run that is certified, `allowed` is the bound of Theorem W on it.
    """
    setup = set_up(cell)
    best = good_start(setup.start, setup.dataset).theta_star()
    rows = []
    for level in levels:
        found = smallest_heads(setup.start, setup.dataset, [best], certified=level)
        start = zero_start(
            math.ceil(found.num_heads), num_tokens=setup.dataset.num_tokens, dim=setup.dataset.dim
        )
        step, steps = found.case.step_size, int(found.case.num_steps)
        seen = attention_shift(start, setup.dataset, step_size=step, num_steps=steps)
        allowed = Uniform(start, setup.dataset).least_movement(step, steps)
        rows.append(
            (found.num_heads, seen.moved.max(), np.inf if allowed is None else allowed.moved)
        )
    heads, moved, allowed = np.array(rows).T
    return {
        "level": coordinate("level", levels),
        "heads": (("level",), heads),
        "moved": (("level",), moved),
        "allowed": (("level",), allowed),
    }
