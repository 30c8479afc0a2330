"""Drawings for a page without a drawing library: one SVG per panel, drawn once from the views of the page."""

from __future__ import annotations

import re
from typing import Any

from manyheads.report import vega

WIDTH = 340
INK, SOFT, LINE = "var(--ink)", "var(--soft)", "var(--line)"
TEXT = {"labelColor": SOFT, "titleColor": INK, "titleFontWeight": 500, "titleFontSize": 12, "labelFontSize": 11.5}
LOOK = {
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {**TEXT, "gridColor": LINE, "domainColor": SOFT, "tickColor": LINE, "titlePadding": 8},
    "title": {"color": INK, "fontSize": 13, "fontWeight": 600, "anchor": "start", "offset": 8},
}
IDLE = r' (aria-\w+|role|class|version|xmlns:xlink|pointer-events|font-family|opacity(?=="1"))="[^"]*"'
COORDINATE = r'(?<!opacity=")(?<![\d.])-?\d+\.\d\d+'


def svg(name: str, view: dict[str, Any], colors: dict[str, str]) -> str:
    """A view as an SVG without tooltips, coordinates to a tenth, colors as variables of `style`.

    Its ids begin with its name, so that those of several drawings on one page differ.
    """
    import vl_convert

    visible = {**_still(view), "width": WIDTH}
    if "layer" in view:
        visible["layer"] = [_still(layer) for layer in view["layer"] if layer["mark"].get("opacity") != vega.HIDDEN]
    drawn = re.sub(IDLE, "", vl_convert.vegalite_to_svg(visible, vl_version="6.1", config=LOOK))
    drawn = re.sub("<[^>]*>", lambda tag: re.sub(COORDINATE, _tenth, tag[0]), drawn)  # labels stay as they are
    drawn = re.sub(r"\b(clip|gradient)_?(?=\d)", rf"{name}-\1", drawn)
    return re.sub("|".join(colors), lambda found: f"var(--c{found[0][1:]})", drawn) if colors else drawn


def _tenth(found: re.Match) -> str:
    return f"{float(found[0]):.1f}".removesuffix(".0")


def _still(layer: dict[str, Any]) -> dict[str, Any]:
    """A layer without tooltips and zoom."""
    kept = {name: value for name, value in layer.items() if name != "params"}
    if "encoding" in kept:
        kept["encoding"] = {name: channel for name, channel in kept["encoding"].items() if name != "tooltip"}
    return kept


def style(colors: dict[str, str]) -> str:
    """The colors of the drawings on light and on dark paper."""
    light = "".join(f"--c{color[1:]}:{color};" for color in colors)
    dark = "".join(f"--c{color[1:]}:{other};" for color, other in colors.items())
    shape = ".chart{min-height:0}.chart svg{width:100%;height:auto;font-family:var(--sans)}"
    return f":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n{shape}"
