"""Statements by what a verb is given: an id of the ledger, or a Python file that holds statements."""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from pathlib import Path

from manyheads.theory.ledger import entry
from manyheads.theory.statement import Statement


def chosen(names: Iterable[str]) -> list[Statement]:
    """The statements of all names, in their order."""
    found: list[Statement] = []
    for name in names:
        found += _of_file(Path(name)) if name.endswith(".py") else [entry(name)]
    return found


def _of_file(path: Path) -> list[Statement]:
    """The statements that a Python file defines; it is run, as `python FILE` would."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist; pass a Python file with a statement, or an id.")
    try:
        values = runpy.run_path(str(path)).values()
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}") from None
    found = [value for value in values if isinstance(value, Statement)]
    if not found:
        raise ValueError(
            f"{path} holds no statement; assign one to a name: lemma = mh.Statement('what it "
            "says', ...)."
        )
    return found
