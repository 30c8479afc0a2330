"""What a fitted classifier looks at, as text for a terminal and as an SVG picture.

Each sequence has one block for its tokens, shaded by their norm, and one for every class of identical heads, shaded by
the attention that each token gets, averaged over the queries.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads.estimator.fitted import Fitted

SHADES = " ░▒▓█"
MOST_BLOCKS = 8  # classes of heads drawn beside each other; the rest are left out, and this is said
LONGEST_ROW, LINE_WIDTH = 32, 100  # tokens drawn in a row unless told, and characters of a line
CELL, GAP, LINE = 14, 18, 16  # pixels of the picture


@dataclass(frozen=True, eq=False)
class Look:
    """One sequence: its label if known, the prediction, the norms of its tokens and the attention they get."""

    number: int  # of the sequence in its data
    label: str | None
    predicted: str
    probability: float
    norms: np.ndarray  # (tokens,)
    attention: np.ndarray  # (classes of heads, tokens), rows sum to one
    heads: tuple[float, ...]  # how many identical heads each row stands for

    @property
    def title(self) -> str:
        said = f"sequence {self.number}: predicted {self.predicted} (probability {self.probability:.2f})"
        return said if self.label is None else f"{said}, labeled {self.label}"

    def blocks(self) -> list[tuple[str, np.ndarray]]:
        """Caption and shades from 0 to 1 of each block."""
        found = [("tokens", _scaled(self.norms))]
        for g, (row, count) in enumerate(zip(self.attention, self.heads, strict=True)):
            caption = f"head {g + 1}" if count == 1 else f"{count:,.0f} heads"
            found.append((caption, _scaled(row)))
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; token norms and attention as lists."""
        return {
            "sequence": self.number, "label": self.label, "predicted": self.predicted,
            "probability": self.probability, "heads": list(self.heads), "token_norms": self.norms.tolist(),
            "attention": self.attention.tolist(),
        }  # fmt: skip

    def summary(self) -> str:
        """The tokens that get most attention, averaged over heads."""
        share = np.asarray(self.heads) @ self.attention / sum(self.heads)
        most = np.argsort(-share, kind="stable")[:3]
        said = ", ".join(f"{at} ({share[at]:.2f})" for at in most)
        return f"most attention on token {said}; even would be {1 / len(share):.2f}"


def look(
    fitted: Fitted, tokens: np.ndarray, mask: np.ndarray | None, labels: Sequence[Any] | None, number_from: int = 0
) -> list[Look]:
    """What the classifier looks at in each sequence; with several classes, the model of the predicted one."""
    codes, chances = fitted.codes((tokens, mask)), fitted.probabilities((tokens, mask))
    maps = fitted.attention((tokens, mask))
    found = []
    for i, code in enumerate(codes.tolist()):
        chosen = code if len(fitted.models) > 1 else 0
        queries = maps[i, chosen]
        real = np.ones(tokens.shape[1], bool) if mask is None else np.asarray(mask[i], bool)
        asked = queries[:, real] if queries.shape[1] == len(real) else queries  # or the one query that is read out
        heads = tuple(fitted.models[chosen].multiplicity.astype(float).tolist())
        found.append(
            Look(
                number_from + i,
                None if labels is None else str(labels[i]),
                fitted.label_names[code],
                float(chances[i, code]),
                np.linalg.norm(tokens[i, real], axis=1),
                asked.mean(axis=1)[:, real],
                heads,
            )
        )
    return found


def as_text(looks: Sequence[Look], columns: int | None = None) -> str:
    """The looks drawn with shades of gray, tokens in rows of `columns`."""
    return "\n\n".join(_text(one, _across(one, columns)) for one in looks)


def _across(one: Look, columns: int | None) -> int:
    """How many tokens are drawn in a row."""
    return min(columns or LONGEST_ROW, len(one.norms))


def _text(one: Look, columns: int) -> str:
    drawn = [(caption, _rows(shades, columns)) for caption, shades in one.blocks()[: 1 + MOST_BLOCKS]]
    widest = max(len(caption) for caption, _ in drawn)
    width = max(2 * columns, widest) + 3
    lines = [one.title]
    if columns < len(one.norms) and len(drawn) * width <= LINE_WIDTH:  # grids beside each other
        for cells in ([caption for caption, _ in drawn], *zip(*(rows for _, rows in drawn), strict=True)):
            lines.append("  " + "".join(f"{cell:<{width}}" for cell in cells).rstrip())
    else:
        for caption, rows in drawn:
            lines += [f"  {caption if k == 0 else '':<{widest}}  |{row}|" for k, row in enumerate(rows)]
    if len(one.heads) > MOST_BLOCKS:
        lines.append(f"  ({len(one.heads) - MOST_BLOCKS} more heads not drawn)")
    return "\n".join([*lines, f"  {one.summary()}"])


def _rows(shades: np.ndarray, columns: int) -> list[str]:
    """Lines of characters, two for each token so that it is square."""
    signs = [SHADES[min(int(shade * len(SHADES)), len(SHADES) - 1)] * 2 for shade in shades]
    rows = math.ceil(len(signs) / columns)
    return ["".join(signs[k * columns : (k + 1) * columns]).ljust(2 * columns) for k in range(rows)]


def as_svg(looks: Sequence[Look], columns: int | None = None) -> str:
    """The looks as one picture: darker blue is more attention, darker gray a longer token."""
    parts, top, right = [], GAP, 0
    for one in looks:
        across = _across(one, columns)
        rows = math.ceil(len(one.norms) / across)
        parts.append(f'<text x="{GAP}" y="{top + 12}" class="title">{html.escape(one.title)}</text>')
        parts.append(f'<text x="{GAP}" y="{top + 12 + LINE}">{html.escape(one.summary())}</text>')
        right = max(right, GAP + 7 * max(len(one.title), len(one.summary())))
        left, top = GAP, top + 2 * LINE + 8
        for b, (caption, shades) in enumerate(one.blocks()[: 1 + MOST_BLOCKS]):
            color = "#222" if b == 0 else "#1f5fbf"
            width = max(across * CELL, 7 * len(caption))
            for at, shade in enumerate(shades):
                x, y = left + at % across * CELL, top + at // across * CELL
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="{color}" '
                    f'fill-opacity="{0.04 + 0.96 * shade:.3f}"><title>token {at}</title></rect>'
                )
            parts.append(f'<text x="{left}" y="{top + rows * CELL + 13}">{html.escape(caption)}</text>')
            left += width + GAP
        right, top = max(right, left), top + rows * CELL + 13 + GAP
    style = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}"
    size = f'width="{right}" height="{top}" viewBox="0 0 {right} {top}"'
    white = '<rect width="100%" height="100%" fill="#fff"/>'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{style}</style>\n{white}\n{body}\n</svg>\n'


def _scaled(values: np.ndarray) -> np.ndarray:
    """The values over their largest."""
    most = values.max(initial=0.0)
    return values / most if most > 0 else np.zeros_like(values)
