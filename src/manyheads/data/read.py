"""Sequences as people have them: lists of different length, tables with a row per token or per sequence, files."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyheads._check import array_of, real_array, shown
from manyheads.data.files import FORMATS, read_npy, read_npz

# files that hold a table
TABLES = (".csv", ".parquet")
SEQUENCE, LABEL, TOKENS = (
    "sequence",
    "label",
    "tokens",
)  # the columns of a table, unless others are named


def paths_of(data: str) -> list[str]:
    """The files that a word names: one, or the .npy files of tokens and labels with a comma between them."""
    return (
        data.split(",") if re.fullmatch(r"[^,]+\.npy,[^,]+\.npy", data, re.IGNORECASE) else [data]
    )


class Contents(NamedTuple):
    """What a file of data holds, as it is there; `meta` is the header of a file that `Dataset.save` wrote."""

    tokens: Any
    labels: Any = None
    mask: Any = None
    relevant: Any = None
    meta: dict[str, Any] = {}

    @property
    def named(self) -> tuple[Any, str | None]:
        """The labels by the names that the header gives, and which of them is +1; as they are where it gives none."""
        names, values = self.meta.get("label_names"), array_of(self.labels, "labels")
        if not (
            isinstance(names, list)
            and len(names) == 2
            and values.ndim == 1
            and values.dtype.kind in "fiu"
        ):
            return self.labels, None
        return np.array([str(name) for name in names])[(values > 0).astype(int)], str(names[1])


def read(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    mapped: bool = False,
) -> Contents:
    """The content of an .npz, .npy, .csv or .parquet file; an .npy of tokens has its labels in a second file.

    With `mapped` the tokens stay in the file, an .npz or .npy.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if labels is not None and suffix != ".npy":
        raise ValueError(
            f"labels={shown(str(labels))} go with an .npy file of tokens; {path} holds its own."
        )
    if suffix == ".npy":
        return Contents(read_npy(path, mapped), None if labels is None else read_npy(labels))
    if mapped and suffix != ".npz":
        raise ValueError(
            f"{path} cannot be read block by block; pass an .npy or .npz file, or use Dataset.load."
        )
    if suffix in TABLES:
        table = read_table(path)
        known = LABEL in map(str, table.columns)
        tokens, mask, found = table_parts(
            table if known else table.assign(**{LABEL: 0}), None, None, None
        )
        return Contents(tokens, found if known else None, mask)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass a file in it. {FORMATS}")
    if path.is_file() and suffix != ".npz" and not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path} ends in {suffix or 'nothing'}, which is no format of data. {FORMATS}"
        )
    arrays, meta = read_npz(path, (TOKENS,) if mapped else ())
    if TOKENS not in arrays:
        held = ", ".join(sorted(arrays)) or "nothing"
        raise ValueError(
            f"{path} has no array tokens; it holds {held}. Save it with np.savez(path, tokens=..., "
            "labels=...)."
        )
    return Contents(
        arrays[TOKENS], arrays.get("labels"), arrays.get("mask"), arrays.get("relevant"), meta
    )


def padded(sequences: Any, name: str = "sequences") -> tuple[np.ndarray, np.ndarray | None]:
    """Sequences (T_i, d) of any length as one array (n, T, d), with a mask where lengths differ."""
    if isinstance(sequences, str | bytes) or not hasattr(sequences, "__iter__"):
        raise ValueError(
            f"{name}={shown(sequences)} must be a list of sequences, each an array (tokens, dim)."
        )
    parts = [real_array(f"{name}[{i}]", one) for i, one in enumerate(sequences)]
    if not parts:
        raise ValueError(f"{name} is empty; pass at least two sequences.")
    for i, part in enumerate(parts):
        if part.ndim != 2 or 0 in part.shape:
            raise ValueError(
                f"{name}[{i}] has shape {part.shape}; every sequence must be (tokens, dim) with "
                "one token at least."
            )
        if part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"{name}[{i}] has tokens of dimension {part.shape[1]}, {name}[0] of "
                f"{parts[0].shape[1]}; "
                "make them equal."
            )
    lengths = np.array([len(part) for part in parts])
    tokens = np.zeros((len(parts), lengths.max(), parts[0].shape[1]))
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]
    tokens[mask] = np.concatenate(parts)
    return tokens, None if mask.all() else mask


def read_table(path: str | Path) -> Any:
    """A .csv or .parquet file as a DataFrame."""
    import pandas

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; check the path.")
    if path.suffix.lower() == ".parquet":
        try:
            return pandas.read_parquet(path)
        except ImportError:
            raise ValueError(
                f"{path} needs pyarrow to be read: install it with `pip install 'manyheads[data]'`."
            ) from None
        except Exception:  # pyarrow has its own
            raise ValueError(
                f"{path} is not a readable Parquet file: it is damaged, or of another format. "
                f"{FORMATS}"
            ) from None
    try:
        table = pandas.read_csv(path)
    except pandas.errors.EmptyDataError:
        raise ValueError(f"{path} is not a readable CSV file: it is empty. {FORMATS}") from None
    except pandas.errors.ParserError:
        raise ValueError(
            f"{path} is not a readable CSV file: its rows have different numbers of cells. "
            "Separate cells by commas, "
            f"and quote cells that contain one. {FORMATS}"
        ) from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a readable CSV file: it is no UTF-8 text. {FORMATS}"
        ) from None
    if len(table.columns) == 1 and (found := re.search(r"[;\t|]", str(table.columns[0]))):
        separator = {"\t": "tabs"}.get(found[0], repr(found[0]))
        raise ValueError(
            f"{path} has one column; its cells look separated by {separator}: separate them by "
            "commas."
        )
    return table


