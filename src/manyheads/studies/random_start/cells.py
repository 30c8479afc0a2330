"""Whether the tangent features of a start separate the data, and with what margin."""

from __future__ import annotations

import numpy as np

from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import hard_margin
from manyheads.studies.kit.cells import p3_margin
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import make_task, set_up, stream
from manyheads.training.start import first_phase, zero_start

FIRST_PHASE = 7  # stream of a seed for first-phase data of the comparison
FIRST_PHASE_SIZE = 200


def separation(cell: Cell) -> dict:
    r"""`margin`: the best tangent margin for directions of norm $\sqrt2$ (P3), a proved lower end.

    0 with `separable` False where none is proved, and then `upper` bounds it. `readout_margin` and `key_query_margin`
    use one of the two parts of the features alone. `head_norm` and `score` are $B_2$ and $B_\Phi$ as measured.
    `zero_margin` and `first_phase_margin` are those of the other starts on the same data; they are the same for all H.
    """
    setup = set_up(cell)
    data = setup.dataset
    kernel = tangent_kernel(setup.start, data)
    whole, readout, key_query = (
        hard_margin(data.labels, gram=part, gram_accuracy=accuracy, tolerance=1e-4)
        for part, accuracy in (
            (kernel.matrix, kernel.accuracy),
            (kernel.readout, kernel.readout_accuracy),
            (kernel.key_query, kernel.key_query_accuracy),
        )
    )
    fresh = make_task(cell.data).sample(FIRST_PHASE_SIZE, key=stream(cell.seed, FIRST_PHASE))
    heads = np.concatenate([np.reshape(leaf, (len(leaf), -1)) for leaf in setup.start.heads], axis=1)
    return {
        "margin": whole.p3_interval[0],
        "upper": whole.p3_interval[1],
        "separable": whole.lower > 0,
        "readout_margin": readout.p3_interval[0],
        "key_query_margin": key_query.p3_interval[0],
        "head_norm": float(np.linalg.norm(heads, axis=1).max()),
        "score": float(np.abs(setup.start.scores(data)).max()),
        "zero_margin": p3_margin(zero_start(2, num_tokens=data.num_tokens, dim=data.dim), data),
        "first_phase_margin": p3_margin(first_phase(fresh, 2), data),
    }
