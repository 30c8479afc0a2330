"""From part files to one labeled dataset, read lazily. Needs no JAX."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import xarray
from xarray.backends import BackendArray
from xarray.core import indexing

from manyheads.data.door import guarded
from manyheads.data.files import why_not
from manyheads.sweeps.store import CorruptPart, Store, StoreError

MISSING = "missing"
PACKAGES = {".nc": "netCDF4", ".zarr": "zarr", ".csv": "pandas"}  # what writes each format
LONG_NAMES = {
    "train_loss": "loss on the training data",
    "test_loss": "loss on fresh data",
    "gradient_norm": "norm of the gradient, all heads",
    "distance": "distance from the start, all heads",
    "readout_norm": "largest norm of a head's readout",
    "margin": "smallest margin of a training sequence",
    "attention_mass": "attention on relevant tokens, per class of heads",
    "step": "step of descent",
    "last_step": "last step with finite loss",
    "status": "how the cell ended",
    "message": "why it failed",
}


@guarded()
def open_sweep(path: str | Path) -> xarray.Dataset:
    """The results of a sweep so far, as a dataset with one dimension per axis; arrays are read when they are used.

    `status` is "finished", "diverged", "failed" or "missing" for every cell. Values that a cell does not have are NaN
    (empty for texts), also where a cell has fewer records than another.
    """
    store = Store(path)
    manifest = store.manifest()
    shape = tuple(len(manifest["coordinates"][dim]["values"]) for dim in manifest["dims"])
    grid = np.array(manifest["grid"], dtype=np.int64).reshape(shape)
    cells, workers = _read_headers(store, manifest)
    dims = tuple(manifest["dims"])
    status = np.array(
        [cells[i]["status"] if i in cells else MISSING for i in range(len(manifest["cells"]))]
    )
    message = np.array(
        [cells[i]["message"] if i in cells else "" for i in range(len(manifest["cells"]))]
    )
    variables: dict[str, Any] = {
        "status": (dims, status[grid], {"long_name": LONG_NAMES["status"]}),
        "message": (dims, message[grid], {"long_name": LONG_NAMES["message"]}),
    }
    coordinates: dict[str, Any] = {
        dim: (
            dim,
            np.array(c["values"]),
            _without_empty(units=c["units"], long_name=c["long_name"], axis=c["axis"]),
        )
        for dim, c in manifest["coordinates"].items()
    }
    for name in dict.fromkeys(
        name for position in sorted(cells) for name in cells[position]["values"]
    ):
        array = _Assembled(store, grid, cells, name)
        attributes = {**_without_empty(long_name=LONG_NAMES.get(name, "")), **array.attributes}
        is_coordinate = attributes.pop("coordinate", False)
        if is_coordinate and (shared := array.shared()) is not None:
            coordinates[name] = (array.own_dims, shared, attributes)
            continue
        data = indexing.LazilyIndexedArray(array)
        place = coordinates if is_coordinate else variables
        place[name] = xarray.Variable((*dims, *array.own_dims), data, attributes)
    return xarray.Dataset(variables, coordinates, _attributes(manifest, workers))


def _read_headers(store: Store, manifest: dict[str, Any]) -> tuple[dict[int, dict], list[dict]]:
    """Position of a cell -> its header, with where its arrays are."""
    cells, workers = {}, []
    known: dict[Any, np.ndarray] = {}
    for batch, header in store.headers(
        manifest, lambda described: described["attributes"].get("coordinate", False)
    ):
        if isinstance(header, CorruptPart):
            warnings.warn(f"{header}; its cells count as missing", stacklevel=3)
            continue
        workers.append(header["worker"])
        for number, position in enumerate(batch["cells"]):
            for described in header["cells"][number]["values"].values():
                if "array" in described:  # most are equal: one is kept
                    array = described["array"]
                    described["array"] = known.setdefault(
                        (array.dtype.str, array.shape, array.tobytes()), array
                    )
            cells[position] = {**header["cells"][number], "batch": batch["id"], "number": number}
    return cells, workers


def _attributes(manifest: dict[str, Any], workers: list[dict]) -> dict[str, Any]:
    """Provenance as texts and numbers, which every file format can hold."""
    spec = manifest["spec"]  # as it is: a plug-in that it names need not be here

    def seen(values) -> str:
        return "; ".join(sorted({str(value) for value in values}))

    return dict(
        name=manifest["name"],
        spec=tomli_w.dumps(spec),
        format_version=manifest["format_version"],
        git=seen(
            {worker.get("git", manifest["provenance"].get("git", "")) for worker in workers} - {""}
        ),
        versions=seen(
            " ".join(f"{k}={v}" for k, v in worker["versions"].items()) for worker in workers
        ),
        machine=seen({worker.get("machine", "") for worker in workers} - {""}),
        device=seen(worker["device"] for worker in workers),
        threads=seen(worker["threads"] for worker in workers),
        dtype=seen(spec["axes"].get("train.dtype", [spec["train"]["dtype"]])),
        seeds=" ".join(map(str, spec["seeds"])),
    )


def _without_empty(**attributes: str) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if value}


class _Assembled(BackendArray):
    """One variable of all cells; indexing reads only the parts it needs."""

    def __init__(self, store: Store, grid: np.ndarray, cells: dict[int, dict], name: str):
        self.store, self.grid, self.name = store, grid, name
        self.where = {i: cell for i, cell in cells.items() if name in cell["values"]}
        described = [cell["values"][name] for cell in self.where.values()]
        self.own_dims = tuple(described[0]["dims"])
        if any(tuple(d["dims"]) != self.own_dims for d in described):
            raise ValueError(
                f"{name!r} has different dims in different cells; make the cell function name them alike."
            )
        own_shape = tuple(
            max(sizes) for sizes in zip(*(d["shape"] for d in described), strict=True)
        )
        self.shape = grid.shape + own_shape
        self.attributes = dict(described[0]["attributes"])
        ragged = any(tuple(d["shape"]) != own_shape for d in described)
        kind = np.result_type(*{np.dtype(d["dtype"]) for d in described})
        gaps = ragged or len(self.where) < len(np.unique(grid))
        self.dtype = np.dtype(np.float64) if gaps and kind.kind in "iub" else kind
        self.fill = "" if kind.kind == "U" else np.nan if gaps else 0

    def shared(self) -> np.ndarray | None:
        """The values where all cells have the same ones; those of a diverged cell may be the beginning of them."""
        longest: np.ndarray | None = None
        for cell in sorted(self.where.values(), key=lambda cell: cell["status"] == "diverged"):
            array = cell["values"][self.name]["array"]
            if longest is None or array is longest:
                longest = array
                continue
            if cell["status"] == "diverged" and array.ndim == longest.ndim == 1:
                both = min(len(array), len(longest))
                if not np.array_equal(array[:both], longest[:both]):
                    return None
                longest = max(longest, array, key=len)
            elif not np.array_equal(longest, array):
                return None
        return longest

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._get
        )

    def _get(self, key: tuple) -> np.ndarray:
        split = self.grid.ndim
        positions = self.grid[_outer(key[:split], self.grid.shape)]
        own_key = _outer(key[split:], self.shape[split:])
        blank = np.full(self.shape[split:], self.fill, self.dtype)
        result = np.empty(positions.shape + blank[own_key].shape, self.dtype)
        by_batch: dict[str, list[int]] = {}
        for position in np.unique(positions):
            if position in self.where:
                by_batch.setdefault(self.where[position]["batch"], []).append(position)
            else:
                result[positions == position] = blank[own_key]
        for batch, members in by_batch.items():
            names = {i: f"{self.where[i]['number']}/{self.name}" for i in members}
            arrays = self.store.read(batch, list(names.values()))
            for position in members:
                padded = blank.copy()
                array = arrays[names[position]]
                padded[tuple(slice(size) for size in array.shape)] = array
                result[positions == position] = padded[own_key]
        drop = tuple(i for i, k in enumerate(key) if isinstance(k, int | np.integer))
        return result.squeeze(axis=drop) if drop else result


def _outer(key: tuple, shape: tuple[int, ...]) -> tuple:
    """An index that keeps every axis: integers as lists of one, all combined as a grid."""
    if not shape:
        return ()
    lists = [
        np.arange(size)[k] if isinstance(k, slice) else np.atleast_1d(np.asarray(k))
        for k, size in zip(key, shape, strict=True)
    ]
    return np.ix_(*lists)


@guarded()
def export(path: str | Path, target: str | Path, *, overwrite: bool = False) -> Path:
    """Write the results to one netCDF file (`.nc`), zarr folder (`.zarr`) or table (`.csv`), whole or not at all.

    A table has a row for every cell and recorded step, and a column for every number.
    """
    target = Path(target)
    if target.suffix not in PACKAGES:
        raise ValueError(
            f"{target} must end in .nc (netCDF), .zarr or .csv; for example {target.stem}.nc."
        )
    if target.exists() and not (target.is_file() or (target.is_dir() and target.suffix == ".zarr")):
        raise ValueError(
            f"{target} is no {target.suffix} that could be replaced; choose another name."
        )
    if target.exists() and not overwrite:
        raise ValueError(f"{target} exists; choose another name, or pass overwrite.")
    dataset = open_sweep(path).load()
    for name, variable in dataset.variables.items():
        if variable.dtype.kind == "b":
            dataset[name] = variable.astype("int8")
    package = PACKAGES[target.suffix]
    if importlib.util.find_spec(package) is None:
        raise ValueError(
            f"writing {target.suffix} needs {package}; install it with pip install 'manyheads[export]'."
        )
    scratch = target.with_name(f".{target.name}.tmp{target.suffix}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".nc":
            if (
                shutil.disk_usage(target.parent).free < dataset.nbytes
            ):  # HDF5 would not say why, and keep the file open
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            dataset.to_netcdf(scratch, engine="netcdf4")
        elif target.suffix == ".csv":
            as_table(dataset).to_csv(scratch, index=False)
        else:
            dataset.to_zarr(scratch, mode="w", zarr_format=2)
        if target.exists():
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        scratch.rename(target)
    except (OSError, RuntimeError) as error:
        raise StoreError(
            f"{why_not(target, error)}; free some space or choose another place"
        ) from None
    finally:
        _remove(scratch)
    return target


def as_table(dataset: xarray.Dataset) -> Any:
    """The results as a DataFrame: a row for every cell and step, a column for every number of a cell."""
    cell_dims = dataset["status"].dims
    columns = {}
    for name, variable in dataset.reset_coords().data_vars.items():
        more = [dim for dim in variable.dims if dim not in (*cell_dims, "step")]
        if not more:
            columns[name] = variable
            continue
        flat = variable.stack(entry=more)
        columns |= {
            f"{name}_{i}": flat.isel(entry=i, drop=True) for i in range(flat.sizes["entry"])
        }
    return xarray.Dataset(columns).to_dataframe().reset_index()


def _remove(scratch: Path) -> None:
    """Remove a file or a folder; threads of zarr may still write into it for a moment after one of them has failed."""
    for _ in range(40):
        with contextlib.suppress(OSError):
            shutil.rmtree(scratch) if scratch.is_dir() else scratch.unlink()
        if not scratch.exists():
            return
        time.sleep(0.05)
