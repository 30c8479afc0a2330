"""Cards for notebooks: what `str` says, as a little HTML, with a curve where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

WIDTH, HEIGHT = 360, 120
BOX = "border:1px solid #8888;border-radius:6px;padding:8px 12px;display:inline-block;font-family:sans-serif"


def card(title: str, rows: Mapping[str, object], below: str = "") -> str:
    """A title and a table of names with values; `below` is HTML."""
    cells = "".join(
        f'<tr><td style="text-align:left;opacity:.7">{escape(str(name))}</td>'
        f'<td style="text-align:left">{escape(str(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f'<div style="{BOX}"><b>{escape(title)}</b><table>{cells}</table>{below}</div>'


def curves(steps: Sequence[float] | np.ndarray, lines: Mapping[str, np.ndarray]) -> str:
    """Curves over steps, both axes logarithmic, as an SVG; what is not positive and finite is left out."""
    x = np.log10(1 + np.asarray(steps, float))
    known = {name: np.asarray(y, float) for name, y in lines.items()}
    known = {name: y for name, y in known.items() if (np.isfinite(y) & (y > 0)).sum() > 1}
    if not known or not x.max() > 0:
        return ""
    levels = np.concatenate([np.log10(y[np.isfinite(y) & (y > 0)]) for y in known.values()])
    low, high = levels.min(), max(levels.max(), levels.min() + 1e-9)
    drawn = []
    for (name, y), color in zip(known.items(), ("#3b6fd4", "#d4773b"), strict=False):
        fine = np.isfinite(y) & (y > 0)
        across, down = x[fine] / x.max() * WIDTH, (high - np.log10(y[fine])) / (high - low) * HEIGHT
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down, strict=True))
        drawn.append(
            f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{points}"><title>{escape(name)}</title>'
            "</polyline>"
        )
    frame = f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}">'
    words = " and ".join(known)
    return f"{frame}{''.join(drawn)}</svg><div style='font-size:smaller'>{escape(words)} over steps, logarithmic</div>"
