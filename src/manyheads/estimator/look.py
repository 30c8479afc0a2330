"""What a fitted classifier looks at, as text for a terminal and as an SVG picture.

Each sequence has one block for its tokens, shaded by their norm, and one for every class of identical heads, shaded by
the attention that each token gets, averaged over the queries, beside an even share.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads.estimator.fitted import Fitted

SHADES, PLAIN_SHADES = " ░▒▓█", " .:+#"
STEPS = (0.4, 0.8, 1.25, 2.0)  # attention over an even share, from which on the next shade is used
LEGEND = "shades: {2} about an even share of attention, {3} more, {4} twice or more, {1} less"
MOST_BLOCKS = 8  # classes of heads drawn beside each other; the rest are left out, and this is said
LONGEST_ROW, LINE_WIDTH = 32, 80  # tokens drawn in a row unless told, and characters of a line
LONGEST_LABEL = 30
CELL, GAP, LINE = 14, 18, 16  # pixels of the picture


@dataclass(frozen=True, eq=False)
class Look:
    """One sequence: its label if known, the prediction, the norms of its tokens and the attention they get.

    Padding after the last token is left out; a masked token before it has no norm and no attention.
    """

    number: int  # of the sequence in its data
    label: str | None
    predicted: str
    probability: float
    norms: np.ndarray  # (tokens,)
    attention: np.ndarray  # (classes of heads, tokens), rows sum to one
    heads: tuple[int, ...]  # how many identical heads each row stands for
    num_real: int  # tokens that are not masked

    @property
    def title(self) -> str:
        said = f"sequence {self.number}: predicted {_clean(self.predicted)} (probability {self.probability:.2f})"
        return said if self.label is None else f"{said}, labeled {_clean(self.label)}"

    @property
    def captions(self) -> list[str]:
        """One for each row of the attention."""
        kinds = [f"{count:,}" if count < 10**6 else f"{count:.3g}" for count in self.heads]
        if all(count == 1 for count in self.heads):
            return [f"head {g + 1}" for g in range(len(kinds))]
        if len(kinds) == 1:
            return [f"all {kinds[0]} heads"]
        return [
            f"kind {g + 1}: {kind} head{'' if kind == '1' else 's'}" for g, kind in enumerate(kinds)
        ]

    @property
    def shares(self) -> np.ndarray:
        """The attention over an even share."""
        return self.attention * self.num_real

    def summary(self) -> str:
        """The tokens that get most attention, averaged over heads."""
        share = np.asarray(self.heads, dtype=float) @ self.shares / sum(self.heads)
        most = np.argsort(-share, kind="stable")[: min(3, self.num_real)]
        said = f"most attention on token {', '.join(f'{at} ({share[at]:.2g})' for at in most)}"
        return said.replace(")", " times even)", 1)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; token norms and attention as lists."""
        return {
            "sequence": self.number,
            "label": self.label,
            "predicted": self.predicted,
            "probability": self.probability,
            "heads": list(self.heads),
            "token_norms": self.norms.tolist(),
            "attention": self.attention.tolist(),
        }


def look(
    fitted: Fitted,
    tokens: np.ndarray,
    mask: np.ndarray | None,
    labels: Sequence[Any] | None,
    number_from: int = 0,
) -> list[Look]:
    """What the classifier looks at in each sequence; with several classes, the model of the predicted one."""
    codes, chances = fitted.codes((tokens, mask)), fitted.probabilities((tokens, mask))
    maps = fitted.attention((tokens, mask))
    found = []
    for i, code in enumerate(codes.tolist()):
        chosen = code if len(fitted.models) > 1 else 0
        real = np.ones(tokens.shape[1], bool) if mask is None else np.asarray(mask[i], bool)
        end = int(np.flatnonzero(real)[-1]) + 1
        queries = maps[i, chosen][:, :, :end]
        asked = (
            np.flatnonzero(real) if queries.shape[1] >= end > 1 else [0]
        )  # else the one query that is read out
        found.append(
            Look(
                number_from + i,
                None if labels is None else str(labels[i]),
                fitted.label_names[code],
                float(chances[i, code]),
                np.linalg.norm(tokens[i, :end], axis=1) * real[:end],
                queries[:, asked].mean(axis=1),
                tuple(int(count) for count in fitted.models[chosen].multiplicity),
                int(real.sum()),
            )
        )
    return found


def as_text(looks: Sequence[Look], columns: int | None = None, *, plain: bool = False) -> str:
    """The looks drawn with shades, tokens in rows of `columns`; `plain` uses ASCII only."""
    shades = PLAIN_SHADES if plain else SHADES
    return "\n\n".join(
        [*(_text(one, _across(one, columns), shades) for one in looks), LEGEND.format(*shades)]
    )


