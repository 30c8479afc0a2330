"""A matrix of inner products in blocks of rows, which fit the memory and are spread over devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import HIGHEST
from manyheads.training.devices import spread


class Blocks:
    """A kernel in blocks of sequences, summed over groups of heads.

    Subclasses have `groups()`; `features(group, side, chosen)` of these sequences, with an array
    (3, parts, sequences) of squares: of the norms of their gradients (read off the diagonal for one
    data set), of the errors in these, in units of one rounding, and of the terms that the inner
    products are summed from, where they are not the gradients' entries; and `products(left, right)`
    of features, one matrix for each part.
    """

    names: tuple[str, ...]
    form: str
    size: int  # sequences per block

    def __init__(self, sides: list[Dataset], dtype: np.dtype, devices: list[Any]):
        self.sides, self.dtype, self.symmetric, self.devices = (
            sides,
            dtype,
            len(sides) == 1,
            devices,
        )
        self.shape = (sides[0].num_examples, sides[-1].num_examples)
        self.on_cpu = jax.default_backend() == "cpu"

    def run(self: Any) -> tuple[np.ndarray, np.ndarray]:
        """All parts of the kernel; what was noted of all sequences, left and right."""
        K = np.zeros((len(self.names), *self.shape), self.dtype)
        seen = [np.zeros((3, len(self.names), side.num_examples)) for side in self.sides]
        ranges = self._ranges(self.sides[0])
        for _ in spread(lambda rows, device: self._rows(rows, K, seen), ranges, self.devices):
            pass
        if self.symmetric:
            for part, squares in zip(K, seen[0][0], strict=True):
                _mirror(part)
                squares[:] = part.diagonal()
        return K, np.concatenate(seen, axis=-1)

    def _rows(self: Any, rows: slice, K: np.ndarray, seen: list[np.ndarray]) -> None:
        """One block of rows, of a symmetric kernel from the diagonal on."""
        for group in self.groups():
            left = self._block(group, 0, rows, seen[0])
            for columns in self._ranges(self.sides[-1]):
                if self.symmetric and columns.start < rows.start:
                    continue
                same = self.symmetric and columns == rows
                noted = None if self.symmetric or rows.start else seen[1]
                right = left if same else self._block(group, -1, columns, noted)
                for part, product in zip(K, self.products(left, right), strict=True):
                    part[rows, columns] += product[
                        : rows.stop - rows.start, : columns.stop - columns.start
                    ]

    def _ranges(self, side: Dataset) -> list[slice]:
        n, size = side.num_examples, min(self.size, side.num_examples)
        return [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def _block(self: Any, group, k: int, rows: slice, seen: np.ndarray | None):
        """The features of a block; the last block is filled up by repeating its last sequence."""
        size = min(self.size, self.sides[k].num_examples)
        chosen = np.minimum(np.arange(rows.start, rows.start + size), rows.stop - 1)
        features, noted = self.features(group, self.sides[k], chosen)
        if seen is not None:
            seen[..., rows] += np.asarray(noted)[..., : rows.stop - rows.start]
        return features

    @property
    def largest(self) -> int:
        """Rows of a block at most, so that every device gets some; half a symmetric kernel is a triangle."""
        parts = len(self.devices) * (1 + (self.symmetric and len(self.devices) > 1))
        return -(-max(self.shape) // parts)

    def gram(self, F, G):
        """F G'; on a CPU by NumPy, whose product of a matrix with its own transpose costs half."""
        if not self.on_cpu:
            return np.asarray(jnp.matmul(F, G.T, precision=HIGHEST))
        F, G = np.asarray(F), np.asarray(G) if G is not F else None
        return F @ (F if G is None else G).T


def _mirror(M: np.ndarray, width: int = 256) -> None:
    """Copy the upper triangle of a matrix onto its lower one, in place."""
    for start in range(0, len(M), width):
        stop = min(start + width, len(M))
        M[stop:, start:stop] = M[start:stop, stop:].T
        block = np.triu(M[start:stop, start:stop])
        M[start:stop, start:stop] = block + np.triu(block, 1).T
