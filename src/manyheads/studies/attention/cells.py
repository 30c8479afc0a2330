"""What the heads look at: attention maps, mass on relevant tokens, alignment with W_* and with each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.studies.kit.cells import descend, focus, mixture_of, records
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up


def look(cell: Cell, *, map_steps: list[int]) -> dict:
    r"""Over time: `focus`, the mean attention on relevant tokens, and `mass`, the same for heads of each sign.

    At `map_steps`: `alignment` of each class, $\langle W_g,W_*\rangle/\|W_g\|\|W_*\|$, and its mean absolute value.
    `maps` are mean attention weights at `map_steps` with the relevant tokens of every sequence put first, one map per
    sign of the heads' starting readout (+ and -; a zero start has + only). `spread` is the largest minus the
    smallest final mass of a class, `classes` how many distinct heads there are.
    """
    setup = set_up(cell)
    steps = sorted({0, *map_steps, cell.train.num_steps})
    run = descend(setup, record="log", snapshots=steps)
    task = mixture_of(setup)
    star = task.W_star
    start, counts = setup.start, setup.start.multiplicity
    signs = head_signs(start, task.U_star)
    maps = np.full((2, len(steps), setup.dataset.num_tokens, setup.dataset.num_tokens), np.nan)
    alignment = np.zeros((len(steps), start.num_classes))
    for k, step in enumerate(steps):
        model = run.model(step)
        W = np.asarray(model.key_query)
        size = np.linalg.norm(W.reshape(len(W), -1), axis=1) * np.linalg.norm(star)
        with np.errstate(invalid="ignore", divide="ignore"):
            alignment[k] = np.einsum("gde,de->g", W, star) / size
        by_class = sorted_maps(model, setup.dataset)
        for row, sign in enumerate((1, -1)):
            if np.any(signs == sign):
                maps[row, k] = np.average(
                    by_class[signs == sign], axis=0, weights=counts[signs == sign]
                )
    mass = np.asarray(run.attention_mass)
    by_sign = [
        np.average(mass[:, signs == sign], axis=1, weights=counts[signs == sign])
        if np.any(signs == sign)
        else np.nan * mass[:, 0]
        for sign in (1, -1)
    ]
    return {
        **records(run, focus=focus(run)),
        "map_step": (("map",), np.array(steps)),
        "maps": (("sign", "map", "query", "key_token"), maps),
        "mass": (("sign", "record"), np.stack(by_sign)),
        "alignment": (("map", "head_class"), alignment),
        "mean_alignment": (("map",), np.abs(alignment) @ counts / counts.sum()),
        "spread": float(mass[-1].max() - mass[-1].min()),
        "classes": start.num_classes,
    }


def head_signs(start: MultiHead, U_star: np.ndarray) -> np.ndarray:
    """+1 or -1, the sign of the starting readout along U_*; +1 if it starts at zero."""
    along = np.einsum("gtd,td->g", np.asarray(start.readout, np.float64), U_star)
    return np.where(along >= 0, 1, -1)


def sorted_maps(model: MultiHead, dataset: Dataset) -> np.ndarray:
    """Mean attention of every class over a dataset, tokens reordered so that the relevant ones come first."""
    order = np.argsort(~np.asarray(dataset.relevant), axis=1, kind="stable")
    tokens = np.take_along_axis(dataset.tokens, order[:, :, None], axis=1)
    with jax.enable_x64(True):
        return np.asarray(jnp.mean(jax.vmap(model.attention)(jnp.asarray(tokens)), axis=0))
