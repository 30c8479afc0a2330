"""Token sequences with labels, checked once at the door."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class Dataset:
    """Sequences `tokens (n, T, d)` with `labels` +1 and -1.

    `mask` is True for real tokens (None: all are real), `relevant` marks the label-relevant tokens where they are
    known, `label_names` says which of the user's values became -1 and +1. Make one with `Dataset.from_arrays`,
    `Dataset.load` or the `sample` method of a data model.
    """

    tokens: np.ndarray
    labels: np.ndarray
    mask: np.ndarray | None = None
    relevant: np.ndarray | None = None
    label_names: tuple[str, str] = ("-1", "+1")
    name: str = "data"

    @classmethod
    def from_arrays(cls, tokens, labels, *, mask=None, relevant=None, name: str = "data") -> Dataset:
        """A dataset from the user's own arrays; any two label values will do, the larger becomes +1."""
        X = _real_array(tokens, "tokens")
        if X.ndim != 3:
            raise ValueError(
                f"tokens has shape {X.shape}; it must be (sequences, tokens, dim). "
                "For one sequence pass tokens[None], for one token per sequence tokens[:, None, :]."
            )
        if 0 in X.shape:
            raise ValueError(f"tokens has shape {X.shape}; every axis must have at least one entry.")
        if not np.isfinite(X).all():
            i, t, _ = np.argwhere(~np.isfinite(X))[0]
            raise ValueError(f"tokens[{i}, {t}] holds NaN or an infinite value; remove or replace it.")
        y, names = _signs(labels, len(X))
        return cls(
            X, y, _flags(mask, X.shape[:2], "mask"), _flags(relevant, X.shape[:2], "relevant"), names, str(name)
        )._checked()

    def _checked(self) -> Dataset:
        if self.mask is not None and not self.mask.any(axis=1).all():
            i = int(np.argmin(self.mask.any(axis=1)))
            raise ValueError(f"mask[{i}] is all False: sequence {i} has no real token; drop it.")
        if len(np.unique(self.labels)) < 2:
            raise ValueError(
                f"all {len(self.labels)} labels are {self.labels[0]:+g}; a classifier needs sequences of both classes."
            )
        return self

    @property
    def num_examples(self) -> int:
        return self.tokens.shape[0]

    @property
    def num_tokens(self) -> int:
        return self.tokens.shape[1]

    @property
    def dim(self) -> int:
        return self.tokens.shape[2]

    @property
    def token_radius(self) -> float:
        """R of Assumption 1 as seen in this sample: the largest token norm, at least 1."""
        norms = np.linalg.norm(self.tokens, axis=-1)
        return max(1.0, float(norms.max() if self.mask is None else norms[self.mask].max()))

    def subset(self, indices: Sequence[int] | np.ndarray) -> Dataset:
        """The sequences with these indices, in this order (one class alone is allowed here)."""
        index = np.asarray(indices)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        if index.size == 0 or index.min() < -self.num_examples or index.max() >= self.num_examples:
            raise ValueError(f"indices must be between 0 and {self.num_examples - 1} and not empty; got {indices!r}.")

        def pick(array):
            return None if array is None else array[index]

        return Dataset(
            self.tokens[index], self.labels[index], pick(self.mask), pick(self.relevant), self.label_names, self.name
        )

    def without(self, i: int) -> Dataset:
        """All sequences but the i-th."""
        if not 0 <= i < self.num_examples:
            raise ValueError(f"i={i} is outside 0..{self.num_examples - 1}, the sequences of this dataset.")
        return self.subset(np.delete(np.arange(self.num_examples), i))

    def split(self, first: int, *, key) -> tuple[Dataset, Dataset]:
        """Two disjoint parts, drawn at random: `first` sequences and the rest."""
        if not 0 < first < self.num_examples:
            raise ValueError(
                f"first={first} must be between 1 and {self.num_examples - 1}, so that both parts have data."
            )
        import jax

        order = np.asarray(jax.random.permutation(key, self.num_examples))
        return self.subset(order[:first]), self.subset(order[first:])

    def save(self, path: str | Path) -> None:
        """Write an .npz that `Dataset.load` reads back equal."""
        meta = {"format_version": FORMAT_VERSION, "label_names": list(self.label_names), "name": self.name}
        arrays = {"tokens": self.tokens, "labels": self.labels, "mask": self.mask, "relevant": self.relevant}
        write_npz(path, {k: v for k, v in arrays.items() if v is not None}, meta)

    @classmethod
    def load(cls, path: str | Path) -> Dataset:
        """Read an .npz with arrays `tokens` and `labels`, and optionally `mask` and `relevant`."""
        arrays, meta = read_npz(path)
        if meta.get("format_version", 0) > FORMAT_VERSION:
            raise ValueError(
                f"{path} has format_version {meta['format_version']}, newer than the {FORMAT_VERSION} this version of "
                "manyheads reads; update manyheads."
            )
        missing = [name for name in ("tokens", "labels") if name not in arrays]
        if missing:
            held = ", ".join(sorted(arrays)) or "nothing"
            raise ValueError(
                f"{path} has no array {' and no array '.join(missing)}; it holds {held}. "
                "Save it with np.savez(path, tokens=..., labels=...)."
            )
        data = cls.from_arrays(
            arrays["tokens"],
            arrays["labels"],
            mask=arrays.get("mask"),
            relevant=arrays.get("relevant"),
            name=meta.get("name", Path(path).stem),
        )
        names = meta.get("label_names")
        return (
            data
            if names is None
            else Dataset(data.tokens, data.labels, data.mask, data.relevant, tuple(names), data.name)
        )

    def __str__(self) -> str:
        up = int((self.labels > 0).sum())
        ragged = "" if self.mask is None else f", lengths {self.mask.sum(1).min()} to {self.mask.sum(1).max()}"
        return (
            f"{self.name}: {self.num_examples} sequences of {self.num_tokens} tokens in dimension {self.dim}{ragged}; "
            f"{up} labeled {self.label_names[1]} (+1), {self.num_examples - up} labeled {self.label_names[0]} (-1); "
            f"largest token norm {np.linalg.norm(self.tokens, axis=-1).max():.4g}"
        )


