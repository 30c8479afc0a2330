"""One study of a folder: its chapter, or why it has none yet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from manyheads.report.page import Chapter
from manyheads.studies.kit.folder import sweep_folder
from manyheads.studies.kit.study import Results, Study
from manyheads.sweeps.store import Store

if TYPE_CHECKING:
    import xarray

LONGEST = 200  # characters of a cell's message


class NoResults(ValueError):
    """Too little is stored for a chapter; the message says what is missing."""


def read_study(folder: Path, study: Study, scale: str) -> tuple[Chapter, Results]:
    """The chapter of a study and its datasets, from the store; `NoResults` if that is not enough."""
    from manyheads.sweeps.assembly import open_sweep

    found, texts, problems = {}, [], []
    for name in study.plan(scale):
        path = sweep_folder(folder, study.name, name)
        if not Store(path).exists():
            raise NoResults(f"{name} has not been started")
        dataset = open_sweep(path).load()
        status = dataset["status"]
        if not status.isin(["finished", "diverged"]).any():
            raise NoResults("; ".join(_problems(name, dataset)))
        found[name] = dataset
        texts.append({"name": name, "text": str(Store(path).sweep()).partition(": ")[2]})
        problems += _problems(name, dataset)
    missing = f"Incomplete: {'; '.join(problems)}." if problems else ""
    try:
        return Chapter(
            study, study.finding(found), tuple(study.figures(found)), tuple(texts), missing
        ), found
    except Exception as error:
        if not problems:
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST]
        raise NoResults(f"{'; '.join(problems)}, too many for an answer ({reason})") from None


def _problems(name: str, dataset: xarray.Dataset) -> list[str]:
    """How many cells of a sweep are missing, failed (and what they say), or diverged."""
    status = dataset["status"].values
    lines = []
    for word in ("missing", "failed", "diverged"):
        if count := int((status == word).sum()):
            lines.append(f"{count} of {status.size} cells of {name} {word}")
            if word == "failed":
                (text, _), *others = Counter(
                    map(str, dataset["message"].values[status == word])
                ).most_common()
                more = f", and {len(others)} other messages" if others else ""
                lines[-1] += f" ({text[:LONGEST]}{more})"
    return lines
