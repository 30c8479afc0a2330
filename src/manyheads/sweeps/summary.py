"""The results of a sweep as a small table: one row for each setting of the axes, means over seeds. Needs no JAX."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import xarray

MOST_ROWS, MOST_COLUMNS = 30, 6
FIRST = ("train_loss", "test_loss", "margin")  # what is shown first, where it was recorded


def by_axis(results: xarray.Dataset) -> str:
    """One row for each setting of the axes; numbers are means over seeds, of records the last one of each run."""
    cells = results["status"].dims
    axes = [str(dim) for dim in cells if dim != "seed"]
    shown = _columns(results, cells)
    if not shown:
        return "no results to show"
    places = [range(results.sizes[axis]) for axis in axes]
    rows = [[*axes, *shown]]
    for where in list(product(*places))[:MOST_ROWS]:
        at = dict(zip(axes, where, strict=True))
        rows.append(
            [_text(results[axis].values[i]) for axis, i in at.items()]
            + [_mean(array.isel(at).values) for array in shown.values()]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(f"{word:>{width}}" for word, width in zip(row, widths, strict=True))
        for row in rows
    ]
    total = int(np.prod([len(place) for place in places]))
    if total > MOST_ROWS:
        lines.append(
            f"and {total - MOST_ROWS} more rows; `manyheads export --out results.csv` writes all"
        )
    seeds = results.sizes.get("seed", 1)
    if seeds > 1:
        lines.append(f"means over {seeds} seeds, with their standard errors")
    return "\n".join(lines)


def _columns(results: xarray.Dataset, cells: tuple) -> dict[str, xarray.DataArray]:
    """The numbers of a cell: records at their last step, and whatever is one number or one verdict."""
    found: dict[str, xarray.DataArray] = {}
    names = [name for name in FIRST if name in results] + [
        str(name) for name in results.data_vars if name not in FIRST
    ]
    for name in names:
        array = results[name]
        if array.dtype.kind in "fiub" and array.dims == (*cells, "step"):
            found[name] = _last(array)
        elif array.dims == cells and (array.dtype.kind in "fiub" or name.endswith("_verdict")):
            found[name] = array
    return dict(list(found.items())[:MOST_COLUMNS])


def _last(array: xarray.DataArray) -> xarray.DataArray:
    """The last record of every run; runs that ended early have NaN behind it."""
    values = np.asarray(array.values, float)
    place = np.where(np.isfinite(values), np.arange(values.shape[-1]), 0).max(axis=-1)
    return xarray.DataArray(
        np.take_along_axis(values, place[..., None], axis=-1)[..., 0], dims=array.dims[:-1]
    )


def _mean(values: Any) -> str:
    """The mean over seeds with its standard error; of verdicts, which there are."""
    values = np.atleast_1d(values).ravel()
    if values.dtype.kind not in "fiub":
        return "/".join(sorted({str(value) for value in values} - {""})) or "-"
    known = values[np.isfinite(values.astype(float))].astype(float)
    if not len(known):
        return "-"
    error = f" ± {known.std(ddof=1) / np.sqrt(len(known)):.1g}" if len(known) > 1 else ""
    return f"{known.mean():.4g}{error}"


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
