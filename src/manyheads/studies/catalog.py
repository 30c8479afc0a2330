"""Which studies there are, and how a study of your own is found."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path

from manyheads.studies.study import Study

# In the order of the report. To add one, write manyheads/studies/NAME.py with a STUDY and add its name.
NAMES: tuple[str, ...] = (
    "heads",
    "generalization",
    "initialization",
    "margins",
    "attention",
    "literal",
    "step_size",
    "random_start",
    "global_margin",
    "needed_heads",
    "paper",
    "optimizers",
    "ledger",
)
# What `manyheads run` runs when no study is named.
STORY: tuple[str, ...] = (
    "heads",
    "generalization",
    "initialization",
    "margins",
    "attention",
    "literal",
    "step_size",
    "ledger",
)


def find(name: str) -> Study:
    """A study by its name, or the STUDY of your own file `path/to/name.py`."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name.replace("-", "_") not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(NAMES)}"
        raise ValueError(f"there is no study {name!r}; {hint} (or pass the path of your own study, ending in .py)")
    return importlib.import_module(f"manyheads.studies.{name.replace('-', '_')}").STUDY


def _from_file(path: Path) -> Study:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; pass the path of a Python file with a STUDY.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # by its own name, so that workers can import its cell function too
        sys.path.append(folder)
    module = importlib.import_module(path.stem)
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise ValueError(f"{path} has the name of another module, {path.stem}; rename the file.")
    found = getattr(module, "STUDY", None)
    if not isinstance(found, Study):
        raise ValueError(f"{path} has no STUDY; end it with STUDY = Study(name=..., question=..., ...)")
    return found
