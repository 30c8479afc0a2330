"""The ledger, one statement at a time, and Definition 1 measured at a start."""

from __future__ import annotations

import json

import numpy as np

from manyheads.certificates.certify import certify
from manyheads.certificates.initialization import good_start
from manyheads.certificates.verify import verify
from manyheads.studies.cells.mixture import mixture_of
from manyheads.studies.estimate import heads_text
from manyheads.sweeps.cell import train_setup
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up

ABOUT = {
    "zero": "all parameters zero",
    "first_phase": "one step from zero on fresh data, signs balanced",
    "gaussian": "independent heads, E|W_h|² = E|U_h|² = 1",
}


def check(cell: Cell, *, statement: str, quick: bool) -> dict:
    """Check one entry on random, adversarial and extremal inputs."""
    (found,) = verify([statement], quick=quick, seed=cell.seed).findings
    return {
        "ledger": json.dumps([found.to_dict()]),
        "trials": found.trials,
        "ours": np.nan if found.ours is None else found.ours,
        "printed": np.nan if found.printed is None else found.printed,
        "holds": found.verdict.name == "HOLDS",
    }


def start(cell: Cell) -> dict:
    """P1, P2 and P3 of Definition 1, for the card, with their certificates."""
    setup = set_up(cell)
    good = good_start(setup.start, setup.dataset)
    low, high = good.interval.p3_interval
    H = setup.start.num_heads
    name = cell.start.kind.replace("_", " ").capitalize()
    card = {
        "name": f"{name} start",
        "about": f"{ABOUT[cell.start.kind]}; {heads_text(H)} heads",
        "b2": good.parameter_bound,
        "b_phi": good.model_bound,
        "p3_margin": good.margin if good.holds else 0.0,
        "p3_low": low,
        "p3_high": high,
        "distinct": f"{setup.start.num_classes} of {heads_text(H)}",
    }
    run = f"{name} start, {heads_text(H)} heads"
    certificates = [{"run": run, "certificate": c.to_dict()} for c in good.certificates()]
    return {
        "good_start": json.dumps([card]),
        "certificates": json.dumps(certificates),
        "p3_margin": card["p3_margin"],
        "p3_width": high - low,
    }


def run(cell: Cell) -> dict:
    """What the theory says about an ordinary run: first phase, few heads, a step size that works."""
    setup = set_up(cell)
    task = mixture_of(setup)
    trained = train_setup(setup)
    found = certify(
        trained, setup.dataset, test=setup.test, mixture=task, token_radius=task.token_radius, independent=True
    )
    name = f"ordinary run, {heads_text(setup.start.num_heads)} heads"
    verdicts = [certificate.verdict.name for certificate in found]
    return {
        "certificates": json.dumps([{"run": name, "certificate": c.to_dict()} for c in found]),
        **{word.lower(): verdicts.count(word) for word in ("HOLDS", "SILENT", "VIOLATED")},
        "final_loss": float(trained.train_loss[-1]),
    }
