"""The folder of a run: `run.json` says which studies it holds, `studies/NAME/SWEEP/` has their sweeps. Needs no JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
        texts = [content["scale"], *content["studies"]]
        if not (
            all(isinstance(text, str) for text in texts) and all(isinstance(n, int) for n in (version, content["seed"]))
        ):
            raise ValueError("scale and studies must be texts, format_version and seed whole numbers")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run the studies again into another folder.") from None
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {version}, newer than the {FORMAT_VERSION} this version of manyheads reads; "
            "update manyheads"
        )
    return content
