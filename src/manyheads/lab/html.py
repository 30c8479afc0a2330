"""The page: questions, answers, verdicts and figures first, everything else folded."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.figure import Figure

from manyheads.data.files import write_json, write_npz, write_whole
from manyheads.lab.claim import REFUTED, UNDECIDED, Decided
from manyheads.lab.estimate import number
from manyheads.lab.figure import save

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:58rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1{font-size:1.7rem;margin-bottom:.2rem}h2{font-size:1.25rem;margin-top:2.4rem;border-top:1px solid #ddd;padding-top:1rem}
img{max-width:100%;height:auto}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .6rem .25rem 0;
vertical-align:top;border-bottom:1px solid #eee}.data{font-size:.8rem;overflow-x:auto;display:block;white-space:nowrap}
.supported{color:#12703a}.refuted{color:#b3261e}.undecided{color:#7a5c00}b.v{white-space:nowrap}small,.quiet{color:#555}
summary{cursor:pointer;color:#555;margin:.5rem 0}a{color:#0b57a4}p{margin:.5rem 0}
"""


@dataclass(frozen=True)
class Chapter:
    """One study: its question, what was done, what came out, figures, and the sweep's dataset."""

    name: str
    question: str
    setting: str
    decided: Sequence[Decided]
    figures: Sequence[Figure]
    data: xarray.Dataset

    def summary(self) -> dict[str, Any]:
        """What documents quote and tests compare."""
        return {"question": self.question, "claims": [_claim(one) for one in self.decided]}


