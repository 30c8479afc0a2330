"""Figures for the page: one Vega-Lite view per panel, in plain dictionaries."""

from __future__ import annotations

import math
from typing import Any

from manyheads.studies.kit.figure import Axis, Figure, MapPanel, Mark, Panel
from manyheads.studies.kit.palette import look
from manyheads.studies.kit.words import tick_text

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name, never fetched
SHAPES = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    "D": "diamond",
    "P": "cross",
}
SHAPES |= {"X": "triangle-right", "<": "triangle-left", "": "circle"}
HEIGHT = 270
MAP_HEIGHT = 230
LINE_HEIGHT = 20
MOST_MARKERS = 14
HIDDEN = 0.0  # opacity of points that only carry tooltips


def views(figure: Figure) -> list[dict[str, Any]]:
    """One view per panel."""
    return [
        _map(panel) if isinstance(panel, MapPanel) else _panel(panel) for panel in figure.panels
    ]


def colors(figure: Figure) -> dict[str, str]:
    """Color on a light background -> color on a dark one, for everything the figure draws."""
    looks = [look(role) for panel in figure.panels for role, _, _ in panel.legend()]
    return {each.light: each.dark for each in looks}


def _panel(panel: Panel) -> dict[str, Any]:
    x = _channel("x", panel.x, "nominal" if panel.categorical else "quantitative")
    if panel.ticks:
        texts = ", ".join(f"'{tick_text(value)}'" for value in panel.ticks)
        x["axis"] = {
            "values": panel.ticks,
            "labelExpr": f"[{texts}][indexof({panel.ticks}, datum.value)]",
        }
        x["axis"]["labelOverlap"] = "greedy"
    y = _channel("y", panel.y, "quantitative")
    bars = [mark for mark in panel.marks if mark.kind == "bars"]
    if panel.sideways:
        return _sideways(panel, bars, y)
    layers = _named(_bars(bars, x, y, panel), panel) if bars else []
    for mark in panel.marks:
        if mark.kind == "line":
            layers += _named(_line(mark, x, y, panel), panel, len(layers))
        elif mark.kind == "rule":
            layers += _named([_rule(mark, y, panel)], panel, len(layers))
    view = {**_frame(panel.title), "layer": layers}
    if not panel.categorical:
        zoom = {
            "type": "interval",
            "encodings": ["x", "y"],
            "zoom": "wheel![event.ctrlKey || event.metaKey]",
        }
        layers[0]["params"] = [{"name": "view", "select": zoom, "bind": "scales"}]
    return view


def _named(layers: list[dict[str, Any]], panel: Panel, first: int = 0) -> list[dict[str, Any]]:
    """Layers with names: `s2x5` draws the series at place 2 of the legend. The page uses the names to hide a series."""
    places = {label: i for i, (_, label, _) in enumerate(panel.legend())}
    for i, layer in enumerate(layers):
        rows = layer["data"]["values"]
        layer["name"] = f"s{places[rows[0]['series']] if rows else 0}x{first + i}"
    return layers


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
            {"type": "log", "padding": 10, "nice": False}
            if axis.log
            else {"zero": False, "padding": 10, "nice": False}
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
        {
            "field": "x",
            "type": "nominal" if panel.categorical else "quantitative",
            "title": panel.x.label,
        },
        {"field": "y", "type": "quantitative", "title": panel.y.label, "format": ".4~g"},
    ]
    if panel.categorical is False:
        tips[1]["format"] = ".6~g"
    if len(mark.low):
        tips += [
            {
                "field": side,
                "type": "quantitative",
                "title": f"95% interval, {side}",
                "format": ".4~g",
            }
            for side in ("low", "high")
        ]
    return tips


