"""A function on a grid of settings. Every finished cell is a sealed file: the same call resumes."""

from __future__ import annotations

import datetime
import hashlib
import inspect
import itertools
import json
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray

import manyheads
from manyheads._check import a, checked, function, none, path, shown
from manyheads.data.files import Damaged, read_npz, write_npz

FORMAT_VERSION = 1
Point = dict[str, Any]


class Grid:
    """All combinations of the values along named axes, each with the same seeds.

    `seeds` is their number or a list of them. `where(**point)` leaves out the points for which it
    is false.
    """

    def __init__(
        self,
        *,
        seeds: int | Sequence[int] = 1,
        where: Callable[..., bool] | None = None,
        **axes: Sequence[Any],
    ):
        self.seeds = list(range(seeds)) if isinstance(seeds, int) else [int(s) for s in seeds]
        self.where = where
        self.axes = {name: list(values) for name, values in axes.items()}
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(
                f"seeds={shown(seeds)} must be a number >= 1 or a list without repeats."
            )
        for name, values in self.axes.items():
            plain = all(isinstance(value, str | int | float) for value in values)
            if not values or not plain or len(set(values)) < len(values):
                raise ValueError(
                    f"{name}={shown(values)} must be a list of different numbers or texts."
                )

    def replace(self, **changes: Any) -> Grid:
        """The grid with other seeds or other values along some axes."""
        unknown = set(changes) - set(self.axes) - {"seeds", "where"}
        if unknown:
            raise ValueError(
                f"the grid has no axis {min(unknown)!r}; it has {', '.join(self.axes)}."
            )
        settings: dict[str, Any] = dict(seeds=self.seeds, where=self.where, **self.axes)
        settings.update(changes)
        return Grid(**settings)

    @property
    def points(self) -> list[Point]:
        """The settings of every cell, in order."""
        combinations = itertools.product(*self.axes.values())
        points = [dict(zip(self.axes, values, strict=True)) for values in combinations]
        return [point for point in points if self.where is None or self.where(**point)]


def sweep(
    cell: Callable[..., Mapping[str, Any]],
    grid: Grid,
    *,
    out: str | Path | None = None,
    client: Any = None,
    about: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Call `cell(**point, seeds=[...])` at every point of a grid, and collect what it returns.

    A cell returns a dictionary of arrays whose first axis is that of the seeds. Further axes need
    names: `{"loss": (("step",), array), "step": steps}`, and an entry of the name of an axis holds
    its positions. A cell that is killed leaves nothing; one that is finished is never computed
    again as long as its arguments, its source and the package's version stay the same.

    Args:
        cell: a function of an importable module, where a client's workers are to find it.
        grid: the axes and the seeds.
        out: the folder of the finished cells; without one they are not kept.
        client: a Dask client, or anything with `submit`; its workers write into `out` themselves.
        about: texts to be kept with every cell, the commit for example.
        progress: called with the number of finished cells and that of all.
    """
    # Not by the decorator, which would skip the checks of everything that a cell calls.
    checked("cell", cell, function)
    checked("grid", grid, a(Grid, "make one with lab.Grid(heads=[1, 2], seeds=10)"))
    checked("out", out, path | none)
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return sweep(cell, grid, out=folder, client=client, about=about, progress=progress)
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    points = grid.points
    files = [folder / f"{_name(cell, point, grid.seeds)}.npz" for point in points]
    missing = [(p, file) for p, file in zip(points, files, strict=True) if not file.exists()]
    done = len(points) - len(missing)
    jobs: list[Any] = [
        (cell, point, grid.seeds, file, dict(about or {})) for point, file in missing
    ]
    # With a client all cells are handed over before the first is waited for.
    waiting = [client.submit(_compute, *job) for job in jobs] if client is not None else jobs
    for job in waiting:
        if client is None:
            _compute(*job)
        else:
            job.result()
        done += 1
        if progress is not None:
            progress(done, len(points))
    return _assemble(grid, points, [_read(file) for file in files])


def _name(cell: Callable[..., Any], point: Point, seeds: list[int]) -> str:
    """The hash of all that a cell's numbers depend on, except for the code that it calls."""
    try:
        source = inspect.getsource(cell)
    except (OSError, TypeError):  # typed into a prompt
        source = ""
    key = [
        FORMAT_VERSION,
        manyheads.__version__,
        getattr(cell, "__qualname__", ""),
        source,
        point,
        seeds,
    ]
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]


def _compute(
    cell: Callable[..., Mapping[str, Any]],
    point: Point,
    seeds: list[int],
    file: Path,
    about: dict[str, str],
) -> None:
    """One cell, and its file."""
    # Of this process, all threads: what a worker spends on other cells is not in it.
    began = time.process_time()
    arrays, dims = {}, {}
    for name, found in cell(**point, seeds=list(seeds)).items():
        more, values = found if isinstance(found, tuple) else ((), found)
        dims[name] = list(more)
        arrays[name] = np.asarray(values, float)
    for name, values in arrays.items():
        is_position = any(name in more for more in dims.values())
        expected = 1 if is_position else 1 + len(dims[name])
        if values.ndim != expected or not (is_position or len(values) == len(seeds)):
            raise ValueError(
                f"{getattr(cell, '__name__', 'the cell')} returned {name} of shape {values.shape}; "
                "its first axis must be the "
                f"{len(seeds)} seeds, and further ones need names: (('step',), array)."
            )
    header = about | {
        "dims": dims,
        "point": point,
        "cpu_seconds": time.process_time() - began,
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "version": manyheads.__version__,
    }
    write_npz(file, arrays, header)


def _read(file: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    try:
        return read_npz(file)
    except Damaged as error:
        text = str(error).partition(";")[0]
        raise Damaged(f"{text}; delete it, and the same call computes this cell anew.") from None


def _assemble(grid: Grid, points: list[Point], cells: list[tuple[dict, dict]]) -> xarray.Dataset:
    """All cells in one dataset; what a cell does not have is NaN."""
    positions: dict[str, Any] = {**grid.axes, "seed": grid.seeds}
    dims: dict[str, list[str]] = {}
    # Cells may return different variables, but an axis means the same in all of them.
    for arrays, header in cells:
        dims |= header["dims"]
        for more in header["dims"].values():
            for axis in more:
                positions.setdefault(axis, arrays[axis])
                if not np.array_equal(positions[axis], arrays[axis]):
                    raise ValueError(
                        f"the cells have different positions along {axis!r}; make them one."
                    )
    variables = {}
    for name in dims.keys() - positions.keys():
        along = [*grid.axes, "seed", *dims[name]]
        table = np.full([len(positions[axis]) for axis in along], np.nan)
        for point, (arrays, _) in zip(points, cells, strict=True):
            place = tuple(grid.axes[axis].index(point[axis]) for axis in grid.axes)
            table[place] = arrays.get(name, np.nan)
        variables[name] = (along, table)
    headers = [header for _, header in cells]
    attributes = {"cpu_seconds": sum(header["cpu_seconds"] for header in headers)}
    for name in ("commit", "machine", "date", "version"):
        known = sorted({str(header[name]) for header in headers if name in header})
        attributes[name] = ", ".join(known)
    return xarray.Dataset(dict(sorted(variables.items())), positions, attributes)


def machine() -> str:
    """The processor and the operating system in a few words."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name}, {platform.system()}"
