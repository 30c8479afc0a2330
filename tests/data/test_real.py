"""Digits as tokens."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manyheads.data.real import digits


def test_patches_are_those_of_the_images():
    data = digits(8, 3)
    images, labels = load_digits(return_X_y=True)
    chosen = images[np.isin(labels, (3, 8))].reshape(-1, 8, 8) / 16
    assert data.tokens.shape == (len(chosen), 16, 4) and data.label_names == ("3", "8")
    for row in range(4):
        for column in range(4):
            patch = chosen[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(-1, 4)
            np.testing.assert_array_equal(data.tokens[:, 4 * row + column], patch)
    np.testing.assert_array_equal(data.labels > 0, labels[np.isin(labels, (3, 8))] == 8)
    assert data.token_radius <= 2


@pytest.mark.parametrize("pair", [(3, 3), (3, 10), (-1, 2)])
def test_bad_digits_are_refused(pair):
    with pytest.raises(ValueError, match="digit|whole number >= 0 and <= 9"):
        digits(*pair)


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"manyheads\[data\]"):
        digits()