def table_parts(
    table: Any, sequence: str | None, label: str | None, features: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Tokens, mask and labels of a DataFrame: one row per token, or one per sequence with lists in `tokens`."""
    if not (hasattr(table, "columns") and hasattr(table, "loc")):
        raise ValueError(f"table={shown(table)} must be a pandas DataFrame.")
    names = [str(column) for column in table.columns]
    table = table.set_axis(names, axis=1)
    label = LABEL if label is None else label
    _check_columns(names, [label])
    if not len(table):
        raise ValueError(
            f"the table is empty: it has the columns {', '.join(names[:8])} and no rows; add some."
        )
    if sequence is None and TOKENS in names:
        tokens, mask = padded([_nested(row) for row in table[TOKENS]], "tokens")
        return tokens, mask, _labels(table[label])
    sequence = SEQUENCE if sequence is None else sequence
    _check_columns(names, [sequence, *(features or ())])
    if (missing := table[sequence].isna().to_numpy()).any():
        raise ValueError(
            f"row {_row(missing)} has an empty cell in column {sequence!r}; every row needs "
            "the sequence to which it belongs."
        )
    columns = (
        list(features) if features is not None else [n for n in names if n not in (sequence, label)]
    )
    if features is None and (
        unnamed := [n for n in columns if not n.strip() or re.fullmatch(r"Unnamed: \d+", n)]
    ):
        raise ValueError(
            f"column {names.index(unnamed[0]) + 1} of the table has no name ({unnamed[0]!r}); if "
            "it is the index that "
            "pandas wrote, save the table with to_csv(path, index=False), else name it."
        )
    if not columns:
        raise ValueError(
            f"the table has no feature columns besides {sequence!r} and {label!r}; add some."
        )
    groups = table.groupby(sequence, sort=False, dropna=False)
    if (mixed := groups[label].nunique(dropna=False) > 1).any():
        raise ValueError(
            f"sequence {shown(mixed.index[int(np.argmax(mixed.to_numpy()))])} has rows with "
            "different labels; "
            "every row of a sequence needs the same label."
        )
    for column in columns:
        _check_numbers(table[column], column)
    tokens, mask = padded([group[columns].to_numpy() for _, group in groups], "the sequences")
    return tokens, mask, _labels(groups[label].first())


def _check_columns(names: list[str], wanted: list[str]) -> None:
    for name in wanted:
        if name not in names:
            raise ValueError(
                f"the table has no column {name!r}, only {', '.join(names[:8])}; a table has one "
                "row per token with "
                f"the columns {SEQUENCE!r}, {LABEL!r} and features, or one row per sequence with "
                f"lists in {TOKENS!r}; "
                "sequence= and label= name others."
            )


def _check_numbers(column: Any, name: str) -> None:
    """Refuse a feature that is no number, naming the first cell that is none."""
    import pandas

    if column.dtype.kind in "fiub":
        return
    bad = (pandas.to_numeric(column, errors="coerce").isna() & column.notna()).to_numpy()
    if bad.all():
        raise ValueError(
            f"column {name!r} holds no numbers; leave it out, or name the feature columns with "
            "features=."
        )
    where = _row(bad) if bad.any() else 1
    raise ValueError(
        f"row {where}, column {name!r} holds {shown(column.iloc[where - 1])}, which is no number; "
        "correct it, or name "
        "the feature columns with features=."
    )


def _row(flags: np.ndarray) -> int:
    """The number of the first row that is flagged; the first row below the names is row 1."""
    return int(np.argmax(flags)) + 1


def _labels(column: Any) -> np.ndarray:
    """Labels as NumPy has them; pandas keeps strings as objects of its own."""
    if column.isna().any():
        raise ValueError(
            f"label {int(np.argmax(column.isna().to_numpy()))} is missing; every sequence needs a "
            "label."
        )
    values = column.to_numpy()
    return values if values.dtype.kind in "fiub" else np.array([str(value) for value in values])


def _nested(row: Any) -> np.ndarray:
    """A list of lists, or its text in a CSV file, as an array; a list of numbers has tokens of dimension 1."""
    if isinstance(row, str):
        try:
            row = json.loads(row)
        except ValueError:
            raise ValueError(
                f"tokens={shown(row)} is no list; write [[1, 2], [3, 4]], one list per token."
            ) from None
    array = array_of(
        [np.asarray(token) for token in row] if hasattr(row, "__iter__") else row, "tokens"
    )
    return array[:, None] if array.ndim == 1 and array.dtype != object else array
