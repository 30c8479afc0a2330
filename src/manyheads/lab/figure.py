"""Figures in one size of type: ordered quantities in one ramp, labels at the ends of lines."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from manyheads.data.files import write_whole
from manyheads.lab.estimate import number
from manyheads.lab.results import Results

SIZE = 9.0
STYLE: Any = {
    "font.size": SIZE,
    "axes.titlesize": SIZE,
    "axes.labelsize": SIZE,
    "legend.fontsize": SIZE,
    "xtick.labelsize": SIZE,
    "ytick.labelsize": SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    # the same figure is the same file
    "svg.hashsalt": "manyheads",
    "pdf.fonttype": 42,
}
# For what has no order; told apart by color-blind readers too, and by their markers.
DISTINCT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000")
MARKERS = "osD^vP"
# What is to be written at the ends of the lines of a figure, for as long as it lives.
ENDS: WeakKeyDictionary[Axes, list[tuple[float, float, str, Any]]] = WeakKeyDictionary()
# between two labels, as a share of the height
GAP = 0.07


def draw(paint: Callable[[Results, Any], None], results: Results, panels: int = 1) -> Figure:
    """A figure of panels beside each other.

    `paint(results, axes)` draws into it; `axes` is a list if there are several panels.
    """
    with rc_context(STYLE):
        figure = Figure(figsize=(4.6 * panels + 0.9, 3.4), layout="constrained")
        axes = list(np.ravel(figure.subplots(1, panels)))
        paint(results, axes[0] if panels == 1 else axes)
        for one in axes:
            _label_ends(one)
    return figure


def lines(
    axes: Axes,
    results: Results,
    name: str,
    along: str,
    by: str | None = None,
    *,
    log: bool = True,
    label: Callable[[Any], str] | None = None,
    **setting: Any,
) -> None:
    """Means over the seeds with their intervals along an axis, a line for each value of another.

    Args:
        axes: where to draw.
        results: those of the sweep.
        name: the variable.
        along: the axis of the sweep that lies horizontally.
        by: the axis of which every value gets a line.
        log: whether to take geometric means and to draw them logarithmically.
        label: the text at the end of a line, from the value of `by`.
        setting: the choice along all further axes.
    """
    groups = [None] if by is None else results.data[by].values.tolist()
    positions = results.data[along].values.tolist()
    named = isinstance(positions[0], str)
    x = np.arange(len(positions)) if named else np.array(positions, float)
    for group, color, marker in zip(groups, *_colors(groups), strict=True):
        chosen = setting if by is None else setting | {by: group}
        found = [
            results.of(results.values(name, **chosen, **{along: p}), log=log) for p in positions
        ]
        middle, low, high = (
            np.array([getattr(e, bound) for e in found]) for bound in ("value", "low", "high")
        )
        axes.plot(x, middle, marker=marker, color=color, linestyle="none" if named else "-")
        # One seed has no interval.
        bounded = np.isfinite(low) & np.isfinite(high)
        if named:
            sizes = np.where(bounded, [middle - low, high - middle], np.nan)
            axes.errorbar(x, middle, sizes, color=color, linestyle="none")
        else:
            axes.fill_between(x, low, high, where=bounded, color=color, alpha=0.18, linewidth=0)
        known = np.flatnonzero(np.isfinite(middle))
        if group is not None and len(known):
            text = label(group) if label else group if isinstance(group, str) else number(group)
            end = (x[known[-1]], middle[known[-1]])
            ENDS.setdefault(axes, []).append((*end, text, color))
    if named:
        axes.set_xticks(x, positions)
        axes.margins(x=0.2)
    elif min(x) > 0 and max(x) >= 8 * min(x):
        axes.set_xscale("log", base=2)
        axes.set_xticks(x, [number(position, 4) for position in positions], minor=False)
        axes.minorticks_off()
    if log:
        axes.set_yscale("log")


def save(figure: Figure, path: str | Path | None = None) -> str:
    """The figure as SVG; with a path it is written there, as a PDF where the name ends so."""
    with rc_context(STYLE):
        buffer = io.BytesIO()
        is_pdf = path is not None and Path(path).suffix == ".pdf"
        # Without a date, so that the same figure is the same file.
        when = {"CreationDate": None} if is_pdf else {"Date": None}
        figure.savefig(buffer, format="pdf" if is_pdf else "svg", metadata=when)
    if path is not None:
        write_whole(Path(path), buffer.getvalue())
    return "" if is_pdf else buffer.getvalue().decode()


def _colors(groups: list[Any]) -> tuple[list[Any], list[str]]:
    """A ramp for numbers, different colors for names; and markers."""
    if isinstance(groups[0], str):
        kinds = range(len(groups))
        return [DISTINCT[k % 6] for k in kinds], [MARKERS[k % 6] for k in kinds]
    ramp = colormaps["viridis"]
    return [ramp(0.88 * (1 - share)) for share in np.linspace(0, 1, len(groups))], ["o"] * len(
        groups
    )


def _label_ends(axes: Axes) -> None:
    """Labels right of the axes at the heights of the ends, moved apart where they would overlap."""
    # The limits must be final before heights are read.
    axes.autoscale_view()
    heights = []
    for x, y, text, color in ENDS.get(axes, []):
        height = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1]
        heights.append((float(height), text, color))
    # From the lowest upwards, each at least a gap above the one before.
    taken = -np.inf
    for height, text, color in sorted(heights, key=lambda item: item[0]):
        taken = max(height, taken + GAP)
        axes.annotate(
            text,
            (1.01, taken),
            xycoords="axes fraction",
            color=color,
            va="center",
            annotation_clip=False,
        )