def write_report(
    chapters: Sequence[Chapter],
    out: str | Path,
    *,
    title: str,
    intro: str,
    scale: str,
    seconds: float,
) -> None:
    """The page, the values of every seed beside it, and `report.json`, which documents quote."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for chapter in chapters:
        arrays = {str(name): values.values for name, values in chapter.data.variables.items()}
        dims = {str(name): list(values.dims) for name, values in chapter.data.items()}
        write_npz(folder / f"{chapter.name}.npz", arrays, {"dims": dims})
    facts = {
        "scale": scale,
        "provenance": provenance(chapters, scale, seconds),
        "studies": {chapter.name: chapter.summary() for chapter in chapters},
    }
    write_json(folder / "report.json", facts)
    # Last: a page that is there has everything that it links to.
    text = page(chapters, title=title, intro=intro, scale=scale, seconds=seconds)
    write_whole(folder / "index.html", text.encode())


def page(chapters: Sequence[Chapter], *, title: str, intro: str, scale: str, seconds: float) -> str:
    """One HTML file that needs nothing else: the story in front, details folded below."""
    rows = [_story_row(chapter, scale) for chapter in chapters]
    hero = "".join(_image(one, chapters[0].question) for one in chapters[0].figures[:1])
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(intro)}</p>{hero}",
        "<table><tr><th>question<th>answer<th>verdict</tr>" + "".join(rows) + "</table>",
        f"<p class=quiet>{escape(provenance(chapters, scale, seconds))}</p>",
        *(_chapter(chapter, scale) for chapter in chapters),
    ]
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width'><title>{escape(title)}</title>"
    return (
        f"<!doctype html><html lang=en>{head}<style>{STYLE}</style><body>"
        + "\n".join(parts)
        + "</body></html>\n"
    )


def provenance(chapters: Sequence[Chapter], scale: str, seconds: float) -> str:
    """From which commits, on which machines, when, at what cost: of the cells, not the drawing."""

    def of(name: str) -> str:
        texts = [chapter.data.attrs[name] for chapter in chapters]
        known = sorted({one for text in texts if text for one in text.split(", ")} - {"Linux"})
        return ", ".join(known) or "unknown"

    minutes = sum(chapter.data.attrs["cpu_seconds"] for chapter in chapters) / 60
    return (
        f"Scale: {scale}. Commit {of('commit')}, version {of('version')}, computed on {of('date')} "
        f"on {of('machine')}: "
        f"{number(minutes)} CPU minutes in the cells, {number(seconds / 60)} minutes for the last "
        "call. An interval "
        "holds together with all others of its study at 95% (Bonferroni); a verdict is read off "
        "the interval alone."
    )


def verdict_text(verdict: str, scale: str) -> str:
    """The verdict in words; what a small scale leaves open is said to be open there."""
    return "undecided at this scale" if verdict == UNDECIDED and scale != "full" else verdict


def _story_row(chapter: Chapter, scale: str) -> str:
    first = chapter.decided[0]
    question = f"<a href='#{chapter.name}'>{escape(chapter.question)}</a>"
    return f"<tr><td>{question}<td>{_sentence(first)}<td>{_verdict(first, scale)}</tr>"


def _chapter(chapter: Chapter, scale: str) -> str:
    rows = [_claim_row(chapter.name, k + 1, one, scale) for k, one in enumerate(chapter.decided)]
    main = "".join(_image(one, chapter.question) for one in chapter.figures[:1])
    more = "".join(_image(one, chapter.question) for one in chapter.figures[1:])
    comparisons = chapter.decided[0].comparisons
    seeds = chapter.data.sizes["seed"]
    return (
        f"<h2 id={chapter.name}>{escape(chapter.question)}</h2>"
        f"<table><tr><th>claim<th>number<th>verdict</tr>{''.join(rows)}</table>{main}"
        f"<details><summary>What was done</summary>{_paragraphs(chapter.setting)}"
        f"<p>{seeds} seeds; intervals corrected for {comparisons} comparisons.</p>{more}</details>"
        "<details><summary>All numbers: mean over the seeds, smallest and "
        f"largest</summary>{_table(chapter.data)}"
        f"<p><a href='{chapter.name}.npz'>{chapter.name}.npz</a> holds the values of every "
        "seed.</p></details>"
    )


def _claim_row(name: str, place: int, one: Decided, scale: str) -> str:
    found, unit = one.estimate, one.claim.unit
    note = "".join(f"<br><small>{escape(text)}</small>" for text in (unit, found.note) if text)
    relation = f"<br><small>claimed: {escape(one.claim.relation)}</small>"
    number_cell = f"{escape(str(found))}{relation}{note}"
    return f"<tr id={name}-{place}><td>{_sentence(one)}<td>{number_cell}<td>{_verdict(one, scale)}</tr>"


def _sentence(one: Decided) -> str:
    sentence = escape(one.claim.sentence)
    return f"<s>{sentence}</s>" if one.verdict == REFUTED else sentence


def _verdict(one: Decided, scale: str) -> str:
    return f"<b class='v {one.verdict}'>{verdict_text(one.verdict, scale)}</b>"


def _image(figure: Figure, words: str) -> str:
    # As an image of its own, so that ids inside two figures cannot meet.
    content = base64.b64encode(save(figure).encode()).decode()
    return (
        f"<p><img alt='{escape(words, quote=True)}' src='data:image/svg+xml;base64,{content}'></p>"
    )


def _paragraphs(text: str) -> str:
    return "".join(
        f"<p>{escape(' '.join(part.split()))}</p>" for part in text.split("\n\n") if part
    )


def _table(data: xarray.Dataset) -> str:
    """A row for every cell of the grid, a column for every number of a seed."""
    names = [name for name in data if data[name].dims[-1] == "seed"]
    axes = [axis for axis in data[names[0]].dims if axis != "seed"] if names else []
    head = "".join(f"<th>{escape(str(name))}" for name in [*axes, *names])
    rows = []
    tables = [data[name].transpose(*axes, "seed").values for name in names]
    for place in np.ndindex(*(data.sizes[axis] for axis in axes)):
        values = [table[place] for table in tables]
        if all(np.isnan(value).all() for value in values):
            # left out of the grid
            continue
        point = [_plain(data[axis].values[k]) for axis, k in zip(axes, place, strict=True)]
        cells = [*point, *(_spread(value) for value in values)]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells) + "</tr>")
    return f"<table class=data><tr>{head}</tr>{''.join(rows)}</table>"


def _spread(values: np.ndarray) -> str:
    lost = int(np.sum(~np.isfinite(values)))
    known = values[np.isfinite(values)]
    text = number(float(known.mean())) if len(known) else ""
    if len(known) > 1 and known.min() < known.max():
        text += f" ({number(float(known.min()))}, {number(float(known.max()))})"
    return f"{text} {lost} not finite".strip() if lost else text


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, str) else number(float(value))


def _claim(one: Decided) -> dict[str, Any]:
    found = one.estimate
    bounds = {name: getattr(found, name) for name in ("value", "low", "high")}
    return {
        "sentence": one.claim.sentence,
        "verdict": one.verdict,
        "shown": number(found.value),
        "text": str(found),
        **{name: bound if math.isfinite(bound) else None for name, bound in bounds.items()},
        "claimed": one.claim.relation,
        "comparisons": one.comparisons,
        "note": found.note,
    }
