"""`manyheads export DIR`: the results of a sweep as one netCDF file, zarr folder or table."""

import json as json_format
from pathlib import Path
from typing import Annotated, Literal

import tyro


def command(
    folder: Annotated[Path, tyro.conf.Positional],
    *,
    out: Path | None = None,
    format: Literal["netcdf", "zarr", "csv"] = "netcdf",
    overwrite: bool = False,
    json: bool = False,
) -> int:
    """Write the results of a sweep, finished or not, to one file that other tools read.

    Examples:
        manyheads export results/heads
        manyheads export results/heads --out heads.csv

    Args:
        folder: The folder of the sweep.
        out: Where to write; FOLDER/NAME.nc by default. An ending .nc, .zarr or .csv decides the format.
        format: The format where --out does not decide it.
        overwrite: Replace an existing file.
        json: Print JSON.
    """
    from manyheads.sweeps.assembly import PACKAGES, export
    from manyheads.sweeps.store import Store

    ending = {"netcdf": ".nc", "zarr": ".zarr", "csv": ".csv"}[format]
    target = out or folder / f"{Store(folder).manifest()['name']}{ending}"
    if target.name in ("", ".."):
        raise ValueError(f"--out {target} is a folder; pass a file or a .zarr folder in it.")
    if target.suffix not in PACKAGES:
        target = target.with_name(target.name + ending)
    written = export(folder, target, overwrite=overwrite)
    print(json_format.dumps({"written": str(written)}) if json else written)
    return 0
