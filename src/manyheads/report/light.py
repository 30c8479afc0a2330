"""Drawings for a page without a drawing library: one SVG per panel, drawn once from the views of the page.

A group of marks keeps what the page's script needs: `data-s`, its place in the legend, and `data-tips`, a text for
each mark. A line has tips at its points; hidden points are not drawn.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from manyheads.report import vega
from manyheads.studies.kit.estimate import number

WIDTH = 340
INK, SOFT, LINE = "var(--ink)", "var(--soft)", "var(--line)"
TEXT = {
    "labelColor": SOFT,
    "titleColor": INK,
    "titleFontWeight": 500,
    "titleFontSize": 12,
    "labelFontSize": 11.5,
}
LOOK = {
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {**TEXT, "gridColor": LINE, "domainColor": SOFT, "tickColor": LINE, "titlePadding": 8},
    "title": {"color": INK, "fontSize": 13, "fontWeight": 600, "anchor": "start", "offset": 8},
}
IDLE = (
    r' (aria-\w+|role|class|version|xmlns:xlink|pointer-events|font-family|opacity(?=="1"))="[^"]*"'
)
COORDINATE = r'(?<!opacity=")(?<![\d.])-?\d+\.\d\d+'
GRID = {  # most of a drawing is grid lines; the style sheet says how they look
    f' stroke="{LINE}" stroke-width="1" opacity="0.35"': ' class="faint"',
    f' stroke="{LINE}" stroke-width="1"': ' class="grid"',
}
SHOWN = ("x", "y", "value")  # fields of a tip
GROUP = r'<g class="mark-(\w+) role-mark (\w*)marks"([^>]*)>(.*?)</g>'


def svg(name: str, view: dict[str, Any], colors: dict[str, str]) -> str:
    """A view as an SVG, coordinates to a tenth, colors as variables of `style`.

    Its ids begin with its name, so that ids of several drawings on one page do not clash.
    """
    import vl_convert

    visible = {**_still(view), "width": WIDTH}
    layers = {layer["name"]: layer for layer in view.get("layer", ())}
    if layers:
        visible["layer"] = [_still(layer) for layer in layers.values()]
    drawn = vl_convert.vegalite_to_svg(visible, vl_version="6.1", config=LOOK)
    drawn = re.sub(
        GROUP,
        lambda found: _group(found, layers.get(found[2].rstrip("_"), view)),
        drawn,
        flags=re.DOTALL,
    )
    drawn = re.sub(IDLE, "", drawn)
    drawn = re.sub(
        "<[^>]*>", lambda tag: tag[0] if "data-tips" in tag[0] else _rounded(tag[0]), drawn
    )
    drawn = re.sub(r"\b(clip|gradient)_?(?=\d)", rf"{name}-\1", drawn)
    for look, short in GRID.items():
        drawn = drawn.replace(look, short)
    return (
        re.sub("|".join(colors), lambda found: f"var(--c{found[0][1:]})", drawn)
        if colors
        else drawn
    )


def _group(found: re.Match, layer: dict[str, Any]) -> str:
    """A group of marks with its place in the legend and its tips, if it has any."""
    kind, name, attributes, marks = found.groups()
    series = re.match(r"s(\d+)x", name)
    said = f' data-s="{series[1]}"' if series else ""
    tips = layer.get("encoding", {}).get("tooltip")
    rows = layer.get("data", {}).get("values", [])
    drawn = re.findall(r"<(?:path|line) [^>]*>", marks)
    if tips and rows and len(rows) == len(drawn):
        texts = [_tip(row, tips) for row in rows]
        if kind == "symbol":
            places = [re.search(r"translate\((-?[\d.]+),(-?[\d.]+)\)", mark) for mark in drawn]
            texts = [
                f"{_tenth(p[1])},{_tenth(p[2])},{t}" if p else ""
                for p, t in zip(places, texts, strict=True)
            ]
        titles = [tip["title"] for tip in tips if tip["field"] in SHOWN]
        names = "|".join(text.replace("|", "/") for text in (rows[0].get("series", ""), *titles))
        said += f' data-names="{escape(names)}" data-tips="{escape(";".join(texts))}"'
    mark = layer.get("mark")
    hidden = isinstance(mark, dict) and mark.get("opacity") == vega.HIDDEN
    return f"<g{attributes}{said}>{'' if hidden else marks}</g>"


def _tip(row: dict[str, Any], tips: list[dict[str, Any]]) -> str:
    """The values of a mark, separated by |: its position, its size, and its interval if it has one."""
    shown = [row[tip["field"]] for tip in tips if tip["field"] in SHOWN]
    texts = [number(value, 4) if isinstance(value, float | int) else str(value) for value in shown]
    if "low" in row:
        texts.append(f"{number(row['low'])} to {number(row['high'])}")
    return "|".join(text.replace("|", "/").replace(";", ",") for text in texts)


def _rounded(tag: str) -> str:
    """A tag with its coordinates rounded to a tenth; labels, which are outside tags, are unchanged."""
    return re.sub(COORDINATE, lambda found: _tenth(found[0]), tag)


def _tenth(coordinate: str) -> str:
    return f"{float(coordinate):.1f}".removesuffix(".0")


def _still(layer: dict[str, Any]) -> dict[str, Any]:
    """A layer without tooltips or zoom."""
    kept = {name: value for name, value in layer.items() if name != "params"}
    if "encoding" in kept:
        kept["encoding"] = {
            name: channel for name, channel in kept["encoding"].items() if name != "tooltip"
        }
    return kept


def style(colors: dict[str, str]) -> str:
    """The colors of the drawings on light and dark backgrounds."""
    light = "".join(f"--c{color[1:]}:{color};" for color in colors)
    dark = "".join(f"--c{color[1:]}:{other};" for color, other in colors.items())
    shape = ".chart{min-height:0}.chart svg{width:100%;height:auto;font-family:var(--sans)}"
    return f":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n{shape}"