def _real_array(values, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.array(None, dtype=object)
    if array.dtype == object or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be real numbers in one rectangular array; got dtype {array.dtype}. "
            "Pad sequences of different length and pass mask=."
        )
    return np.array(array, dtype=np.float64)


def _signs(labels, num_examples: int) -> tuple[np.ndarray, tuple[str, str]]:
    y = np.asarray(labels)
    if y.shape != (num_examples,):
        raise ValueError(f"labels has shape {y.shape}; it must be ({num_examples},), one label per sequence.")
    if y.dtype == object:
        raise ValueError(
            "labels must be numbers or strings; got Python objects. Convert with np.array(labels, dtype=str)."
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"labels[{int(np.argmin(np.isfinite(y)))}] is NaN or infinite; every sequence needs a label.")
    values = np.unique(y)
    if len(values) > 2:
        shown = ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")
        raise ValueError(
            f"labels have {len(values)} values ({shown}); two are allowed. Choose one class against the rest."
        )
    if len(values) < 2:
        raise ValueError(f"all {num_examples} labels are {values[0]}; a classifier needs sequences of both classes.")
    return np.where(y == values[1], 1.0, -1.0), (str(values[0]), str(values[1]))


def _flags(flags, shape: tuple[int, int], name: str) -> np.ndarray | None:
    if flags is None:
        return None
    array = np.asarray(flags)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it must be {shape}, one flag per token.")
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold True/False (or 1/0); got values such as {array.ravel()[0]!r}.")
    return array.astype(bool)


def write_npz(path: str | Path, arrays: dict[str, np.ndarray], meta: dict) -> None:
    """Arrays and a JSON header in one .npz, whole or not at all."""
    path = Path(path)
    scratch = path.with_name(path.name + f".{os.getpid()}.tmp")
    content: dict[str, Any] = {"meta": np.array(json.dumps(meta)), **arrays}
    try:
        with open(scratch, "wb") as file:
            np.savez(file, **content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def read_npz(path: str | Path) -> tuple[dict[str, np.ndarray], dict]:
    """What `write_npz` wrote; a plain .npz without a header has an empty one. Never unpickles."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass an .npz file.")
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop("meta"))) if "meta" in arrays else {}
    except Exception as error:  # zipfile, zlib, json and numpy each have their own
        raise ValueError(f"{path} is not a readable .npz file ({error}); write it with numpy.savez.") from None
    return arrays, meta
