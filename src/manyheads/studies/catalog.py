"""Which studies there are, and how a study of your own is found."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

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
    module = _imported(path.resolve())
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise ValueError(f"{path} has the name of another module, {path.stem}; rename the file.")
    found = getattr(module, "STUDY", None)
    if not isinstance(found, Study):
        raise ValueError(f"{path} has no STUDY; end it with STUDY = Study(name=..., question=..., ...)")
    return found


def _imported(path: Path) -> ModuleType:
    """The module of a user's file; what is wrong with it is theirs to know, in one line."""
    try:
        return importlib.import_module(path.stem)
    except (ValueError, OSError):
        raise  # these say what to do
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
        where = f", line {lines[-1]}" if lines else ""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path} cannot be imported ({text}{where}); mend it and run again.") from None
