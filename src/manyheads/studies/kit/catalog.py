"""The list of studies, and how your own study is found.

A study is the STUDY of a module here, `studies/NAME.py` or `studies/NAME/study.py`, of a plug-in, or of a file given by
its path.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from manyheads._registry import nearest, plugins
from manyheads.studies.kit.story import place
from manyheads.studies.kit.study import Study

FOLDER = Path(__file__).parent.parent


@cache
def studies() -> dict[str, Study]:
    """All studies by their names, in the order of the story; those of plug-ins are included."""
    folders = (path for path in FOLDER.glob("*/study.py") if path.parent.name != "kit")
    places = [
        path.relative_to(FOLDER).with_suffix("").parts
        for path in (*FOLDER.glob("[a-z]*.py"), *folders)
    ]
    homes = [
        *(importlib.import_module(".".join(("manyheads.studies", *place))) for place in places),
        *plugins(),
    ]
    found: dict[str, Study] = {}
    for study in (
        module.STUDY for module in homes if isinstance(getattr(module, "STUDY", None), Study)
    ):
        if found.setdefault(study.name, study) is not study:
            raise ValueError(f"there are two studies called {study.name!r}; rename one.")
    return dict(sorted(found.items(), key=lambda item: place(item[1])))


def story(scale: str = "quick") -> tuple[str, ...]:
    """The names of the studies that run when none is named, and can run here."""
    return tuple(
        name for name, study in studies().items() if study.in_story and not study.lacks(scale)
    )


def find(name: str) -> Study:
    """A study by its name, or the STUDY of your own file `path/to/name.py`."""
    if name.endswith(".py"):
        return _from_file(Path(name))
    if name.replace("-", "_") not in studies():
        hint = nearest(name, studies())
        raise ValueError(
            f"there is no study {name!r}; {hint} (or pass the path of your own study, ending in .py)"
        )
    return studies()[name.replace("-", "_")]


def _from_file(path: Path) -> Study:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; pass the path of a Python file with a STUDY."
        )
    folder = str(path.resolve().parent)
    if (
        folder not in sys.path
    ):  # importable by name, so that workers can import its cell function too
        sys.path.append(folder)
    module = _imported(path.resolve())
    if Path(str(module.__file__)).resolve() != path.resolve():
        raise ValueError(f"{path} has the name of another module, {path.stem}; rename the file.")
    found = getattr(module, "STUDY", None)
    if not isinstance(found, Study):
        raise ValueError(
            f"{path} has no STUDY; end it with STUDY = Study(name=..., question=..., ...)"
        )
    return found


def _imported(path: Path) -> ModuleType:
    """The module of a user's file; an error in it is reported in one line, with its place."""
    try:
        return importlib.import_module(path.stem)
    except (ValueError, OSError):
        raise  # their messages already say what to do
    except Exception as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename) == path
        ]
        where = f", line {lines[-1]}" if lines else ""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"{path} cannot be imported ({text}{where}); fix it and run again."
        ) from None
