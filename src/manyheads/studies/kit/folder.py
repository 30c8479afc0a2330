"""The folder of a run: `run.json` says which studies it holds, `studies/NAME/SWEEP/` has their sweeps. Needs no JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import manyheads
from manyheads.data.files import Damaged, read_json, write_json

FORMAT_VERSION = 2


def sweep_folder(folder: Path, study: str, sweep: str) -> Path:
    """The folder in which a sweep of a study is stored."""
    return Path(folder) / "studies" / study / sweep


def read_run(folder: str | Path) -> dict[str, Any]:
    """The content of a folder's `run.json`."""
    path = Path(folder) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no studies (there is no run.json); pass a folder of `manyheads run`."
        )
    content = read_json(
        path, FORMAT_VERSION, "run the same studies into this folder again; stored results are kept"
    )
    if not _is_run(content):
        raise Damaged(
            f"{path} does not say which studies were run; run the same studies into this folder again."
        )
    return content


def write_run(folder: Path, scale: str, seed: int, studies: list[str]) -> None:
    """Write `run.json` of a folder."""
    content = {"manyheads": manyheads.__version__, "scale": scale, "seed": seed, "studies": studies}
    write_json(folder / "run.json", {"format_version": FORMAT_VERSION, **content})


def _is_run(content: dict[str, Any]) -> bool:
    studies, seed = content.get("studies"), content.get("seed")
    listed = isinstance(studies, list) and all(isinstance(name, str) for name in studies)
    return listed and isinstance(seed, int) and isinstance(content.get("scale"), str)
