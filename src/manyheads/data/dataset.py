"""Token sequences with labels, checked once at the door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._card import card
from manyheads._check import (
    a,
    array_of,
    check,
    checked,
    checked_key,
    real_array,
    shown,
    whole,
)
from manyheads._check import (
    positive as is_positive,
)
from manyheads.data.files import write_npz
from manyheads.data.labels import labels_of, signs
from manyheads.data.mapped import Mapped
from manyheads.data.origin import Origin
from manyheads.data.read import padded, read, table_parts

LARGEST_TOKEN = (
    # beyond it squares of gradients, the sixth powers of tokens, come near overflow
    1e40
)
# below it they come near underflow
SMALLEST_TOKEN = 1e-40


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Sequences `tokens (n, T, d)` with `labels` +1 and -1; `Dataset(X, y)` takes labels of any two values.

    It has a length, slices are datasets, and iterating gives real tokens with the name of their
    label. `from_lists`, `from_pandas`, `load` and `open` make one of other things, the `sample`
    method of a data source draws one.

    Args:
        tokens: numbers of shape (n, T, d): an array, a tensor of PyTorch, or lists.
        labels: one for each sequence; the larger of the two values becomes +1.
        mask: True for real tokens (None: all are real).
        relevant: marks the label-relevant tokens where they are known.
        label_names: which of the user's values became -1 and +1.
        name: what tables call it.
        norm_bound: what no token of the distribution exceeds in norm, where that is known: bounded
            data sources have it,
            and statements about sequences not yet seen need it.
        origin: the file or data source, and which of its sequences these are.
    """

    tokens: Any  # an array, or one that is read where it is (Mapped)
    labels: np.ndarray
    mask: np.ndarray | None = None
    relevant: np.ndarray | None = None
    label_names: tuple[str, str] = ("-1", "+1")
    name: str = "data"
    norm_bound: float | None = None
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        X, y = self.tokens, self.labels
        flags = [flag for flag in (self.mask, self.relevant) if flag is not None]
        # and checked where it was opened
        left = isinstance(X, Mapped)
        if not (
            all(
                isinstance(array, np.ndarray) for array in ((y, *flags) if left else (X, y, *flags))
            )
            and X.ndim == 3
            and X.size
            and y.shape == X.shape[:1]
            and all(array.dtype.kind in "fiu" for array in (X, y))
            and (left or np.isfinite(X).all())
            and (np.abs(y) == 1).all()
            and all(flag.shape == X.shape[:2] and flag.dtype == bool for flag in flags)
        ):
            # Anything else is converted as `from_arrays` does, which makes such arrays or refuses.
            made = Dataset.from_arrays(
                X,
                y,
                mask=self.mask,
                relevant=self.relevant,
                name=self.name,
                norm_bound=self.norm_bound,
            )
            for name in ("tokens", "labels", "mask", "relevant", "label_names"):
                object.__setattr__(self, name, getattr(made, name))

    @classmethod
    def from_arrays(
        cls,
        tokens,
        labels,
        *,
        mask=None,
        relevant=None,
        name: str = "data",
        norm_bound: float | None = None,
        positive=None,
        like: Dataset | None = None,
    ) -> Dataset:
        """A dataset from the user's own arrays; labels may have any two values, the larger becomes +1.

        `positive` names the value that becomes +1 instead, against all others where there are
        several. `like` is another dataset, the training data say, whose label names hold here too;
        then one class alone is allowed. Tokens where `mask` is False are ignored: they may hold
        anything, NaN too, and are set to zero. `norm_bound` says that no token of the distribution
        is longer.
        """
        if isinstance(tokens, np.ma.MaskedArray):
            raise ValueError(
                "tokens is a masked array; pass tokens.data, and one flag per token as mask=."
            )
        X = np.array(real_array("tokens", tokens), dtype=np.float64)
        if X.ndim != 3:
            raise ValueError(
                f"tokens has shape {X.shape}; it must be (sequences, tokens, dim). "
                "For one sequence pass tokens[None], for one token per sequence tokens[:, None, :]."
            )
        if 0 in X.shape:
            raise ValueError(
                f"tokens has shape {X.shape}; every axis must have at least one entry."
            )
        real, known = _flags(mask, X.shape[:2], "mask"), _flags(relevant, X.shape[:2], "relevant")
        if real is not None:
            X[~real] = 0.0
        _check_sizes(X)
        y, names = signs(labels, len(X), positive, like)
        data = cls(X, y, real, known, names, str(name), _bound(norm_bound, X))
        return data._checked(both=like is None)

    @classmethod
    def open(
        cls,
        tokens,
        labels=None,
        *,
        mask=None,
        relevant=None,
        name: str | None = None,
        norm_bound: float | None = None,
        positive=None,
        like: Dataset | None = None,
    ) -> Dataset:
        """A dataset whose tokens stay where they are and are read block by block: more than memory or a device holds.

        `tokens` is an .npy file, with `labels` a second one or an array; an .npz file that was not
        compressed, with its own labels; or an array in memory, which is not copied. They keep their
        precision. All are read once here, to be checked. `train` reads them chunk by chunk at every
        step; a subset of at most 256 MiB is read into memory; what needs all tokens at once says so
        if there is no room. The rest is as for `from_arrays`.
        """
        meta: dict[str, Any] = {}
        origin = Origin()
        if isinstance(tokens, str | Path):
            origin = _file_origin(tokens, labels)
            second = labels if isinstance(labels, str | Path) else None
            found = read(tokens, second, mapped=True)
            meta, tokens, usual = found.meta, found.tokens, Path(tokens).stem
            if second is not None or labels is None:
                labels, preset = labels_of(found, usual)
                positive = preset if positive is None and like is None else positive
            mask, relevant = (
                b if a is None else a for a, b in ((mask, found.mask), (relevant, found.relevant))
            )
        else:
            tokens, usual = real_array("tokens", tokens), "data"
        if tokens.ndim != 3 or 0 in tokens.shape or tokens.dtype.kind not in "fiu":
            raise ValueError(
                f"tokens has shape {tokens.shape} and dtype {tokens.dtype}; it must hold numbers "
                "of shape "
                "(sequences, tokens, dim)."
            )
        real, known = (
            _flags(mask, tokens.shape[:2], "mask"),
            _flags(relevant, tokens.shape[:2], "relevant"),
        )
        X = Mapped(tokens, None, real)
        _check_sizes(X)
        y, names = signs(labels, len(X), positive, like)
        bound = _bound(meta.get("norm_bound") if norm_bound is None else norm_bound, X)
        data = cls(X, y, real, known, names, str(name or meta.get("name", usual)), bound, origin)
        return data._checked(both=like is None)

    @property
    def in_place(self) -> bool:
        """Whether the tokens are read block by block from where they are (`Dataset.open`)."""
        return isinstance(self.tokens, Mapped)

    @classmethod
    def from_lists(cls, sequences, labels, **more) -> Dataset:
        """A dataset from sequences of different length, arrays (tokens, dim); `more` is as for `from_arrays`."""
        tokens, mask = padded(sequences)
        return cls.from_arrays(tokens, labels, mask=mask, **more)

    @classmethod
    def from_pandas(cls, table, *, sequence=None, label=None, features=None, **more) -> Dataset:
        """A dataset from a DataFrame; `more` is as for `from_arrays`.

        With one row per token, `sequence` is the column that says to which sequence a row belongs,
        `label` the one with the label (by default of these names) and `features` the others, in the
        order of the rows. With one row per sequence there is a column `tokens` of lists of lists of
        numbers.
        """
        tokens, mask, labels = table_parts(table, sequence, label, features)
        return cls.from_arrays(tokens, labels, mask=mask, **more)

    def _checked(self, both: bool = True) -> Dataset:
        if self.mask is not None and not self.mask.any(axis=1).all():
            i = int(np.argmin(self.mask.any(axis=1)))
            raise ValueError(f"mask[{i}] is all False: sequence {i} has no real token; drop it.")
        if both and len(np.unique(self.labels)) < 2:
            raise ValueError(
                f"all {len(self.labels)} labels are {self.labels[0]:+g}; a classifier needs "
                "sequences of both classes. "
                "Draw more sequences, or pass another key."
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
        return max(1.0, _longest(self.tokens, self.mask))

    def subset(self, indices: Sequence[int] | np.ndarray) -> Dataset:
        """The sequences with these indices, in this order (one class alone is allowed here)."""
        n, index = self.num_examples, array_of(indices, "indices")
        if index.dtype == bool and index.shape == (n,):
            index = np.flatnonzero(index)
        if (
            index.ndim != 1
            or index.dtype.kind not in "iu"
            or not index.size
            or index.min() < -n
            or index.max() >= n
        ):
            raise ValueError(
                f"indices={shown(indices)} must be whole numbers from 0 to {n - 1}, at least one, "
                f"or {n} flags."
            )

        def pick(array):
            return None if array is None else array[index]

        tokens = (
            self.tokens.chosen(index) if isinstance(self.tokens, Mapped) else self.tokens[index]
        )
        return Dataset(
            tokens,
            self.labels[index],
            pick(self.mask),
            pick(self.relevant),
            self.label_names,
            self.name,
            self.norm_bound,
            self.origin.chosen(index % n),
        )

    def without(self, i: int) -> Dataset:
        """All sequences but the i-th."""
        if checked("i", i, whole(0)) >= self.num_examples:
            raise ValueError(
                f"i={i} is outside 0..{self.num_examples - 1}, the sequences of this dataset."
            )
        return self.subset(np.delete(np.arange(self.num_examples), i))

    def split(self, first: float, *, key) -> tuple[Dataset, Dataset]:
        """Two disjoint parts, drawn at random: `first` sequences, or that share of them, and the rest."""
        n, count = self.num_examples, first
        if isinstance(first, float | np.floating) and 0 < first < 1:
            count = min(max(round(first * n), 1), n - 1)
        if isinstance(count, float | np.floating) or not 1 <= checked("first", count, whole()) < n:
            raise ValueError(
                f"first={shown(first)} must be between 1 and {n - 1}, so that both parts have "
                "data, or a share between "
                "0 and 1."
            )
        order = split_order(n, key)
        return self.subset(order[:count]), self.subset(order[count:])

    def with_constant(self) -> Dataset:
        """The same sequences with one more feature, which is 1 for every real token."""
        real = np.ones(self.tokens.shape[:2]) if self.mask is None else self.mask
        bound = None if self.norm_bound is None else float(np.hypot(self.norm_bound, 1.0))
        return replace(
            self, tokens=np.concatenate([self.tokens, real[:, :, None]], axis=2), norm_bound=bound
        )

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, index):
        """Sequences of a slice, indices or flags as a dataset; one sequence as its real tokens and its label name."""
        if isinstance(index, slice):
            return self.subset(np.arange(self.num_examples)[index])
        if not isinstance(index, int | np.integer) or isinstance(index, bool):
            return self.subset(index)
        if not -self.num_examples <= index < self.num_examples:
            raise IndexError(
                f"index {index} is outside the {self.num_examples} sequences of this dataset."
            )
        tokens = self.tokens[index] if self.mask is None else self.tokens[index][self.mask[index]]
        return tokens, self.names[index]

    def __iter__(self):
        return (self[i] for i in range(self.num_examples))

    @property
    def names(self) -> np.ndarray:
        """The label of every sequence by its name."""
        return np.array(self.label_names)[(self.labels > 0).astype(int)]

    @check(path=_check.path)
    def save(self, path: str | Path) -> None:
        """Write an .npz that `Dataset.load` reads back equal (and refuses when only one class is left)."""
        meta: dict[str, Any] = {"name": self.name}
        meta |= {"label_names": list(self.label_names), "norm_bound": self.norm_bound}
        arrays = {
            "tokens": self.tokens,
            "labels": self.labels,
            "mask": self.mask,
            "relevant": self.relevant,
        }
        write_npz(path, {k: v for k, v in arrays.items() if v is not None}, meta)

    @classmethod
    @check(path=_check.path)
    def load(
        cls,
        path: str | Path,
        labels: str | Path | None = None,
        *,
        positive=None,
        like: Dataset | None = None,
    ) -> Dataset:
        """Read an .npz with arrays `tokens` and `labels`, and optionally `mask` and `relevant`; or another format.

        Of an .npy file of tokens `labels` is the .npy file of its labels. A .csv or .parquet file
        is read as `from_pandas` reads a table with the usual names of columns. `positive` and
        `like` are as for `from_arrays`.
        """
        found = read(path, labels)
        names, second = labels_of(found, path)
        if positive is None and like is None:
            positive = second
        data = cls.from_arrays(
            found.tokens,
            names,
            mask=found.mask,
            relevant=found.relevant,
            positive=positive,
            like=like,
            name=found.meta.get("name", Path(path).stem),
            norm_bound=found.meta.get("norm_bound"),
        )
        return replace(data, origin=_file_origin(path, labels))

    def __str__(self) -> str:
        up = int((self.labels > 0).sum())
        ragged = (
            ""
            if self.mask is None
            else f", lengths {self.mask.sum(1).min()} to {self.mask.sum(1).max()}"
        )
        return (
            f"{self.name}: {self.num_examples} sequences of {self.num_tokens} tokens in dimension "
            f"{self.dim}{ragged}; "
            f"{up} labeled {self.label_names[1]} (+1), {self.num_examples - up} labeled "
            f"{self.label_names[0]} (-1); "
            f"largest token norm {_longest(self.tokens):.4g}"
            + (
                f"; read block by block{self.tokens.path and f' from {self.tokens.path}'}"
                if self.in_place
                else ""
            )
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        ups = int((self.labels > 0).sum())
        return card(
            self.name,
            {
                "sequences": self.num_examples,
                "tokens": self.num_tokens
                if self.mask is None
                else f"{self.mask.sum(1).min()} to {self.num_tokens}",
                "dimension": self.dim,
                f"{self.label_names[1]} (+1)": ups,
                f"{self.label_names[0]} (-1)": self.num_examples - ups,
            },
        )


def _file_origin(path: str | Path, labels: Any) -> Origin:
    second = f",{labels}" if isinstance(labels, str | Path) else ""
    return Origin(f"{path}{second}")


def split_order(num_examples: int, key) -> np.ndarray:
    """The random order in which `split` takes sequences."""
    return np.asarray(jax.random.permutation(checked_key(key), num_examples))


def _bound(norm_bound, tokens: np.ndarray | Mapped) -> float | None:
    """A known bound on the norms of tokens, which those at hand must not exceed by more than rounding."""
    if norm_bound is None:
        return None
    bound, seen = checked("norm_bound", norm_bound, is_positive), _longest(tokens)
    if seen > bound * (1 + 1e-11):
        raise ValueError(
            f"norm_bound={bound:g} is below the largest token norm, {seen:g}; pass at least that."
        )
    return bound


def _longest(tokens: np.ndarray | Mapped, mask: np.ndarray | None = None) -> float:
    """The largest norm of a token; tokens that are left in place are zero where the mask is."""
    if isinstance(tokens, Mapped):
        return tokens.largest[1]
    norms = np.linalg.norm(tokens, axis=-1)
    return float(norms.max() if mask is None else norms[mask].max())


def _check_sizes(tokens: np.ndarray | Mapped) -> None:
    """Refuse entries that are not finite, or so large or so small that products of them would not be."""
    largest = tokens.largest[0] if isinstance(tokens, Mapped) else float(np.abs(tokens).max())
    if not largest <= LARGEST_TOKEN:
        blocks = tokens.blocks() if isinstance(tokens, Mapped) else [(slice(0, None), tokens)]
        first, bad = next(
            (part.start, b)
            for part, x in blocks
            if (b := ~(np.abs(x.astype(float)) <= LARGEST_TOKEN)).any()
        )
        i, t, _ = np.argwhere(bad)[0]
        raise ValueError(
            f"tokens[{first + i}, {t}] holds NaN or an infinite value, or one beyond "
            f"{LARGEST_TOKEN:g}; "
            "replace it, or mask the token."
        )
    if 0 < largest < SMALLEST_TOKEN:
        raise ValueError(
            f"the largest entry of tokens is {largest:g}; products of entries below "
            f"{SMALLEST_TOKEN:g} may "
            f"underflow: rescale the tokens, for example tokens / {largest:g}."
        )


def _flags(flags, shape: tuple[int, int], name: str) -> np.ndarray | None:
    if flags is None:
        return None
    array = array_of(flags, name)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it must be {shape}, one flag per token.")
    if array.dtype != bool and not (array.dtype.kind in "iuf" and np.isin(array, (0, 1)).all()):
        raise ValueError(
            f"{name} must hold True/False (or 1/0); got values such as {shown(array.ravel()[0])}."
        )
    return array.astype(bool)


is_dataset = a(Dataset, "make one with Dataset.from_arrays(tokens, labels)")
