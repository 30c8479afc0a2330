"""Small tasks for the tests of the probe; few shapes, so that compiled programs are shared."""

import numpy as np


def marked(count=60, labels=2, seed=0, ragged=True):
    """A sequence's label is that of one of its tokens, at any place, marked by its length; X, y, mask."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6, 4))
    directions = np.eye(4)[:labels]
    y = rng.integers(0, labels, count)
    lengths = rng.integers(3, 7, count) if ragged else np.full(count, 6)
    mask = np.arange(6)[None, :] < lengths[:, None]
    X[np.arange(count), rng.integers(0, 3, count)] += 5 * directions[y]
    return X, np.array(list("abc"))[y], mask


def hidden(count=160, seed=0):
    """One token is marked by its second feature; the sign of its first is the label, and the others' drown it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6, 4)) * [2.0, 1.0, 1.0, 1.0]
    at = rng.integers(0, 6, count)
    X[np.arange(count), at, 1] += 7.0
    return X, np.where(X[np.arange(count), at, 0] > 0, "b", "a")
