r"""The hard margin of many examples from a few columns of their Gram matrix.

Few examples hold the margin. So it is solved on a working set, the direction found is tried on all examples, and those
that it classifies worst join the set, until the two bounds meet: the margin of a part of the examples is at least that
of all, and any direction bounds it from below. Both are proved as in `margin`; no more of the Gram matrix is computed
than the columns of the working set. A working set that no direction separates ends the search.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from manyheads.measures.margin import MarginInterval, hard_margin

JOIN = 128  # examples that join the working set at a time


class Columns:
    """Columns of a Gram matrix of n features, computed when they are asked for and kept.

    `compute(indices)` gives those of `JOIN` examples at a time, and the error that an entry may have relative to the
    norms of its two features; `size` bounds these norms.
    """

    def __init__(
        self,
        compute: Callable[[np.ndarray], tuple[np.ndarray, float]],
        num_examples: int,
        size: float,
    ):
        self.compute, self.size = compute, size
        self.place = np.full(num_examples, -1)
        self.matrix, self.accuracy = np.zeros((num_examples, 0)), 0.0

    def of(self, indices: np.ndarray) -> np.ndarray:
        """All rows of these columns."""
        new = indices[self.place[indices] < 0]
        for start in range(0, len(new), JOIN):
            chosen = new[start : start + JOIN]
            block, accuracy = self.compute(np.resize(chosen, JOIN))
            self.place[chosen] = self.matrix.shape[1] + np.arange(len(chosen))
            self.matrix = np.concatenate([self.matrix, block[:, : len(chosen)]], axis=1)
            self.accuracy = max(self.accuracy, accuracy)
        return self.matrix[:, self.place[indices]]


def margin_by_columns(
    labels: np.ndarray,
    columns: Columns,
    *,
    tolerance: float,
    first: np.ndarray | None = None,
    most: int = 4000,
) -> tuple[MarginInterval, np.ndarray]:
    """The margin of the first `len(labels)` examples, and the working set, with which a search on more may begin.

    `weights` and `direction` of the interval are those of the working set. Beyond `most` examples in it the search ends
    with the bounds reached.
    """
    n, y = len(labels), np.asarray(labels, float)
    chosen = np.arange(min(n, JOIN)) if first is None else first
    eps, lower, worst = float(np.finfo(float).eps), 0.0, chosen[:0]
    while True:
        part = columns.of(chosen)[:n]
        gram = part[chosen]
        found = hard_margin(
            y[chosen],
            gram=(gram + gram.T) / 2,
            gram_accuracy=columns.accuracy or None,
            tolerance=tolerance / 4,
        )
        if found.lower > 0:
            a = found.direction  # of norm at most one
            rounding = columns.accuracy + (len(chosen) + 3) * eps
            allowed = rounding * columns.size * float(np.abs(a) @ np.sqrt(gram.diagonal()))
            products = y * (part @ (a * y[chosen])) - allowed
            lower = max(lower, float(products.min()))
            worst = np.setdiff1d(np.argsort(products)[:JOIN], chosen)
        done = found.lower <= 0 or found.upper - lower <= tolerance * found.upper or not len(worst)
        if done or len(chosen) >= min(n, most):
            bounds = (lower, found.upper) if found.lower > 0 else (0.0, found.upper)
            return MarginInterval(
                *bounds, found.weights, found.direction, found.scale, tolerance
            ), chosen
        chosen = np.concatenate([chosen, worst])
