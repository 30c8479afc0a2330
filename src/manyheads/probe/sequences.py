"""Sequences as people have them, and as the probe reads them: standardized, with a position and a constant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manyheads._check import array_of, real_array
from manyheads.data.read import padded

LARGEST = 1e40  # entries of tokens; squares of larger ones overflow
LONGEST_POSITIONS = (
    64  # tokens; in longer sequences a position of its own each is too much to learn
)


class Sequences(NamedTuple):
    """Tokens (sequences, tokens, dim), and which of them are real; what stands at the others is never read."""

    tokens: np.ndarray
    mask: np.ndarray

    def take(self, where: Any) -> Sequences:
        """Some of the sequences."""
        return Sequences(self.tokens[where], self.mask[where])


def is_sequences(X: Any) -> bool:
    """Whether these are sequences, an array of three axes or a list of matrices, rather than a table."""
    if isinstance(X, list | tuple) or getattr(X, "dtype", None) is np.dtype(object):
        return len(X) > 0 and np.ndim(X[0]) == 2
    return getattr(X, "ndim", 0) == 3  # asked of the object itself: it may refuse NumPy's functions


def as_sequences(X: Any, mask: Any = None) -> Sequences:
    """Sequences of a 3-D array, a list of matrices, or a table, whose rows are sequences of one token.

    A token is left out where `mask` is False, or where all its features are NaN.
    """
    array = X if isinstance(X, np.ndarray) else array_of(X, "X")
    real = None
    if array.dtype == object and array.ndim <= 1:
        tokens, real = padded(X, "X")
        if mask is not None:
            raise ValueError("mask= goes with an array; a list of sequences has its own lengths.")
    else:
        tokens = real_array("X", array)
        tokens = tokens[:, None, :] if tokens.ndim == 2 else tokens
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(
            f"X has shape {tokens.shape}; pass an array (sequences, tokens, dim), a list of arrays "
            "(tokens, dim), or a table (sequences, dim) of one token each."
        )
    if mask is not None:
        real = array_of(mask, "mask")
        if real.shape != tokens.shape[:2] or real.dtype.kind not in "bui":
            raise ValueError(
                f"mask has shape {real.shape} and dtype {real.dtype}; it must be {tokens.shape[:2]}, "
                "True where a token is real."
            )
    real = np.ones(tokens.shape[:2], bool) if real is None else real.astype(bool)
    if tokens.dtype.kind == "f":
        real = real & ~np.isnan(tokens).all(axis=2)
    else:
        tokens = tokens.astype(np.float64)
    if not (some := real.any(axis=1)).all():
        raise ValueError(f"sequence {int(np.argmin(some))} of X has no real token; leave it out.")
    if not real.all():
        tokens = np.where(real[:, :, None], tokens, 0)
    if not np.isfinite(tokens).all():
        raise ValueError(
            "X contains NaN or infinity; replace them. A token whose features are all NaN is padding."
        )
    if max(abs(float(tokens.max())), abs(float(tokens.min()))) > LARGEST:
        raise ValueError(f"the largest entry of X is above {LARGEST:g}; divide X by a constant.")
    return Sequences(tokens, real)


@dataclass(frozen=True)
class Layout:
    """How a token x is read: ((x - center) / spread, its position, 1), divided by `norm`, its usual length.

    A position is one feature for each place up to `positions`; zero means that order is not read, and a place beyond
    has no feature, so that sequences may be longer than those of the fit.
    """

    center: tuple[float, ...]
    spread: tuple[float, ...]
    positions: int

    @classmethod
    def measured(cls, sequences: Sequences, weight: np.ndarray, positions: bool) -> Layout:
        """The layout for these sequences; each counts as `weight` says."""
        tokens, mask = sequences
        share = mask * weight[:, None] / np.sum(mask * weight[:, None])
        center = np.einsum("nt,ntd->d", share, tokens, dtype=np.float64)
        square = np.zeros(len(center))
        for k in range(len(center)):
            square[k] = np.sum(share * (tokens[:, :, k] - center[k]) ** 2)
        spread = np.sqrt(square)
        # A feature that never changes is left at zero rather than divided by rounding.
        constant = spread <= 1e-9 * np.maximum(np.abs(center), 1e-300)
        spread[constant] = 1.0
        return cls(
            tuple(center.tolist()),
            tuple(spread.tolist()),
            tokens.shape[1] if positions else 0,
        )

    @property
    def dim(self) -> int:
        return len(self.center)

    @property
    def norm(self) -> float:
        return float(np.sqrt((2 if self.positions else 1) * self.dim + 1))

    @property
    def features(self) -> int:
        return self.dim + self.positions + 1

    def read(self, sequences: Sequences, dtype: Any = np.float64) -> np.ndarray:
        """Features (sequences, tokens, features); zero where there is no token."""
        tokens, mask = sequences
        count, length, dim = tokens.shape
        found = np.zeros((count, length, self.features), dtype)
        found[:, :, :dim] = (tokens - np.array(self.center)) / np.array(self.spread)
        for t in range(min(length, self.positions)):
            found[:, t, dim + t] = np.sqrt(dim)
        found[:, :, -1] = 1.0
        found *= (mask / self.norm)[:, :, None]
        return found
