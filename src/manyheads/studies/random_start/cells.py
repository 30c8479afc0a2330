"""Whether the tangent features of a start separate the data, and with what margin."""

from __future__ import annotations

import numpy as np

from manyheads.data.door import random_stream
from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import hard_margin
from manyheads.studies.kit.cells import p3_margin
from manyheads.studies.random_start.limit import limit_kernel
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import make_task, set_up, stream
from manyheads.training.start import first_phase, zero_start

FIRST_PHASE, LIMIT = 7, 9  # streams of a seed: first-phase data of the comparison, draws of the limit
FIRST_PHASE_SIZE = 200


def separation(cell: Cell, *, compare: bool = True) -> dict:
    r"""`margin`: the best tangent margin for directions of norm $\sqrt2$ (P3), a proved lower end.

    0 with `separable` False where none is proved, and then `upper` bounds it. `head_norm` and `score` are $B_2$ and
    $B_\Phi$ as measured. With `compare`, `zero_margin` and `first_phase_margin` are those of the other starts on the
    same data; they are the same for all H.
    """
    setup = set_up(cell)
    data = setup.dataset
    kernel = tangent_kernel(setup.start, data)
    whole = hard_margin(data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy, tolerance=1e-4)
    heads = np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in setup.start.heads], axis=1)
    zero, first = (np.nan, np.nan)
    if compare:
        fresh = make_task(cell.data).sample(FIRST_PHASE_SIZE, key=stream(cell.seed, FIRST_PHASE))
        zero = p3_margin(zero_start(2, num_tokens=data.num_tokens, dim=data.dim), data)
        first = p3_margin(first_phase(fresh, 2), data)
    return {
        "margin": whole.p3_interval[0],
        "upper": whole.p3_interval[1],
        "separable": whole.lower > 0,
        "head_norm": float(np.linalg.norm(heads, axis=1).max()),
        "score": float(np.abs(setup.start.scores(data)).max()),
        "zero_margin": zero,
        "first_phase_margin": first,
    }


def infinite(cell: Cell, *, draws: int) -> dict:
    """`margin`: that of the kernel of infinitely many Gaussian heads, and `half`, from half as many draws."""
    setup, start = set_up(cell), cell.start
    scales = {"key_query_scale": start.key_query_scale, "readout_scale": start.readout_scale}
    rng = random_stream(stream(cell.seed, LIMIT))
    first, second = (limit_kernel(setup.dataset.tokens, draws=draws // 2, rng=rng, **scales) for _ in range(2))
    margins = [
        hard_margin(setup.dataset.labels, gram=kernel, tolerance=1e-4).p3_interval[0]
        for kernel in ((first + second) / 2, first)
    ]
    return {"margin": margins[0], "half": margins[1]}
