"""Tokens that stay where they are, in a file or in an array of the user's, and are read block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.budget import fits_memory
from manyheads.data.files import holds_plain
from manyheads.data.read import TOKENS

# read at a time
BLOCK_BYTES = 2**25
# a part of at most that size, as float64, is read into memory
SMALL_BYTES = 2**28
# a file of at least that size is opened rather than loaded by the command line
LARGE_BYTES = 2**30


class Mapped(np.lib.mixins.NDArrayOperatorsMixin):
    """An array (n, T, d) on disk, or in memory as the user has it; indexing by sequences reads these.

    `rows` chooses sequences of `array`. `real` are the flags of real tokens: the others are read as
    zeros. Where NumPy asks for the whole array it is read as float64, if there is room for it.
    """

    ndim = 3

    def __init__(
        self, array: np.ndarray, rows: np.ndarray | None = None, real: np.ndarray | None = None
    ):
        self.array, self.rows, self.real = array, rows, real
        self.dtype = array.dtype
        self.shape = (len(array) if rows is None else len(rows), *array.shape[1:])

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def path(self) -> str:
        """The file that holds the tokens; empty for an array in memory."""
        return str(getattr(self.array, "filename", None) or "")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """The sequences of a slice, an index or indices; a slice of a file may still be that part of the file."""
        found = np.asarray(self.array[index if self.rows is None else self.rows[index]])
        if self.real is not None:
            found = np.where(self.real[index][..., None], found, found.dtype.type(0))
        return found

    @property
    def file_order(self) -> np.ndarray:
        """The sequences in the order in which they are stored."""
        return np.arange(len(self)) if self.rows is None else np.argsort(self.rows, kind="stable")

    def chosen(self, index: np.ndarray) -> Mapped | np.ndarray:
        """Some of the sequences: in memory, as float64, where they are few."""
        if 8 * len(index) * math.prod(self.shape[1:]) <= SMALL_BYTES:
            return self[index].astype(np.float64)
        rows = index if self.rows is None else self.rows[index]
        return Mapped(self.array, rows, None if self.real is None else self.real[index])

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """All sequences in order, some at a time."""
        step = max(1, BLOCK_BYTES // max(1, self.dtype.itemsize * math.prod(self.shape[1:])))
        for start in range(0, len(self), step):
            part = slice(start, min(start + step, len(self)))
            yield part, self[part]

    @cached_property
    def largest(self) -> tuple[float, float]:
        """The largest size of an entry and the largest norm of a token; NaN if an entry is."""
        entry = norm = 0.0
        for _, block in self.blocks():
            wide = block.astype(np.float64)
            entry = float(np.maximum(entry, np.abs(wide).max()))
            norm = float(np.maximum(norm, np.sqrt(np.einsum("ntd,ntd->nt", wide, wide).max())))
        return entry, norm

    def astype(self, dtype: Any) -> np.ndarray:
        """All of it, in memory."""
        kind = np.dtype(dtype)
        remedy = "pass fewer sequences, dataset.subset(range(10_000)) say; train alone reads them block by block"
        fits_memory(
            f"reading all {len(self):,} sequences into memory",
            float(self.size) * kind.itemsize,
            remedy,
        )
        whole = np.empty(self.shape, kind)
        for part, block in self.blocks():
            whole[part] = block
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.astype(np.float64 if dtype is None else dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        plain = [np.asarray(value) if isinstance(value, Mapped) else value for value in inputs]
        return getattr(ufunc, method)(*plain, **more)

    def __getattr__(self, name: str) -> Any:
        """What else an array can do, done by the whole array in memory."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def is_large(path: str | Path) -> bool:
    """Whether a file is so large that it should be opened, not loaded, and of a kind that can be."""
    path = Path(path)
    if not path.is_file() or path.stat().st_size < LARGE_BYTES:
        return False
    return path.suffix.lower() == ".npy" or (
        path.suffix.lower() == ".npz" and holds_plain(path, TOKENS)
    )
