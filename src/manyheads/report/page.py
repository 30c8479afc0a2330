"""The page: chapters, cards and ledger in one HTML file that fetches nothing."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import manyheads
from manyheads.report import light, vega
from manyheads.report.legend import legend_svg
from manyheads.report.mathml import typeset
from manyheads.studies.kit.figure import Figure, MapPanel, place
from manyheads.studies.kit.story import OPEN, OPEN_HEADING, told
from manyheads.studies.kit.story import place as story_place
from manyheads.studies.kit.study import Finding, Number, Study

MOST_SERIES = 16  # legend entries that can be clicked


@dataclass(frozen=True)
class Chapter:
    """One study as stored: its answer, its figures, and what did not run."""

    study: Study
    finding: Finding
    figures: tuple[Figure, ...]
    sweeps: tuple[dict[str, str], ...]  # name and text of each grid
    missing: str = ""


def render(
    chapters: Sequence[Chapter],
    *,
    ledger: dict[str, Any],
    starts: list[dict[str, str]],
    reproduce: dict[str, Any],
    scale: str,
    static: bool = False,
) -> str:
    """The HTML of the whole page; `static` embeds finished drawings instead of the drawing library."""
    import jinja2
    from markupsafe import Markup

    files = resources.files("manyheads.report") / "static"
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("manyheads.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["typeset"] = lambda text: Markup(typeset(text))
    figures: dict[str, Any] = {}
    colors: dict[str, str] = {"#1d2530": "#eef1f5"}
    shown, first = [], ""
    chapters = sorted(chapters, key=lambda chapter: story_place(chapter.study))
    for chapter in chapters:
        drawn = []
        for figure in chapter.figures:
            names = [f"{figure.name}-{i}" for i in range(len(figure.panels))]
            figures |= dict(zip(names, vega.views(figure), strict=True))
            colors |= vega.colors(figure)
            drawings = [
                light.svg(name, figures[name], vega.colors(figure)) if static else ""
                for name in names
            ]
            drawn.append(_figure(figure, names, drawings, Markup))
            if static and not first:
                first = light.svg("first-screen", figures[names[0]], vega.colors(figure))
        shown.append(
            {
                "study": chapter.study,
                "finding": chapter.finding,
                "figures": drawn,
                "sweeps": chapter.sweeps,
                "missing": chapter.missing,
                "numbers": [_row(row) for row in chapter.finding.numbers.values()],
                "place": len(shown) + 1,
            }
        )
    views = json.dumps({"figures": figures, "colors": colors}, allow_nan=False).replace(
        "<", "\\u003c"
    )
    return environment.get_template("page.html").render(
        title="manyheads: what is true of training multi-head attention",
        kicker=f"{len(chapters)} {'question' if len(chapters) == 1 else 'questions'}, {scale} scale",
        headline="What is true of training multi-head attention?",
        conclusion=conclusion(chapters),
        first=Markup(first),
        version=manyheads.__version__,
        chapters=shown,
        parts=told((chapter["study"], chapter) for chapter in shown),
        open_questions=OPEN,
        open_heading=OPEN_HEADING,
        ledger=ledger,
        starts=starts,
        reproduce=reproduce,
        static=static,
        style=Markup(
            (files / "page.css").read_text() + _toggles() + (light.style(colors) if static else "")
        ),
        script=Markup((files / "page.js").read_text()),
        vega=""
        if static
        else Markup(re.sub("</script", r"<\\/script", javascript(), flags=re.IGNORECASE)),
        views=Markup(views),
    )


def conclusion(chapters: Sequence[Chapter]) -> list[str]:
    """Three sentences for the first screen: the studies' conclusions, then answers prefixed with their titles."""
    alone = [chapter.finding.conclusion for chapter in chapters if chapter.finding.conclusion]
    others = [f"{c.study.title}: {c.finding.answer}." for c in chapters if not c.finding.conclusion]
    return [*alone, *others][:3]


def _toggles() -> str:
    """CSS rules that hide a series when its legend entry is clicked."""
    hidden = (f'.off-{i} g[data-s="{i}"],.off-{i} g[class*=" s{i}x"]' for i in range(MOST_SERIES))
    return f"{','.join(hidden)}{{display:none}}\n"


def _caption(figure: Figure, markup) -> str:
    """The caption with panel positions that match the layout: side by side, or stacked on a narrow screen."""
    count = len(figure.panels)

    def words(found: re.Match) -> str:
        first = found.start() == 0 or text[: found.start()].endswith(". ")
        wide, narrow = (
            place(int(found[1]), count, across=across, first=first) for across in (True, False)
        )
        return f'<span class="wide">{wide}</span><span class="narrow">{narrow}</span>'

    text = str(markup.escape(figure.caption))
    return markup(re.sub(r"@([1-3])", words, text)) if count in (2, 3) else markup(text)


def _figure(figure: Figure, names: list[str], drawings: list[str], markup) -> dict[str, Any]:
    """What the template of a figure needs; a legend shared by all panels is placed above them."""
    legends = [
        [
            {
                "svg": markup(legend_svg(role, kind)),
                "label": label,
                "place": i if i < MOST_SERIES else None,
            }
            for i, (role, label, kind) in enumerate(legend)
        ]
        for legend in figure.legends()
    ]
    shared = legends[0] if len(legends) == 1 else []
    own = legends if len(legends) > 1 else [[] for _ in names]
    maps = [panel for panel in figure.panels if isinstance(panel, MapPanel)]
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": _caption(figure, markup),
        "legend": shared,
        "panels": [
            {"view": name, "legend": legend, "drawing": markup(drawing)}
            for name, legend, drawing in zip(names, own, drawings, strict=True)
        ],
        "maps": len(maps) == len(figure.panels),
        "scale": {"title": maps[0].color.title, "low": maps[0].limits[0], "high": maps[0].limits[1]}
        if maps
        else None,
    }


def require_javascript() -> None:
    """Fail before the runs, not after them, if the page cannot be made."""
    if importlib.util.find_spec("vl_convert") is None:
        raise ValueError(
            "the page needs vl-convert, which is not installed: run `pip install 'manyheads[report]'`, or `make run`."
        )


def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed vl-convert."""
    require_javascript()
    import vl_convert

    return vl_convert.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;")


def _row(row: Number) -> dict[str, str]:
    estimate = row.estimate
    value, count = str(estimate), str(estimate.count)
    return {"name": row.caption, "value": value, "interval": estimate.interval, "count": count}
