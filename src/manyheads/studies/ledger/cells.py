"""The ledger, one statement at a time, and what it says about an ordinary run."""

from __future__ import annotations

import json

import numpy as np

from manyheads.studies.kit.cells import mixture_of, verdicts
from manyheads.studies.kit.words import heads_text
from manyheads.sweeps.cell import train_setup
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up
from manyheads.theory.certify import certify
from manyheads.theory.verify import verify


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


def run(cell: Cell) -> dict:
    """What the theory says about an ordinary run: first phase, few heads, a step size that works."""
    setup = set_up(cell)
    task = mixture_of(setup)
    trained = train_setup(setup)
    found = certify(
        trained,
        setup.dataset,
        test=setup.test,
        mixture=task,
        token_radius=task.token_radius,
        independent=True,
    )
    name = f"ordinary run, {heads_text(setup.start.num_heads)} heads"
    said = [certificate.verdict.name for certificate in found]
    return {
        "certificates": verdicts(name, found),
        **{word.lower(): said.count(word) for word in ("HOLDS", "SILENT", "VIOLATED")},
        "final_loss": float(trained.train_loss[-1]),
    }
