"""From a folder of stored studies to the page, the figures for a paper and the data as files. Computes nothing else.

The folder holds `run.json` (which studies, at which scale) and `studies/NAME/SWEEP/`, one sweep each. Beside them come
`index.html`, `figures/*.pdf`, `figures/*.png`, `data/*.csv` and `data/findings.json`.
"""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import manyheads
from manyheads.report import paper, verdicts
from manyheads.report.page import Chapter, render
from manyheads.report.stored import NoResults, read_study
from manyheads.studies.catalog import STORY, find
from manyheads.studies.figure import Figure, MapPanel
from manyheads.studies.folder import read_run
from manyheads.studies.study import Results
from manyheads.sweeps.store import write_whole


@dataclass(frozen=True)
class Report:
    """What was written, and the answers for a table."""

    page: Path
    chapters: tuple[Chapter, ...]
    num_figures: int
    absent: dict[str, str]  # study without a chapter -> why
    remedy: str  # what to run for those


def build(folder: str | Path, *, workers: int = 1, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Write the report of a folder that `manyheads run` filled, from what is stored there alone.

    Studies that have no results yet are named in `absent`; it is an error only if there is no other. With `workers` the
    figures are drawn by several processes.
    """
    folder = Path(folder)
    run = read_run(folder)
    chapters, results, absent = [], [], {}
    for source in run["studies"]:
        study = find(source)
        tell(f"reading {study.name}")
        try:
            chapter, found = read_study(folder, study, run["scale"])
        except NoResults as error:
            absent[source] = str(error)
            continue
        chapters.append(chapter)
        results.append(found)
    remedy = _remedy(folder, run, absent)
    absent = {find(source).name: why for source, why in absent.items()}
    if not chapters:
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise ValueError(f"{folder} has no results to report yet ({reasons}). {remedy}")
    names = [figure.name for chapter in chapters for figure in chapter.figures]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two figures are called {twice!r}; give each its own name, such as STUDY-what.")
    for name in ("figures", "data"):
        (folder / name).mkdir(exist_ok=True)
    figures = [figure for chapter in chapters for figure in chapter.figures]
    for figure in figures:
        write_whole(folder / "data" / f"{figure.name}.csv", _csv(figure).encode())
    _draw(figures, folder / "figures", min(workers, len(figures)), tell)
    write_whole(folder / "data" / "findings.json", json.dumps(_findings(chapters, run, absent), indent=1).encode())
    tell("writing the page")
    html = render(
        chapters,
        ledger=verdicts.ledger_table(results),
        card=verdicts.good_starts(results),
        reproduce=_reproduce(run, results, absent),
        scale=run["scale"],
    )
    write_whole(folder / "index.html", html.encode())
    return Report(folder / "index.html", tuple(chapters), len(names), absent, remedy)


def _draw(figures: list[Figure], folder: Path, workers: int, tell: Callable[[str], None]) -> None:
    if workers <= 1:
        for figure in figures:
            tell(f"drawing {figure.name}")
            paper.save(figure, folder)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for figure, _ in zip(figures, pool.map(paper.save, figures, [folder] * len(figures)), strict=True):
            tell(f"drawing {figure.name}")


def _remedy(folder: Path, run: dict[str, Any], absent: dict[str, str]) -> str:
    """What to run so that the absent studies are there."""
    if not absent:
        return ""
    command = f"manyheads run {' '.join(absent)} --scale {run['scale']} --out {folder}"
    command += f" --seed {run['seed']}" if run["seed"] else ""
    failed = any(" failed (" in why for why in absent.values())
    return f"Complete it with `{command}`" + (" (--retry-failed runs failed cells again)." if failed else ".")


def _findings(chapters: list[Chapter], run: dict[str, Any], absent: dict[str, str]) -> dict[str, Any]:
    def estimate(value):
        sides = {name: getattr(value, name) for name in ("value", "low", "high")}
        return {**{k: v if abs(v) < float("inf") else str(v) for k, v in sides.items()}, "seeds": value.count}

    return {
        "format_version": 1,
        "manyheads": manyheads.__version__,
        "scale": run["scale"],
        "findings": {
            chapter.study.name: {
                "question": chapter.study.question,
                "answer": chapter.finding.answer,
                "sentence": chapter.finding.sentence,
                "notes": list(chapter.finding.notes),
                "numbers": {name: estimate(value) for name, value in chapter.finding.numbers.items()},
            }
            for chapter in chapters
        },
        "absent": absent,
    }


def _csv(figure: Figure) -> str:
    """All points of a figure in one table, with the panel they belong to and the labels of its axes.

    Maps add a column `value`, whose meaning the series names. Bands are as estimated, also where a logarithmic axis
    cannot show their lower end.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    value = ["value"] if any(isinstance(panel, MapPanel) for panel in figure.panels) else []
    writer.writerow(["panel", "x_label", "y_label", "series", "x", "y", "low", "high", *value])
    for panel in figure.panels:
        head = [panel.title, panel.x.title, panel.y.title]
        if isinstance(panel, MapPanel):
            for row in panel.rows():
                writer.writerow([*head, panel.color.title, row["x"], row["y"], "", "", row["value"]])
        else:
            for mark in panel.given:
                for row in mark.rows():
                    sides = [row.get("low", ""), row.get("high", "")]
                    writer.writerow([*head, mark.label, row["x"], row["y"], *sides, *[""] * len(value)])
    return out.getvalue()


def _reproduce(run: dict[str, Any], results: list[Results], absent: dict[str, str]) -> dict[str, Any]:
    """The commands that make this page, and what the stored runs say about where they come from."""
    datasets = [data for result in results for data in result.values()]

    def seen(name: str) -> str:
        return "; ".join(sorted({str(data.attrs[name]) for data in datasets if data.attrs.get(name)}))

    story = run["scale"] == "quick" and tuple(run["studies"]) == STORY and not run["seed"]
    extra = f" --seed {run['seed']}" if run["seed"] else ""
    arguments = "" if story else f" ARGS='{' '.join(run['studies'])} --scale {run['scale']}{extra}'"
    commands = f"make run{arguments}   # runs the studies and draws this page\n"
    commands += ".venv/bin/manyheads report FOLDER   # draws it again from the stored runs"
    seeds = sorted({int(seed) for data in datasets if "seed" in data.coords for seed in data["seed"]})
    facts = {
        "scale": run["scale"],
        "studies": ", ".join(run["studies"]),
        "no results yet": "; ".join(f"{name} ({why})" for name, why in absent.items()),
        "cells": f"{sum(data['status'].size for data in datasets):,}",
        "seeds": f"{seeds[0]} to {seeds[-1]}" if seeds else "none",
        "computed with": seen("versions"),
        "device": seen("device"),
        "code": re.sub(r"\b([0-9a-f]{10})[0-9a-f]{30}\b", r"\1", seen("git")),
    }
    return {"commands": commands, "facts": [{"name": name, "value": value} for name, value in facts.items() if value]}
