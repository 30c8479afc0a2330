"""Figures for print, one column wide as PDF and PNG, and for slides, 16:9 with large type; drawn by matplotlib."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from manyheads.studies.kit.estimate import number
from manyheads.studies.kit.figure import Figure, MapPanel, Mark, Panel
from manyheads.studies.kit.palette import Look, look
from manyheads.studies.kit.words import tick_text

WIDTH = 3.35  # inches, one column
HEIGHT = 2.15  # of a panel
RESOLUTION = 300
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "grid.color": "#e4e7eb",
    "grid.linewidth": 0.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.2,
    "pdf.fonttype": 42,  # TrueType, embedded
    "savefig.facecolor": "white",
}
MAP_COLORS = "cividis"
SLIDE = 40 / 3, 7.5  # inches, 16:9
SLIDE_RESOLUTION = 144  # 1920 x 1080 pixels
LARGER = 2.2  # scale of type and lines on a slide relative to print
SLIDE_STYLE = {
    name: LARGER * value
    if isinstance(value, float | int) and not isinstance(value, bool)
    else value
    for name, value in STYLE.items()
    if name != "pdf.fonttype"
}
CHARACTERS = 54  # in a line of a legend above a printed column


def save(figure: Figure, folder: Path) -> tuple[Path, Path, Path]:
    """Draw a figure and write `NAME.pdf`, `NAME.png` and `NAME-slide.png` into a folder."""
    import matplotlib

    slide = folder / f"{figure.name}-slide.png"
    with matplotlib.rc_context(SLIDE_STYLE):
        metadata = {"Software": None, "Title": figure.title}
        _draw(figure, slide=True).savefig(slide, dpi=SLIDE_RESOLUTION, metadata=metadata)

    with matplotlib.rc_context(STYLE):
        drawn = _draw(figure)
        paths = folder / f"{figure.name}.pdf", folder / f"{figure.name}.png"
        drawn.savefig(paths[1], dpi=RESOLUTION, metadata={"Software": None, "Title": figure.title})
        drawn.set_layout_engine("none")  # the layout is final
        drawn.savefig(
            paths[0], metadata={"CreationDate": None, "Title": figure.title, "Creator": "manyheads"}
        )
    return *paths, slide


def _draw(figure: Figure, slide: bool = False):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    count = len(figure.panels)
    columns = max(1, figure.columns)
    characters: float = CHARACTERS
    if slide:
        columns = max(columns, {4: 2}.get(count, min(count, 3)))
        characters *= 0.7 * SLIDE[0] / WIDTH / LARGER / columns  # leaves room for axis labels
    lines = -(-len(figure.panels) // columns)
    legends = figure.legends()
    heights = (
        [_height(panel) for panel in figure.panels]
        if columns == 1
        else [WIDTH / columns + 0.35] * lines
    )
    height = sum(heights) + sum(map(_legend_height, legends))
    layout = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15) if slide else "constrained"
    canvas = Canvas(figsize=SLIDE if slide else (WIDTH, height), layout=layout)
    FigureCanvasAgg(canvas)
    if slide:
        canvas.suptitle(
            figure.title, fontsize=1.35 * SLIDE_STYLE["axes.titlesize"], fontweight="bold"
        )
    axes = canvas.subplots(
        lines, columns, squeeze=False, height_ratios=heights if not slide else None
    ).ravel()
    for i, (place, panel) in enumerate(zip(axes, figure.panels, strict=False)):
        if isinstance(panel, MapPanel):
            shown = _map(place, panel)
        else:
            _panel(place, panel)
            title = textwrap.fill(panel.title, int(characters)) if slide else panel.title
            _legend(place, title, legends[i] if i < len(legends) else [], characters)
    for place in axes[len(figure.panels) :]:
        place.set_visible(False)
    if maps := [p for p in figure.panels if isinstance(p, MapPanel)]:
        used = [
            place
            for place, panel in zip(axes, figure.panels, strict=False)
            if isinstance(panel, MapPanel)
        ]
        bar = canvas.colorbar(shown, ax=used, location="bottom", shrink=0.7, aspect=30, pad=0.02)
        bar.set_label(maps[0].color.title)
        bar.outline.set_linewidth(0.5)
    return canvas


def _legend(axes, title: str, entries: list, characters: float) -> None:
    """The title of a panel and its legend below it, above the axes, where they cover no data."""
    import matplotlib

    if not entries:
        axes.set_title(title)
        return
    legend = axes.legend(
        handles=[_handle(*entry) for entry in entries],
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=_legend_columns(entries, characters),
        title=title or None,
        title_fontproperties={"weight": "bold", "size": matplotlib.rcParams["axes.titlesize"]},
        alignment="left",
        frameon=False,
        handlelength=2.6,
        columnspacing=1.0,
        borderaxespad=0.1,
        borderpad=0.1,
    )
    legend.set_in_layout(True)


def _legend_columns(entries: list, characters: float = CHARACTERS) -> int:
    """As many columns as fit above the axes."""
    widest = max((len(label) for _, label, _ in entries), default=1)
    return max(1, min(4, int(characters / (widest + 8)), len(entries)))


def _legend_height(entries: list) -> float:
    return 0.16 * -(-len(entries) // _legend_columns(entries)) + 0.05 if entries else 0.0


def _height(panel: Panel | MapPanel) -> float:
    """Height of a panel in inches; horizontal bars need a line for each category."""
    return (
        0.5 + 0.17 * len(panel.categories)
        if isinstance(panel, Panel) and panel.sideways
        else HEIGHT
    )


def _panel(axes, panel: Panel) -> None:
    if panel.sideways:
        _sideways(axes, panel)
        return
    categories = panel.categories
    grouped = [mark for mark in panel.marks if mark.kind == "bars"]
    for mark in panel.marks:
        if mark.kind == "rule":
            axes.axhline(mark.y[0], **_stroke(look(mark.role)))
        elif mark.kind == "bars":
            _bars(axes, mark, categories, grouped.index(mark), len(grouped))
        else:
            _series(axes, mark, categories)
    if categories:
        axes.set_xticks(range(len(categories)), categories)
        axes.grid(False, axis="x")
        axes.set_xlim(-0.6, len(categories) - 0.4)
    for axis, scale, limits in (("x", panel.x, axes.set_xlim), ("y", panel.y, axes.set_ylim)):
        if scale.limits:
            limits(*scale.limits)
        if scale.log and not (axis == "x" and categories):
            (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
            _label_logarithm(
                axes.xaxis if axis == "x" else axes.yaxis, panel.ticks if axis == "x" else []
            )
    axes.set_xlabel(panel.x.title)
    axes.set_ylabel(panel.y.title)


def _label_logarithm(axis, ticks: list[float]) -> None:
    """Labels at the given values, if any; else plain numbers if the axis spans less than two decades."""
    from matplotlib.ticker import (
        FixedLocator,
        FuncFormatter,
        LogLocator,
        NullFormatter,
        NullLocator,
    )

    low, high = axis.get_view_interval()
    if ticks:
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    elif high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axis.set_minor_formatter(NullFormatter())


def _sideways(axes, panel: Panel) -> None:
    categories, width = panel.categories, 0.8 / len(panel.marks)
    for position, mark in enumerate(panel.marks):
        rows = mark.rows()
        places = [
            categories.index(row["x"]) + (position - (len(panel.marks) - 1) / 2) * width
            for row in rows
        ]
        axes.barh(
            places,
            [row["y"] for row in rows],
            width * 0.92,
            color=look(mark.role).light,
            linewidth=0,
        )
    axes.set_yticks(range(len(categories)), categories)
    axes.set_ylim(len(categories) - 0.4, -0.6)
    axes.grid(False, axis="y")
    if panel.y.log:
        axes.set_xscale("log")
    axes.set_xlabel(panel.y.title)
    axes.set_ylabel(panel.x.title)


def _series(axes, mark: Mark, categories: list[str]) -> None:
    appearance, rows = look(mark.role), mark.rows()
    x = [categories.index(row["x"]) if categories else row["x"] for row in rows]
    y = [row["y"] for row in rows]
    banded = [(at, row) for at, row in zip(x, rows, strict=True) if "low" in row]
    every = (
        1 if len(rows) <= 14 else -(-len(rows) // 6)
    )  # a dense line has markers only on some points
    axes.plot(x, y, **_stroke(appearance), marker=appearance.marker or None, markevery=every)
    if banded:
        lows, highs = [row["low"] for _, row in banded], [row["high"] for _, row in banded]
        axes.fill_between(
            [at for at, _ in banded], lows, highs, color=appearance.light, alpha=0.16, linewidth=0
        )


def _stroke(appearance: Look) -> dict[str, Any]:
    return {"color": appearance.light, "dashes": appearance.dash or (1, 0)}


def _bars(axes, mark: Mark, categories: list[str], position: int, total: int) -> None:
    width = 0.8 / total
    rows = mark.rows()
    x = [categories.index(row["x"]) + (position - (total - 1) / 2) * width for row in rows]
    axes.bar(x, [row["y"] for row in rows], width * 0.92, color=look(mark.role).light, linewidth=0)
    if banded := [(at, row) for at, row in zip(x, rows, strict=True) if "low" in row]:
        ends = [
            [row["y"] - row["low"] for _, row in banded],
            [row["high"] - row["y"] for _, row in banded],
        ]
        whiskers = {"ecolor": look("measured").light, "elinewidth": 0.8, "capsize": 1.5}
        axes.errorbar(
            [at for at, _ in banded],
            [row["y"] for _, row in banded],
            yerr=ends,
            fmt="none",
            **whiskers,
        )


def _map(axes, panel: MapPanel):
    from matplotlib.ticker import FixedLocator

    rows, columns = panel.names
    low, high = panel.limits
    shown = axes.imshow(
        panel.values, cmap=MAP_COLORS, vmin=low, vmax=high, interpolation="nearest", aspect="equal"
    )
    axes.grid(False)
    for axis, names, most in ((axes.xaxis, columns, 8), (axes.yaxis, rows, 12)):
        every = max(1, -(-len(names) // most))
        axis.set_major_locator(FixedLocator(range(0, len(names), every)))
        axis.set_ticklabels(names[::every])
    axes.tick_params(length=0)
    axes.set_xlabel(panel.x.label)
    axes.set_ylabel(panel.y.label)
    axes.set_title(panel.title, loc="center", fontsize="small", fontweight="normal")
    return shown


def _handle(role: str, label: str, kind: str):
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    appearance = look(role)
    if kind == "bars":
        return Patch(color=appearance.light, label=label)
    marker = appearance.marker if kind != "rule" else None
    return Line2D([], [], **_stroke(appearance), marker=marker or None, label=label)
