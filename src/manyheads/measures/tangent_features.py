r"""The margin of the tangent features $\nabla\tilde\Phi(X_i)$: of few from their kernel, of many by a working set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manyheads import _check
from manyheads._check import check, none, real, share
from manyheads.data.budget import fits_memory
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import MOST_DIRECT, MarginInterval, hard_margin, interval_of, of_gram
from manyheads.measures.working_set import Round, grow
from manyheads.model.autodiff import is_model

# bytes
MEMORY = 2e9
# columns of the kernel
AT_ONCE = 256


@check(
    model=is_model,
    dataset=is_dataset,
    tolerance=share,
    memory=real(low=1e5),
    progress=_check.function | none,
)
def tangent_margin(
    model: Any,
    dataset: Dataset,
    *,
    tolerance: float = 1e-6,
    memory: float = MEMORY,
    progress: Callable[[str], Any] | None = None,
) -> MarginInterval:
    r"""The hard margin of the tangent kernel of `model` on `dataset`, without the matrix of all pairs.

    Up to 5,000 sequences this is `hard_margin` of `tangent_kernel`. Of more, the interval is that
    of a working set (`measures.working_set`): the columns of the kernel that belong to it are kept,
    in at most `memory` bytes, and the direction found on it is evaluated on all sequences with the
    allowance for rounding that `hard_margin` makes for a Gram matrix of that accuracy. Where the
    working set outgrows `memory`, the interval is proved and wider than asked for. The coefficients
    `direction` and the `weights` are those of all sequences, zero outside the working set.
    """
    n = dataset.num_examples
    if n <= MOST_DIRECT:
        kernel = tangent_kernel(model, dataset)
        return hard_margin(
            dataset.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy, tolerance=tolerance
        )
    fits_memory(
        f"the tangent margin of {n:,} sequences",
        memory,
        "pass a smaller memory=, which may widen the interval",
    )
    columns, y = Columns(model, dataset, memory), dataset.labels.astype(float)
    grown = grow(
        n, lambda chosen: columns.solve(chosen, y, tolerance), tolerance, columns.most, progress
    )
    direction = np.zeros(n)
    direction[grown.chosen] = grown.direction
    scale = float(columns.norms.max())
    return interval_of(grown.lower, grown.upper, grown.weights, direction, scale, tolerance, 1.0)


class Columns:
    """The columns of a kernel that belong to a working set, one row of `rows` each."""

    def __init__(self, model: Any, dataset: Dataset, memory: float):
        n = dataset.num_examples
        self.model, self.dataset, self.count = model, dataset, 0
        # the columns, and those being added three times; the solver has five matrices of the working set
        left = memory - 3 * 8.0 * n * AT_ONCE
        self.most = int((np.sqrt(n**2 + 20 * max(left, 0.0) / 8) - n) / 10)
        if self.most < 2:
            raise ValueError(
                f"memory={memory:g} bytes is too little for {n:,} sequences; pass "
                f"{40.0 * n * AT_ONCE:.2g}."
            )
        # takes memory as it is filled
        self.rows = np.empty((self.most, n))
        self.norms, self.accuracy = np.zeros(n), 0.0

    def extend(self, chosen: np.ndarray) -> None:
        """Compute the columns of the sequences that were added."""
        for start in range(self.count, len(chosen), AT_ONCE):
            part = chosen[start : start + AT_ONCE]
            kernel = tangent_kernel(self.model, self.dataset, self.dataset.subset(part))
            self.rows[start : start + len(part)] = kernel.matrix.T
            self.norms, self.accuracy = kernel.norms[0], max(self.accuracy, kernel.accuracy)
        self.count = len(chosen)

    def solve(self, chosen: np.ndarray, y: np.ndarray, tolerance: float) -> Round:
        """The margin of a working set, and what its direction is sure to reach on every sequence."""
        self.extend(chosen)
        K = self.rows[: self.count]
        found = of_gram(np.ascontiguousarray(K[:, chosen]), y[chosen], tolerance / 2, self.accuracy)
        a, products = found.direction, np.zeros(len(y), np.longdouble)
        for k in np.flatnonzero(a):
            products += np.longdouble(a[k] * y[chosen[k]]) * K[k]
        products *= y
        rounding = self.accuracy + (len(chosen) + 3) * float(np.finfo(np.longdouble).eps)
        reach = np.abs(a) @ self.norms[chosen]
        square = a.astype(np.longdouble) @ products[chosen] + rounding * reach**2
        if square > 0:
            products = (products - rounding * reach * self.norms) / np.sqrt(square)
        return Round(found.upper, found.weights, a, products, found.verdict == "not separable")
