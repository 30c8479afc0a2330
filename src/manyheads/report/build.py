"""Write the page, the figures for print and the data files from a folder of stored studies. Computes nothing else.

The folder holds `run.json` (which studies, at which scale) and `studies/NAME/SWEEP/`, one sweep each. `index.html`,
`figures/` (PDF, PNG and slides), `data/*.csv` and `data/findings.json` are written next to them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import manyheads
from manyheads.data.door import guarded
from manyheads.data.files import write_json, write_whole
from manyheads.report import matplotlib_figures, verdicts
from manyheads.report.page import Chapter, render
from manyheads.report.stored import NoResults, read_study
from manyheads.studies.kit.catalog import find, story
from manyheads.studies.kit.figure import Figure, MapPanel
from manyheads.studies.kit.folder import read_run, sweep_folder
from manyheads.studies.kit.pool import worker_pool
from manyheads.studies.kit.study import Number, Results
from manyheads.sweeps.progress import clock
from manyheads.sweeps.status import time_spent

Tell = Callable[[str], None]
UNNAMED = "it is your own file, which is run only if you name it"


@dataclass(frozen=True)
class Report:
    """What was written, and the answers for a table."""

    page: Path
    chapters: tuple[Chapter, ...]
    num_figures: int
    absent: dict[str, str]  # study without a chapter -> why
    remedy: str  # what to run to complete them


@guarded()
def build(
    folder: str | Path,
    *,
    studies: Sequence[str] = (),
    light: str | Path | None = None,
    workers: int = 1,
    tell: Tell = lambda _: None,
) -> Report:
    """Write the report of a folder written by `manyheads run`, only from what is stored there.

    No code that the folder names is run: its studies are those of the catalog and the files passed as `studies`.
    Studies without results yet are listed in `absent`; it is an error only if no study has results. With `workers` the
    figures are drawn by several processes. `light` is another folder, for a small page without a drawing library or
    figures for print, meant for version control.
    """
    folder = Path(folder)
    run = read_run(folder)
    chapters, results, folders, absent, names = [], [], [], {}, {}
    own = {Path(file).name: file for file in studies}
    for source in run["studies"]:
        if source.endswith(".py") and Path(source).name not in own:
            absent[source] = UNNAMED
            continue
        study = find(own.get(Path(source).name, source))
        names[source] = study.name
        tell(f"reading {study.name}")
        try:
            chapter, found = read_study(folder, study, run["scale"])
        except NoResults as error:
            absent[source] = str(error)
            continue
        chapters.append(chapter)
        results.append(found)
        folders += [sweep_folder(folder, study.name, name) for name in found]
    remedy = _remedy(folder, run, absent)
    absent = {names.get(source, Path(source).stem): why for source, why in absent.items()}
    if not chapters:
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise ValueError(f"{folder} has no results to report yet ({reasons}). {remedy}")
    figures = {figure.name: figure for chapter in chapters for figure in chapter.figures}
    names = [figure.name for chapter in chapters for figure in chapter.figures]
    if len(figures) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"two figures are called {twice!r}; give each its own name, such as STUDY-what."
        )
    out = Path(light or folder)
    (out / "data").mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        write_whole(out / "data" / f"{name}.csv", _csv(figure).encode())
    findings = _findings(chapters, run, absent)
    write_json(out / "data" / "findings.json", findings)
    if light:
        write_whole(out / "run.json", (folder / "run.json").read_bytes())
    else:
        _draw(list(figures.values()), out / "figures", min(workers, len(figures)), tell)
    tell("writing the page")
    html = render(
        chapters,
        ledger=verdicts.ledger_table(results),
        starts=verdicts.good_starts(results),
        reproduce=_reproduce(run, results, absent, folders),
        scale=run["scale"],
        static=bool(light),
    )
    write_whole(out / "index.html", html.encode())
    return Report(out / "index.html", tuple(chapters), len(names), absent, remedy)


def _draw(figures: list[Figure], folder: Path, workers: int, tell: Tell) -> None:
    folder.mkdir(exist_ok=True)
    if workers <= 1:
        for figure in figures:
            tell(f"drawing {figure.name}")
            matplotlib_figures.save(figure, folder)
        return
    with worker_pool(workers) as pool:
        drawn = pool.map(matplotlib_figures.save, figures, [folder] * len(figures))
        for figure, _ in zip(figures, drawn, strict=True):
            tell(f"drawing {figure.name}")


def _remedy(folder: Path, run: dict[str, Any], absent: dict[str, str]) -> str:
    """What to run to complete the absent studies."""
    begun = [source for source, why in absent.items() if why != UNNAMED]
    if not begun:
        own = " ".join(absent)
        return f"Draw your own studies too with `manyheads report {folder} {own}`." if own else ""
    command = f"manyheads run {' '.join(begun)} --scale {run['scale']} --out {folder}"
    command += f" --seed {run['seed']}" if run["seed"] else ""
    failed = any(" failed (" in why for why in absent.values())
    return f"Complete it with `{command}`" + (
        " (--retry-failed runs failed cells again)." if failed else "."
    )


def _findings(
    chapters: list[Chapter], run: dict[str, Any], absent: dict[str, str]
) -> dict[str, Any]:
    def entry(number: Number) -> dict[str, Any]:
        sides = {name: getattr(number.estimate, name) for name in ("value", "low", "high")}
        sides = {
            name: side if abs(side) < float("inf") else str(side) for name, side in sides.items()
        }
        return {"caption": number.caption, **sides, "seeds": number.estimate.count}

    return {
        "format_version": 3,
        "manyheads": manyheads.__version__,
        "scale": run["scale"],
        "findings": {
            chapter.study.name: {
                "question": chapter.study.question,
                "answer": chapter.finding.answer,
                "sentence": chapter.finding.sentence,
                "details": list(chapter.finding.details),
                "notes": list(chapter.finding.notes),
                "numbers": {
                    name: entry(number) for name, number in chapter.finding.numbers.items()
                },
            }
            for chapter in chapters
        },
        "absent": absent,
    }


def _csv(figure: Figure) -> str:
    """All points of a figure in one table, with the panel they belong to and the labels of its axes.

    Maps add a column `value`, whose meaning is the name of the series. Bands are as estimated, even if a logarithmic
    axis cannot show their lower end.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    value = ["value"] if any(isinstance(panel, MapPanel) for panel in figure.panels) else []
    writer.writerow(["panel", "x_label", "y_label", "series", "x", "y", "low", "high", *value])
    for panel in figure.panels:
        head = [panel.title, panel.x.title, panel.y.title]
        if isinstance(panel, MapPanel):
            for row in panel.rows():
                writer.writerow(
                    [*head, panel.color.title, row["x"], row["y"], "", "", row["value"]]
                )
        else:
            for mark in panel.given:
                for row in mark.rows():
                    sides = [row.get("low", ""), row.get("high", "")]
                    writer.writerow(
                        [*head, mark.label, row["x"], row["y"], *sides, *[""] * len(value)]
                    )
    return out.getvalue()


