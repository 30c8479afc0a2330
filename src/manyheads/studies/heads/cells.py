"""Speed, convexity and curvature of one run, for the study of the number of heads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from manyheads.measures.curvature import loss_curvature
from manyheads.model.loss import Loss, get_loss
from manyheads.studies.kit.cells import coordinate, focus, records
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import Setup, set_up
from manyheads.theory.decomposition import decompose
from manyheads.theory.targets import proximal_target, train_loss
from manyheads.theory.walk import follow
from manyheads.training.rules import GD
from manyheads.training.together import train_together
from manyheads.training.trajectory import Trajectory


def speed(cell: Cell, *, rungs: int, noise: float) -> dict:
    r"""One start at the cell's step size times 1, 2, 4, ...: on the true labels, and on noisy ones.

    `final` and `noisy` are the last losses by step size (NaN where a run diverges), `falls` whether the loss never
    rises. On noisy labels a share `noise` of the weight of every sequence is on the other label; `noisy` is the excess
    over the entropy of that noise, the infimum over all models, so that a best step size exists. `train_loss` and
    `distance` are those of the smallest step size over time; `largest` and `smallest` the extreme eigenvalues of the
    Hessian at the start, `loss` the loss there; `focus` is the attention on relevant tokens at the end (NaN if none are
    known).
    """
    setup = set_up(cell)
    steps = [cell.train.step_size * 2.0**power for power in range(rungs)]
    plain, noisy = (
        _ladder(setup, steps, loss) for loss in (get_loss("logistic"), noisy_labels(noise))
    )
    found, first = loss_curvature(setup.start, setup.dataset, tolerance=1e-4), plain[0]
    entropy = -noise * np.log(noise) - (1 - noise) * np.log(1 - noise)
    return {
        **records(first, "train_loss", "distance"),
        "step_sizes": coordinate("rung", steps),
        "final": (("rung",), np.array([_last(run) for run in plain])),
        "noisy": (("rung",), np.array([_last(run) for run in noisy]) - entropy),
        "falls": (("rung",), np.array([_falls(run) for run in plain], float)),
        "smallest": found.smallest.value,
        "largest": found.largest.value,
        "loss": train_loss(setup.start, setup.dataset),
        "focus": float(focus(first)[-1]) if setup.dataset.relevant is not None else np.nan,
    }


@cache  # one object per rate, so that it compiles once
def noisy_labels(rate: float) -> Loss:
    r"""The logistic loss with a share of every label's weight on the other one, $\ell(m) + \text{rate}\, m$."""
    base = get_loss("logistic")
    return Loss(
        f"logistic, {rate:g} of the labels wrong",
        lambda m: base.value(m) + rate * m,
        lambda m: base.slope(m) + rate,
        base.curvature,
        lipschitz=base.lipschitz,
        smoothness=base.smoothness,
        self_bound=np.inf,
    )


def _ladder(setup: Setup, steps: list[float], loss: Loss) -> list[Trajectory]:
    many = len(steps)
    options: dict[str, Any] = {
        "num_steps": setup.cell.train.num_steps,
        "record": "all",
        "dtype": "float64",
        "loss": loss,
    }
    return train_together(
        [setup.start] * many, [setup.dataset] * many, rules=[GD(step) for step in steps], **options
    )


def _last(run: Trajectory) -> float:
    return float(run.train_loss[-1]) if run.status == "finished" else np.nan


def _falls(run: Trajectory) -> bool:
    return run.status == "finished" and bool(np.all(np.diff(run.train_loss) <= 0))


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
