"""Real data as token sequences."""

from __future__ import annotations

import numpy as np

from manyheads.data.dataset import Dataset


def digits(first: int = 3, second: int = 8) -> Dataset:
    """Handwritten digits of two classes, each 8x8 image as 16 tokens of dimension 4 (its 2x2 patches, row by row).

    Pixels are scaled to [0, 1], so no token is longer than 2. The larger digit is +1. Needs scikit-learn, which carries
    the images (1,797 in all).
    """
    for name, digit in (("first", first), ("second", second)):
        if digit not in range(10):
            raise ValueError(f"{name}={digit!r} must be a digit from 0 to 9.")
    if first == second:
        raise ValueError(f"first and second are both {first}; choose two different digits.")
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError("the digits come with scikit-learn: install it with `pip install manyheads[data]`.") from None
    images, labels = load_digits(return_X_y=True)
    chosen = np.isin(labels, (first, second))
    patches = images[chosen].reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 4) / 16
    return Dataset.from_arrays(patches, labels[chosen], name=f"digits {min(first, second)} and {max(first, second)}")
