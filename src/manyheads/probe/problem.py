"""What is minimized: the penalized loss of one kind of probe on given sequences, for several columns at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from manyheads.model.attention import MultiHead
from manyheads.probe import columns
from manyheads.probe.columns import Shape
from manyheads.probe.lbfgs import Minimum, minimize
from manyheads.probe.self_attention import SelfAttention
from manyheads.probe.start import far_tokens


@dataclass(frozen=True)
class Kind:
    """What probes must share to be columns of one descent.

    `spread` is the norm of the queries at the start: zero for heads that begin by averaging, and equal.
    """

    decoder: str
    heads: int
    spread: float
    positions: bool

    def __str__(self) -> str:
        heads = "1 head" if self.heads == 1 else f"{self.heads} heads"
        order = "with" if self.positions else "without"
        return f"{heads}, queries of norm {self.spread:g} at the start, {order} positions"


@dataclass(frozen=True)
class Problem:
    """Features and labels cut into chunks, and how a column reads them."""

    kind: Kind
    shape: Shape
    pieces: Any  # chunks of `columns`, or a SelfAttention
    features: np.ndarray
    mask: np.ndarray

    @classmethod
    def of(
        cls,
        kind: Kind,
        features: np.ndarray,
        mask: np.ndarray,
        codes: np.ndarray,
        num_classes: int,
        width: int = 1,
    ) -> Problem:
        """The problem on these sequences; `width` is the number of columns that are usual."""
        outputs = 1 if num_classes == 2 else num_classes
        shape = Shape(kind.heads, features.shape[2], outputs)
        if kind.decoder == "query":
            pieces: Any = columns.cut(features, mask, codes, width * kind.heads)
        else:
            pieces = SelfAttention.of(kind.decoder, shape, features, mask, codes)
        return cls(kind, shape, pieces, features, mask)

    def start(self) -> np.ndarray:
        """Queries at tokens far from one another, values zero; one column."""
        queries = np.zeros((self.kind.heads, self.shape.features))
        if self.kind.spread:
            queries = self.kind.spread * far_tokens(self.features, self.mask, self.kind.heads)
        if self.kind.decoder == "query":
            found = np.zeros(self.shape.size, self.features.dtype)
            found[: queries.size] = queries.ravel()
            return found
        return self.pieces.start(queries)

    def minimize(
        self, start: np.ndarray, weight: np.ndarray, penalty: np.ndarray, *, steps: int, watch=None
    ) -> Minimum:
        """L-BFGS from `start`, with a weight for each column and sequence."""

        def function(theta: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if self.kind.decoder != "query":
                return self.pieces.evaluate(theta, weight[which], penalty[which])
            return columns.evaluate(theta, self.shape, self.pieces, weight[which], penalty[which])

        # The products of a chunk are small: a second thread of BLAS would wait and count as work.
        with threadpool_limits(1, user_api="blas"):
            return minimize(function, start, steps=steps, watch=watch)

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Scores (columns, sequences, outputs) of the sequences of the problem."""
        if self.kind.decoder != "query":
            return self.pieces.scores(theta)
        return columns.scores(theta, self.shape, self.pieces)

    def model(self, theta: np.ndarray) -> MultiHead:
        """One column as the model that the rest of the library knows, in the paper's scaling."""
        heads, outputs = self.shape.heads, self.shape.outputs
        if self.kind.decoder != "query":
            return self.pieces.model(theta)
        queries, values = self.shape.split(theta[None])
        readout = np.sqrt(heads) * values[0].reshape(heads, -1, outputs).transpose(0, 2, 1)
        readout = readout[:, 0] if outputs == 1 else readout
        return MultiHead.create(queries[0], np.ascontiguousarray(readout), decoder="query")
