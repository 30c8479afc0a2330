"""Which tokens the heads look at, drawn with shades for a terminal."""

from __future__ import annotations

import numpy as np

SHADES, PLAIN_SHADES = " ░▒▓█", " .:+#"
STEPS = (0.4, 0.8, 1.25, 2.0)  # attention over an even share, from which on the next shade is used
MOST_HEADS = 8  # drawn; of more, those with the largest part in the score
ROW = 64  # tokens


def drawn(attention: np.ndarray, mask: np.ndarray, parts: np.ndarray, plain: bool = False) -> str:
    """Lines for one sequence: its heads (heads, tokens), and how large the part of each in the score is."""
    end = int(np.flatnonzero(mask)[-1]) + 1
    shares = attention[:, :end] * mask.sum()
    shades = PLAIN_SHADES if plain else SHADES
    order = np.argsort(-np.abs(parts), kind="stable")[:MOST_HEADS]
    lines = []
    for head in order:
        signs = "".join(shades[k] for k in np.digitize(shares[head], STEPS))
        rows = [signs[first : first + ROW] for first in range(0, end, ROW)]
        lines += [f"  head {head + 1:>3} ({parts[head]:+.2f})  |{rows[0]}|"]
        lines += [f"                     |{row}|" for row in rows[1:]]
    if len(parts) > MOST_HEADS:
        lines.append(f"  ({len(parts) - MOST_HEADS} more heads with smaller parts)")
    weight = np.abs(parts) / max(np.abs(parts).sum(), 1e-300)
    mean = weight @ shares
    most = np.argsort(-mean, kind="stable")[:3]
    said = ", ".join(f"{token} ({mean[token]:.2g} times even)" for token in most)
    return "\n".join([*lines, f"  most attention on token {said}"])


def legend(plain: bool = False) -> str:
    """What the shades mean."""
    shades = PLAIN_SHADES if plain else SHADES
    return (
        f"shades: {shades[2]} about an even share of attention, {shades[3]} more, {shades[4]} twice "
        f"or more, {shades[1]} less; in brackets the part of the head in the score of the label"
    )
