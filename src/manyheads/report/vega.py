"""Figures for the page: one Vega-Lite view per panel, in plain dictionaries."""

from __future__ import annotations

import math
from typing import Any

from manyheads.studies.estimate import tick_text
from manyheads.studies.figure import Axis, Figure, MapPanel, Mark, Panel
from manyheads.studies.palette import look

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, never fetched
SHAPES = {"o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "D": "diamond", "P": "cross"}
SHAPES |= {"X": "triangle-right", "": "circle"}
HEIGHT = 270
MAP_HEIGHT = 230
LINE_HEIGHT = 20
MOST_MARKERS = 14


def views(figure: Figure) -> list[dict[str, Any]]:
    """One view per panel."""
    return [_map(panel) if isinstance(panel, MapPanel) else _panel(panel) for panel in figure.panels]


def colors(figure: Figure) -> dict[str, str]:
    """Color on light paper -> color on dark paper, for everything the figure draws."""
    looks = [look(role) for panel in figure.panels for role, _, _ in panel.legend()]
    return {each.light: each.dark for each in looks}


def _panel(panel: Panel) -> dict[str, Any]:
    x = _channel("x", panel.x, "nominal" if panel.categorical else "quantitative")
    if panel.ticks:
        texts = ", ".join(f"'{tick_text(value)}'" for value in panel.ticks)
        x["axis"] = {"values": panel.ticks, "labelExpr": f"[{texts}][indexof({panel.ticks}, datum.value)]"}
        x["axis"]["labelOverlap"] = "greedy"
    y = _channel("y", panel.y, "quantitative")
    if panel.sideways:
        return _sideways(panel, y)
    bars = [mark for mark in panel.marks if mark.kind == "bars"]
    layers: list[dict[str, Any]] = []
    if bars:
        layers += _bars(bars, x, y, panel)
    for mark in panel.marks:
        if mark.kind in ("line", "points"):
            layers += _series(mark, x, y, panel)
        elif mark.kind == "rule":
            layers.append(_rule(mark, y, panel))
    view = {**_frame(panel.title), "layer": layers}
    if not panel.categorical:
        zoom = {"type": "interval", "encodings": ["x", "y"], "zoom": "wheel![event.ctrlKey || event.metaKey]"}
        layers[0]["params"] = [{"name": "view", "select": zoom, "bind": "scales"}]
    return view


def _frame(title: str) -> dict[str, Any]:
    frame: dict[str, Any] = {"$schema": SCHEMA, "width": "container", "height": HEIGHT}
    frame["autosize"] = {"type": "fit", "contains": "padding", "resize": True}
    if title:
        frame["title"] = title
    return frame


def _channel(name: str, axis: Axis, kind: str) -> dict[str, Any]:
    scale: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    if kind == "quantitative":
        scale = (
            {"type": "log", "padding": 10, "nice": False} if axis.log else {"zero": False, "padding": 10, "nice": False}
        )
        settings = {"tickCount": 6, "labelOverlap": "greedy", "labelFlush": False}
        if axis.log:
            wide = f"abs(log(domain('{name}')[1] / domain('{name}')[0])) > 4.6"  # more than two decades
            power = "abs(log(datum.value) / log(10) - round(log(datum.value) / log(10))) < 1e-6"
            plain = "datum.value >= 1e-3 && datum.value < 1e5 ? format(datum.value, '~r')"
            text = f"{plain} : replace(format(datum.value, '~e'), '+', '')"
            lead = "round(datum.value / pow(10, floor(log(datum.value) / log(10) + 1e-9)))"
            round_number = f"indexof([1, 2, 5], {lead}) >= 0"
            settings["labelExpr"] = f"({wide} ? {power} : {round_number}) ? ({text}) : ''"
            settings["gridOpacity"] = {"condition": {"test": power, "value": 1}, "value": 0.35}
        if axis.limits:
            scale["domain"] = list(axis.limits)
    else:
        settings = {"labelAngle": 0, "labelLimit": 120}
    return {"field": name, "type": kind, "title": axis.title, "scale": scale, "axis": settings}


def _tooltip(mark: Mark, panel: Panel) -> list[dict[str, Any]]:
    tips = [
        {"field": "series", "type": "nominal", "title": "series"},
        {"field": "x", "type": "nominal" if panel.categorical else "quantitative", "title": panel.x.label},
        {"field": "y", "type": "quantitative", "title": panel.y.label, "format": ".4~g"},
    ]
    if panel.categorical is False:
        tips[1]["format"] = ".6~g"
    if len(mark.low):
        tips += [
            {"field": side, "type": "quantitative", "title": f"95% interval, {side}", "format": ".4~g"}
            for side in ("low", "high")
        ]
    return tips


def _series(mark: Mark, x: dict, y: dict, panel: Panel) -> list[dict[str, Any]]:
    appearance, rows = look(mark.role), mark.rows()
    data = {"values": rows}
    layers: list[dict[str, Any]] = []
    banded = any("low" in row for row in rows)
    low = {**y, "field": "low"}
    if mark.kind == "line":
        if banded:
            band = {"type": "area", "color": appearance.light, "opacity": 0.16, "clip": True, "tooltip": None}
            encoding = {"x": x, "y": low, "y2": {"field": "high"}}
            held = [{"filter": "isValid(datum.low)"}]
            layers.append({"data": data, "transform": held, "mark": band, "encoding": encoding})
        stroke: dict[str, Any] = {"type": "line", "color": appearance.light, "strokeWidth": 2, "clip": True}
        if appearance.dash:
            stroke["strokeDash"] = list(appearance.dash)
        layers.append({"data": data, "mark": stroke, "encoding": {"x": x, "y": y}})
    elif banded:
        whisker = {"type": "rule", "color": appearance.light, "strokeWidth": 1.5, "clip": True}
        encoding = {"x": x, "y": low, "y2": {"field": "high"}}
        held = [{"filter": "isValid(datum.low)"}]
        layers.append({"data": data, "transform": held, "mark": whisker, "encoding": encoding})
    dense = mark.kind == "line" and len(rows) > MOST_MARKERS
    few = rows[:: -(-len(rows) // 6)] if dense and appearance.marker else []
    hidden = dense or (mark.kind == "line" and not appearance.marker)
    dot: dict[str, Any] = {"type": "point", "filled": True, "clip": True, "size": 60, "opacity": 0.0 if hidden else 1.0}
    dot |= {"color": appearance.light, "shape": SHAPES[appearance.marker]}
    layers.append({"data": data, "mark": dot, "encoding": {"x": x, "y": y, "tooltip": _tooltip(mark, panel)}})
    if few:  # a dense line carries some markers, and answers to the pointer everywhere
        seen = {**dot, "opacity": 1.0, "tooltip": None}
        layers.insert(-1, {"data": {"values": few}, "mark": seen, "encoding": {"x": x, "y": y}})
    return layers


def _rule(mark: Mark, y: dict, panel: Panel) -> dict[str, Any]:
    appearance = look(mark.role)
    stroke: dict[str, Any] = {"type": "rule", "color": appearance.light, "strokeWidth": 1.6, "clip": True}
    if appearance.dash:
        stroke["strokeDash"] = list(appearance.dash)
    tips = [tip for tip in _tooltip(mark, panel) if tip["field"] != "x"]
    rows = [{"y": mark.y[0], "series": mark.label}]
    return {"data": {"values": rows}, "mark": stroke, "encoding": {"y": y, "tooltip": tips}}


def _bars(bars: list[Mark], x: dict, y: dict, panel: Panel) -> list[dict[str, Any]]:
    rows = [row for mark in bars for row in mark.rows()]
    order = list(dict.fromkeys(row["x"] for row in rows))
    x = {**x, "sort": order}
    side = {"field": "series", "type": "nominal", "sort": [mark.label for mark in bars]}
    palette = {"domain": [mark.label for mark in bars], "range": [look(mark.role).light for mark in bars]}
    encoding: dict[str, Any] = {"x": x, "xOffset": side, "tooltip": _tooltip(bars[0], panel)}
    if panel.y.log:  # a bar on a logarithmic axis stands on the power of ten below the smallest value
        lowest = min(row.get("low", row["y"]) for row in rows if row.get("low", row["y"]) > 0)
        floor = 10.0 ** math.floor(math.log10(lowest) - 0.2)
        highest = max(row.get("high", row["y"]) for row in rows)
        y = {**y, "scale": {**y["scale"], "domain": [floor, 2 * highest], "padding": 0}}
        encoding["y2"] = {"datum": floor}
    else:
        y = {**y, "scale": {**y["scale"], "zero": True, "padding": 0}}
    encoding["y"] = y
    encoding["color"] = {**side, "scale": palette, "legend": None}
    data = {"values": rows}
    layers = [{"data": data, "mark": {"type": "bar"}, "encoding": encoding}]
    if any("low" in row for row in rows):
        whisker = {"x": x, "xOffset": side, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        held = [{"filter": "isValid(datum.low)"}]
        mark = {"type": "rule", "color": look("measured").light}
        layers.append({"data": data, "transform": held, "mark": mark, "encoding": whisker})
    return layers


def _sideways(panel: Panel, values: dict) -> dict[str, Any]:
    """Bars on their side: categories down, values to the right."""
    rows = [row for mark in panel.marks for row in mark.rows()]
    series = [mark.label for mark in panel.marks]
    side = {"field": "series", "type": "nominal", "sort": series}
    palette = {"domain": series, "range": [look(mark.role).light for mark in panel.marks]}
    names = {"field": "x", "type": "nominal", "sort": panel.categories, "title": panel.x.title}
    encoding = {
        "x": {**values, "scale": {"type": "log", "nice": False} if panel.y.log else {"zero": True}},
        "y": {**names, "axis": {"labelLimit": 200}},
        "yOffset": side,
        "color": {**side, "scale": palette, "legend": None},
        "tooltip": _tooltip(panel.marks[0], panel),
    }
    frame = {**_frame(panel.title), "height": 90 + LINE_HEIGHT * len(panel.categories)}
    return {**frame, "data": {"values": rows}, "mark": "bar", "encoding": encoding}


def _map(panel: MapPanel) -> dict[str, Any]:
    rows, columns = panel.names
    fill = {
        "field": "value",
        "type": "quantitative",
        "title": panel.color.title,
        "scale": {"scheme": "cividis", "domain": list(panel.limits)},
        "legend": None,  # the page draws one for all maps of a figure
    }
    place = {"type": "ordinal", "axis": {"labelAngle": 0, "labelOverlap": "greedy", "ticks": False, "domain": False}}
    encoding: dict[str, Any] = {
        "x": {**place, "field": "x", "title": panel.x.label, "sort": list(columns)},
        "y": {**place, "field": "y", "title": panel.y.label, "sort": list(rows)},
        "color": fill,
        "tooltip": [
            {"field": "y", "type": "nominal", "title": panel.y.label},
            {"field": "x", "type": "nominal", "title": panel.x.label},
            {"field": "value", "type": "quantitative", "title": panel.color.label, "format": ".3~f"},
        ],
    }
    frame = {**_frame(panel.title), "height": MAP_HEIGHT}
    return {**frame, "data": {"values": panel.rows()}, "mark": "rect", "encoding": encoding}