def _across(one: Look, columns: int | None) -> int:
    """How many tokens are drawn in a row."""
    return min(columns or LONGEST_ROW, len(one.norms))


def _text(one: Look, columns: int, shades: str) -> str:
    levels = [np.ceil(_scaled(one.norms) * (len(shades) - 1)).astype(int)]
    levels += [np.digitize(row, STEPS) for row in one.shares[:MOST_BLOCKS]]
    captions = ["tokens", *one.captions[:MOST_BLOCKS]]
    drawn = [
        (caption, _rows([shades[k] for k in row], columns))
        for caption, row in zip(captions, levels, strict=True)
    ]
    widest = max(map(len, captions))
    width = max(2 * columns, widest) + 3
    lines = [one.title]
    if columns < len(one.norms) and len(drawn) * width <= LINE_WIDTH:  # grids beside each other
        for cells in (captions, *zip(*(rows for _, rows in drawn), strict=True)):
            lines.append("  " + "".join(f"{cell:<{width}}" for cell in cells).rstrip())
    else:
        for caption, rows in drawn:
            lines += [
                f"  {caption if k == 0 else '':<{widest}}  |{row}|" for k, row in enumerate(rows)
            ]
    return "\n".join([*lines, *(f"  {line}" for line in (_left_out(one), one.summary()) if line)])


def _left_out(one: Look) -> str:
    more = len(one.heads) - MOST_BLOCKS
    return f"({more} more head{'' if more == 1 else 's'} not drawn)" if more > 0 else ""


def _rows(signs: list[str], columns: int) -> list[str]:
    """Lines of characters, two for each token so that it is square."""
    rows = math.ceil(len(signs) / columns)
    doubled = [2 * sign for sign in signs]
    return [
        "".join(doubled[k * columns : (k + 1) * columns]).ljust(2 * columns) for k in range(rows)
    ]


def as_svg(looks: Sequence[Look], columns: int | None = None) -> str:
    """The looks as one picture: darker blue is more attention, darker gray a longer token."""
    parts, top, right = [], GAP, 0
    for one in looks:
        across = _across(one, columns)
        rows = math.ceil(len(one.norms) / across)
        below = " ".join(filter(None, (one.summary(), _left_out(one))))
        parts.append(
            f'<text x="{GAP}" y="{top + 12}" class="title">{html.escape(one.title)}</text>'
        )
        parts.append(f'<text x="{GAP}" y="{top + 12 + LINE}">{html.escape(below)}</text>')
        right = max(right, GAP + 8 * max(len(one.title), len(below)))
        left, top = GAP, top + 2 * LINE + 8
        blocks = [("tokens", _scaled(one.norms), one.norms)]
        blocks += [
            (caption, np.minimum(row / STEPS[-1], 1.0), row)
            for caption, row in zip(
                one.captions[:MOST_BLOCKS], one.shares[:MOST_BLOCKS], strict=True
            )
        ]
        for b, (caption, shades, values) in enumerate(blocks):
            color, unit = (
                ("#222", "norm {:.3g}") if b == 0 else ("#1f5fbf", "{:.2f} times an even share")
            )
            for at, (shade, value) in enumerate(zip(shades, values, strict=True)):
                x, y = left + at % across * CELL, top + at // across * CELL
                parts.append(
                    f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="{color}" '
                    f'fill-opacity="{0.04 + 0.96 * shade:.3f}"><title>token {at}: {unit.format(value)}</title></rect>'
                )
            parts.append(
                f'<text x="{left}" y="{top + rows * CELL + 13}">{html.escape(caption)}</text>'
            )
            left += max(across * CELL, 8 * len(caption)) + GAP
        right, top = max(right, left), top + rows * CELL + 13 + GAP
    style = "text{font:12px sans-serif;fill:#222}.title{font-weight:bold}"
    size = f'width="{right}" height="{top}" viewBox="0 0 {right} {top}"'
    white = '<rect width="100%" height="100%" fill="#fff"/>'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{style}</style>\n{white}\n{body}\n</svg>\n'


def _clean(label: str) -> str:
    """A label on one line, with nothing in it that a terminal or a browser would obey."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in label)
    return shown if len(shown) <= LONGEST_LABEL else f"{shown[: LONGEST_LABEL - 3]}..."


def _scaled(values: np.ndarray) -> np.ndarray:
    """The values over their largest."""
    most = values.max(initial=0.0)
    return values / most if most > 0 else np.zeros_like(values)
