"""Fixed collections of sequences: handwritten digits, and the user's own files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from manyheads._check import check, check_fields, whole
from manyheads.data.dataset import Dataset
from manyheads.data.mapped import is_large
from manyheads.data.read import paths_of


@dataclass(frozen=True)
class Digits:
    """Handwritten digits of two classes, each 8x8 image as 16 tokens of dimension 4 (its 2x2 patches, row by row).

    Pixels are scaled to [0, 1], so no token is longer than 2. The larger digit is +1. Needs
    scikit-learn, which carries the images (1,797 in all).
    """

    first: int = 3
    second: int = 8
    num_tokens: ClassVar = 16
    dim: ClassVar = 4
    columns: ClassVar = 4  # in which the patches of an image are drawn

    def __post_init__(self) -> None:
        check_fields(self, first=whole(0, 9), second=whole(0, 9))
        if self.first == self.second:
            raise ValueError(
                f"first and second are both {self.first}; choose two different digits."
            )

    def load(self) -> Dataset:
        """All images of the two digits."""
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ValueError(
                "the digits come with scikit-learn: install it with `pip install manyheads[data]`."
            ) from None
        images, labels = load_digits(return_X_y=True)
        pair = sorted((self.first, self.second))
        chosen = np.isin(labels, pair)
        patches = (
            images[chosen].reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4) / 16
        )
        return Dataset.from_arrays(
            patches, labels[chosen], name=f"digits {pair[0]} and {pair[1]}", norm_bound=2.0
        )


@check(first=whole(0, 9), second=whole(0, 9))
def digits(first: int = Digits.first, second: int = Digits.second) -> Dataset:
    """All images of two handwritten digits as token sequences; see `Digits`."""
    return Digits(first, second).load()


@dataclass(frozen=True)
class File:
    """An .npz file with arrays `tokens` (n, T, d) and `labels`, a table, or "X.npy,y.npy"."""

    path: str

    def load(self, positive: str | None = None) -> Dataset:
        """All sequences of the file; those of a large one stay there (`Dataset.open`)."""
        paths = paths_of(self.path)
        return (Dataset.open if is_large(paths[0]) else Dataset.load)(*paths, positive=positive)
