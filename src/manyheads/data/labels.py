"""Labels of two values, or of one against all others, as +1 and -1 with their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from manyheads._check import array_of, shown
from manyheads.data.read import Contents

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset


def labels_of(found: Contents, path: str | Path) -> tuple[Any, str | None]:
    """The labels of a file by their names, and the name of +1 where the file says it and a sequence has it."""
    if found.labels is None:
        raise ValueError(
            f"{path} holds no labels. Save an .npz with np.savez(path, tokens=..., labels=...), "
            "give a table the "
            "column 'label', and an .npy file of tokens a second one with its labels."
        )
    names, second = found.named
    return names, second if second in names else None


def checked_labels(labels, num_examples: int) -> np.ndarray:
    """One label per sequence, as numbers or texts."""
    y = array_of(labels, "labels")
    if y.dtype == object and y.ndim == 1 and all(isinstance(value, str) for value in y):
        # as pandas keeps strings
        y = y.astype(str)
    if y.shape != (num_examples,):
        raise ValueError(
            f"labels has shape {y.shape}; it must be ({num_examples},), one label per sequence."
        )
    if y.dtype.kind not in "fiubUSMm":
        raise ValueError(
            f"labels must be numbers or strings; got dtype {y.dtype}. Convert with "
            "np.array(labels, dtype=str)."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(
            f"labels[{int(np.argmin(np.isfinite(y)))}] is NaN or infinite; every sequence needs a "
            "label."
        )
    return y


def signs(
    labels, num_examples: int, positive, like: Dataset | None
) -> tuple[np.ndarray, tuple[str, str]]:
    """Labels as +1 and -1, and the names of -1 and +1; `positive` and `like` are those of `Dataset.from_arrays`."""
    y = checked_labels(labels, num_examples)
    values = np.unique(y)
    if like is not None:
        return _signs_like(y, values, like)
    chosen = [
        value for value in values if positive is not None and _same_name(str(positive), str(value))
    ]
    if positive is not None and not chosen:
        raise ValueError(
            f"positive={shown(positive)} is not among the labels, "
            f"{', '.join(map(str, values[:4]))}."
        )
    if chosen and len(values) > 2:
        return np.where(y == chosen[0], 1.0, -1.0), (f"not {chosen[0]}", str(chosen[0]))
    if chosen and chosen[0] == values[0]:
        values = values[::-1]
    if len(values) > 2:
        few = ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")
        raise ValueError(
            f"labels have {len(values)} values ({few}); two are allowed. Choose one class against "
            "the rest with "
            "positive=."
        )
    if len(values) < 2:
        raise ValueError(
            f"all {num_examples} labels are {values[0]}; a classifier needs sequences of both "
            "classes."
        )
    return np.where(y == values[1], 1.0, -1.0), (str(values[0]), str(values[1]))


def _signs_like(
    y: np.ndarray, values: np.ndarray, like: Dataset
) -> tuple[np.ndarray, tuple[str, str]]:
    """Labels that have the names of another dataset's; numbers may be written differently, as 1 and 1.0."""
    if not hasattr(like, "label_names"):
        raise ValueError(f"like={shown(like)} must be a Dataset, the training data say.")

    known = {
        str(v): [i for i, name in enumerate(like.label_names) if _same_name(str(v), name)]
        for v in values
    }
    against_all = like.label_names[0] == f"not {like.label_names[1]}"
    if (strange := [value for value, places in known.items() if not places]) and not against_all:
        raise ValueError(_other_names(strange[0], like))
    signs = {value: 2.0 * places[0] - 1 if places else -1.0 for value, places in known.items()}
    return np.array([signs[str(value)] for value in y]), like.label_names


def _same_name(name: str, other: str) -> bool:
    try:
        return name == other or float(name) == float(other)
    except ValueError:
        return False


def _other_names(name: str, like: Dataset) -> str:
    first, second = like.label_names
    return f"label {name!r} is none of {like.name}'s, which are {first!r} and {second!r}; give both data the same labels."


def check_same_labels(dataset: Dataset, other: Dataset) -> None:
    """Refuse data whose labels have other names than those of the first, which would count everything as wrong."""
    if not all(map(_same_name, dataset.label_names, other.label_names)):
        strange = [
            n
            for n in other.label_names
            if not any(_same_name(n, known) for known in dataset.label_names)
        ]
        if not strange:
            raise ValueError(
                f"{other.name} has {other.label_names[1]!r} as +1 and {dataset.name} has "
                f"{dataset.label_names[1]!r}; "
                "pass like= to Dataset.from_arrays, or positive= for both."
            )
        raise ValueError(
            f"{_other_names(strange[0], dataset)[:-1]}, or pass like= to Dataset.from_arrays."
        )
