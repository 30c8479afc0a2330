"""The folder of a run: `run.json` says which studies it holds, `studies/NAME/SWEEP/` has their sweeps. Needs no JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from manyheads._fields import shown

FORMAT_VERSION = 1


def sweep_folder(folder: Path, study: str, sweep: str) -> Path:
    """Where a sweep of a study is stored."""
    return Path(folder) / "studies" / study / sweep


def read_run(folder: str | Path) -> dict[str, Any]:
    """What `run.json` of a folder says."""
    path = Path(folder) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no studies (there is no run.json); pass a folder of `manyheads run`.")
    try:
        content = json.loads(path.read_bytes())
        version = content["format_version"]
        if not isinstance(version, int):
            raise ValueError(f"format_version {shown(version)}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read ({text}); run the studies again into another folder.") from None
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {version}, newer than the {FORMAT_VERSION} this version of manyheads reads; "
            "update manyheads"
        )
    named = content.get("studies")
    if not (
        isinstance(named, list)
        and all(isinstance(text, str) for text in [content.get("scale"), *named])
        and isinstance(content.get("seed"), int)
    ):
        raise ValueError(f"{path} does not say which studies, scale and seed; run them again into another folder.")
    return content
