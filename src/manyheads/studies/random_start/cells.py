"""Whether the tangent features of a start separate the data, and with what margin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.door import random_stream
from manyheads.measures.columns import Columns, margin_by_columns
from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import hard_margin
from manyheads.measures.rounding import gradient_size
from manyheads.studies.kit.cells import coordinate, p3_margin
from manyheads.studies.random_start.limit import draw_key_query, limit_kernel
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up, stream
from manyheads.training.start import zero_start

LIMIT = 9  # stream of a seed: draws of the limit
TOLERANCE = 1e-2  # of a margin on many sequences: the width of its interval
FINE = 1.03  # ratio of the two sample sizes that bracket where a start stops separating


def separation(cell: Cell, *, compare: bool = False) -> dict:
    r"""`margin`: the best tangent margin for directions of norm $\sqrt2$ (P3), a proved lower bound.

    If none is proved it is 0, `separable` is False and `upper` bounds it. With `compare`, `zero_margin` is that of the
    zero start, a linear model.
    """
    setup = set_up(cell)
    data = setup.dataset
    kernel = tangent_kernel(setup.start, data)
    whole = hard_margin(
        data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy, tolerance=1e-4
    )
    zero = (
        p3_margin(zero_start(2, num_tokens=data.num_tokens, dim=data.dim), data)
        if compare
        else np.nan
    )
    return {
        "margin": whole.p3_interval[0],
        "upper": whole.p3_interval[1],
        "separable": whole.lower > 0,
        "zero_margin": zero,
    }


def along(cell: Cell, *, sizes: list[int]) -> dict:
    """The same for the first n sequences of a sample, for several n, to 1%.

    `last_separable` and `first_inseparable` bracket the n at which the start stops separating: 0 and infinite if no n
    tried is one.
    """
    setup = set_up(cell)
    data, start = setup.dataset, setup.start

    def compute(indices: np.ndarray) -> tuple[np.ndarray, float]:
        kernel = tangent_kernel(start, data, data.subset(indices))
        return kernel.matrix, kernel.accuracy

    columns = Columns(compute, data.num_examples, gradient_size(start, data))
    margin, upper, bracket = _nested(data, columns, sizes)
    return {
        "sizes": coordinate("size", sizes),
        "margin": (("size",), margin),
        "upper": (("size",), upper),
        "separable": (("size",), np.where(np.isnan(margin), np.nan, margin > 0)),
        "last_separable": bracket[0],
        "first_inseparable": bracket[1],
    }


def _nested(
    data: Dataset, columns: Columns, sizes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, tuple]:
    """Margins of the first n sequences, from few to many: each working set begins with the one before.

    If some n is not separated, no larger n is.
    """
    found, chosen, low, high = [], None, 0, np.inf

    def solve(n: int, first: np.ndarray | None):
        return margin_by_columns(data.labels[:n], columns, tolerance=TOLERANCE, first=first)

    for n in sizes:
        if n < high:
            interval, grown = solve(n, chosen)
            low, high, chosen = (n, high, grown) if interval.lower > 0 else (low, n, chosen)
        found.append(interval.p3_interval)
    while low and np.isfinite(high) and high > max(low + 1, FINE * low):
        n = max(int(np.sqrt(low * high)), low + 1)
        interval, _ = solve(n, chosen)
        low, high = (n, high) if interval.lower > 0 else (low, n)
    lower, upper = np.array(found).T
    return lower, upper, (low, high)


def infinite(cell: Cell, *, sizes: list[int], draws: int) -> dict:
    """`margin`: that of the kernel of infinitely many Gaussian heads, and `half`, from half as many draws."""
    setup, start = set_up(cell), cell.start
    rng = random_stream(stream(cell.seed, LIMIT))
    W = draw_key_query(draws, setup.dataset.dim, scale=start.key_query_scale, rng=rng)
    margins = {}
    for name, drawn in (("margin", W), ("half", W[: draws // 2])):
        compute, size = _limit(setup.dataset.tokens, drawn, start.readout_scale)
        columns = Columns(compute, setup.dataset.num_examples, size)
        margins[name] = (("size",), _nested(setup.dataset, columns, sizes)[0])
    return {"sizes": coordinate("size", sizes), **margins}


def _limit(tokens: np.ndarray, W: np.ndarray, scale: float) -> tuple[Callable, float]:
    """Columns of the limit, and a bound on the norms of its features."""
    _, T, d = tokens.shape
    radius = float(np.linalg.norm(tokens, axis=-1).max())

    def compute(indices: np.ndarray) -> tuple[np.ndarray, float]:
        accuracy = 4 * T * d * len(W) * float(np.finfo(float).eps)  # of sums of that many terms
        return limit_kernel(tokens, W, scale, other=tokens[indices]), accuracy

    return compute, float(np.sqrt(T * radius**2 + scale**2 / d * radius**6))
