"""Speed, convexity and curvature of one run, for the study of the number of heads."""

from __future__ import annotations

import numpy as np

from manyheads.certificates.decomposition import decompose
from manyheads.certificates.targets import proximal_target, train_loss
from manyheads.certificates.walk import follow
from manyheads.measures.curvature import loss_curvature
from manyheads.studies.kit.cells import descend, focus, records
from manyheads.sweeps.cell import train_setup
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up


def speed(cell: Cell, *, doublings: int) -> dict:
    """Loss over time at the cell's step size, and the smallest final loss over that step size times 1, 2, 4, ...

    `best_step` is where the smallest was found; runs that diverge do not count. `focus` is the attention on relevant
    tokens at the end, averaged over heads.
    """
    setup = set_up(cell)
    run = train_setup(setup)
    best, best_step = run.train_loss[-1], cell.train.step_size
    for power in range(1, doublings + 1):
        step_size = cell.train.step_size * 2**power
        other = descend(setup, step_size, record=10**9, dtype=None)
        if other.status == "finished" and other.train_loss[-1] < best:
            best, best_step = other.train_loss[-1], step_size
    return {
        **records(run, "train_loss", "test_loss"),
        "focus": float(focus(run)[-1]),
        "best_loss": float(best),
        "best_step": float(best_step),
    }


def convexity(cell: Cell) -> dict:
    r"""What non-convexity costs along the run, for the proximal target.

    `gap` is the mean over steps of $[\hat L_k+\langle\nabla\hat L_k,\theta-\theta_k\rangle-\hat L(\theta)]_+$,
    `mean_loss` the mean train loss that it is a part of, `bound` the certificate that adds it to the target's loss and
    distance.
    """
    setup = set_up(cell)
    eta, K = cell.train.step_size, cell.train.num_steps
    target = proximal_target(setup.start, setup.dataset, step_size=eta, num_steps=K)
    walk = follow(setup.start, setup.dataset, step_size=eta, num_steps=K, targets=[target])
    (parts,) = decompose(walk)
    return {
        "gap": parts.convexity_term,
        "mean_loss": parts.mean_loss,
        "last_loss": float(walk.loss[-1]),
        "bound": parts.bound,
        "residual": abs(parts.residual),
        "status": "finished" if np.isfinite(walk.loss[-1]) else "diverged",
    }


def curvature(cell: Cell) -> dict:
    """`smallest`: the most negative eigenvalue of the loss Hessian at the start, with its `residual`; `loss` there."""
    setup = set_up(cell)
    found = loss_curvature(setup.start, setup.dataset, tolerance=1e-5)
    return {
        "smallest": found.smallest.value,
        "residual": found.smallest.residual,
        "converged": found.smallest.converged,
        "loss": train_loss(setup.start, setup.dataset),
    }