def _line(mark: Mark, x: dict, y: dict, panel: Panel) -> list[dict[str, Any]]:
    appearance, rows = look(mark.role), mark.rows()
    data, place = {"values": rows}, {"x": x, "y": y}
    stroke = {
        "type": "line",
        "color": appearance.light,
        "strokeWidth": 2,
        "clip": True,
        **_dashes(mark),
    }
    layers = [{"data": data, "mark": stroke, "encoding": place}]
    if any("low" in row for row in rows):
        band = {
            "type": "area",
            "color": appearance.light,
            "opacity": 0.16,
            "clip": True,
            "tooltip": None,
        }
        layers.insert(0, _interval(data, band, x, y))
    dot: dict[str, Any] = {
        "type": "point",
        "filled": True,
        "clip": True,
        "size": 60,
        "opacity": 1.0,
    }
    dot |= {"color": appearance.light, "shape": SHAPES[appearance.marker]}
    dense = len(rows) > MOST_MARKERS
    if dense and appearance.marker:  # a dense line has markers on some points and tooltips on all
        some = {"values": rows[:: -(-len(rows) // 6)]}
        layers.append({"data": some, "mark": {**dot, "tooltip": None}, "encoding": place})
    if dense or not appearance.marker:
        dot["opacity"] = HIDDEN
    layers.append(
        {"data": data, "mark": dot, "encoding": {**place, "tooltip": _tooltip(mark, panel)}}
    )
    return layers


def _dashes(mark: Mark) -> dict[str, Any]:
    dash = look(mark.role).dash
    return {"strokeDash": list(dash)} if dash else {}


def _interval(data: dict, mark: dict[str, Any], x: dict, y: dict, **more: Any) -> dict[str, Any]:
    """Bands or whiskers, if the rows have them."""
    encoding = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **more}
    return {
        "data": data,
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": mark,
        "encoding": encoding,
    }


def _rule(mark: Mark, y: dict, panel: Panel) -> dict[str, Any]:
    stroke = {
        "type": "rule",
        "color": look(mark.role).light,
        "strokeWidth": 1.6,
        "clip": True,
        **_dashes(mark),
    }
    tips = [tip for tip in _tooltip(mark, panel) if tip["field"] != "x"]
    rows = [{"y": mark.y[0], "series": mark.label}]
    return {"data": {"values": rows}, "mark": stroke, "encoding": {"y": y, "tooltip": tips}}


def _series_side(bars: list[Mark]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Bars of one category side by side, and their colors."""
    names = [mark.label for mark in bars]
    side = {"field": "series", "type": "nominal", "sort": names}
    palette = {"domain": names, "range": [look(mark.role).light for mark in bars]}
    return {**side, "scale": {"domain": names}}, {**side, "scale": palette, "legend": None}


def _bars(bars: list[Mark], x: dict, y: dict, panel: Panel) -> list[dict[str, Any]]:
    rows = [row for mark in bars for row in mark.rows()]
    x = {**x, "sort": list(dict.fromkeys(row["x"] for row in rows))}
    side, color = _series_side(bars)
    encoding: dict[str, Any] = {
        "x": x,
        "xOffset": side,
        "color": color,
        "tooltip": _tooltip(bars[0], panel),
    }
    scale = {"zero": True, "padding": 0}
    if panel.y.log:
        ends = _log_ends(rows)
        scale = {"domain": ends, "padding": 0}
        encoding["y2"] = {"datum": ends[0]}
    encoding["y"] = y = {**y, "scale": {**y["scale"], **scale}}
    layers = []
    for data in ({"values": mark.rows()} for mark in bars):
        layers.append({"data": data, "mark": {"type": "bar"}, "encoding": encoding})
        if any("low" in row for row in data["values"]):
            layers.append(
                _interval(
                    data, {"type": "rule", "color": look("measured").light}, x, y, xOffset=side
                )
            )
    return layers


def _log_ends(rows: list[dict]) -> list[float]:
    """On a logarithmic axis bars start at the power of ten below the smallest value."""
    lowest = min((v for row in rows if (v := row.get("low", row["y"])) > 0), default=1.0)
    highest = max((row.get("high", row["y"]) for row in rows), default=1.0)
    return [10.0 ** math.floor(math.log10(lowest) - 0.2), 2 * max(highest, lowest)]


def _sideways(panel: Panel, bars: list[Mark], values: dict) -> dict[str, Any]:
    """Horizontal bars: categories down, values to the right."""
    side, color = _series_side(bars)
    names = {"field": "x", "type": "nominal", "sort": panel.categories, "title": panel.x.title}
    scale: dict[str, Any] = {"zero": True}
    ends = _log_ends([row for mark in bars for row in mark.rows()]) if panel.y.log else []
    if ends:
        scale = {"type": "log", "nice": False, "domain": ends}
    encoding = {
        "x": {**values, "scale": scale},
        **({"x2": {"datum": ends[0]}} if ends else {}),
        "y": {**names, "axis": {"labelLimit": 200}},
        "yOffset": side,
        "color": color,
        "tooltip": _tooltip(bars[0], panel),
    }
    frame = {**_frame(panel.title), "height": 90 + LINE_HEIGHT * len(panel.categories)}
    layers = [
        {"data": {"values": mark.rows()}, "mark": {"type": "bar"}, "encoding": encoding}
        for mark in bars
    ]
    return {**frame, "layer": _named(layers, panel)}


def _map(panel: MapPanel) -> dict[str, Any]:
    rows, columns = panel.names
    fill = {
        "field": "value",
        "type": "quantitative",
        "title": panel.color.title,
        "scale": {"scheme": "cividis", "domain": list(panel.limits)},
        "legend": None,  # the page draws one for all maps of a figure
    }
    place = {
        "type": "ordinal",
        "axis": {"labelAngle": 0, "labelOverlap": "greedy", "ticks": False, "domain": False},
    }
    encoding: dict[str, Any] = {
        "x": {**place, "field": "x", "title": panel.x.label, "sort": list(columns)},
        "y": {**place, "field": "y", "title": panel.y.label, "sort": list(rows)},
        "color": fill,
        "tooltip": [
            {"field": "y", "type": "nominal", "title": panel.y.label},
            {"field": "x", "type": "nominal", "title": panel.x.label},
            {
                "field": "value",
                "type": "quantitative",
                "title": panel.color.label,
                "format": ".3~f",
            },
        ],
    }
    frame = {**_frame(panel.title), "height": MAP_HEIGHT}
    return {**frame, "data": {"values": panel.rows()}, "mark": "rect", "encoding": encoding}
