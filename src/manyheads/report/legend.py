"""Legend entries as small drawings that match the marks, for light and for dark backgrounds."""

from __future__ import annotations

from manyheads.studies.kit.palette import look

_MARKERS = {
    "o": '<circle cx="17" cy="6" r="3.6"/>',
    "s": '<rect x="13.6" y="2.6" width="6.8" height="6.8"/>',
    "^": '<path d="M17 2l4.2 7.4h-8.4z"/>',
    "v": '<path d="M17 10l4.2-7.4h-8.4z"/>',
    "D": '<path d="M17 1.6l4 4.4-4 4.4-4-4.4z"/>',
    "P": '<path d="M15.6 2h2.8v2.6H21v2.8h-2.6V10h-2.8V7.4H13V4.6h2.6z"/>',
    "X": '<path d="M13.4 2l7.4 4-7.4 4z"/>',
    "<": '<path d="M20.8 2l-7.4 4 7.4 4z"/>',
    "": "",
}


def legend_svg(role: str, kind: str) -> str:
    """The drawing next to a label."""
    appearance = look(role)
    parts = []
    for paper, color in (("light", appearance.light), ("dark", appearance.dark)):
        if kind == "bars":
            inner = '<rect x="6" y="1" width="22" height="10" rx="1.5"/>'
        else:
            dash = (
                f' stroke-dasharray="{" ".join(map(str, appearance.dash))}"'
                if appearance.dash
                else ""
            )
            stroke = f'<path d="M1 6h32" stroke="{color}" stroke-width="2"{dash}/>'
            inner = stroke + (_MARKERS[appearance.marker] if kind != "rule" else "")
        parts.append(f'<g class="{paper}" fill="{color}">{inner}</g>')
    return f'<svg viewBox="0 0 34 12" aria-hidden="true">{"".join(parts)}</svg>'