def _reproduce(
    run: dict[str, Any], results: list[Results], absent: dict[str, str], folders: list[Path]
) -> dict[str, Any]:
    """The commands that make this page, and the provenance of the stored runs."""
    datasets = [data for result in results for data in result.values()]

    def seen(name: str) -> str:
        return "; ".join(
            sorted({str(data.attrs[name]) for data in datasets if data.attrs.get(name)})
        )

    default = run["scale"] == "quick" and tuple(run["studies"]) == story() and not run["seed"]
    extra = f" --seed {run['seed']}" if run["seed"] else ""
    arguments = (
        "" if default else f" ARGS='{' '.join(run['studies'])} --scale {run['scale']}{extra}'"
    )
    commands = f"make run{arguments}   # runs the studies and draws this page\n"
    commands += ".venv/bin/manyheads report FOLDER   # redraws it from the stored runs"
    elapsed, computing = time_spent(folders)
    seeds = sorted(
        {int(seed) for data in datasets if "seed" in data.coords for seed in data["seed"]}
    )
    facts = {
        "scale": run["scale"],
        "studies": ", ".join(run["studies"]),
        "no results yet": "; ".join(f"{name} ({why})" for name, why in absent.items()),
        "cells": f"{sum(data['status'].size for data in datasets):,}",
        "seeds": f"{seeds[0]} to {seeds[-1]}" if seeds else "none",
        "computed with": seen("versions"),
        "device": seen("device"),
        "machine": seen("machine"),
        "time": f"{clock(elapsed)} wall-clock, {clock(computing)} of computing, summed over processors",
        "code": re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", seen("git")),
    }
    return {
        "commands": commands,
        "facts": [{"name": name, "value": value} for name, value in facts.items() if value],
    }
