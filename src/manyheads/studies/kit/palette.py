"""Colors, markers and dashes, so that the same thing looks the same in every figure.

Color-blind readers can tell the colors apart. A role names what is shown. Each role has a color for light and one for
dark backgrounds; roles that appear together in a figure also differ in marker or dash, so that they can be told apart
in a gray print.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """How a role is drawn: colors on light and dark backgrounds, marker (as in matplotlib), dashes (empty: solid)."""

    light: str
    dark: str
    marker: str = "o"
    dash: tuple[int, ...] = ()


BLUE, SKY, GREEN = ("#0072b2", "#4aa8e0"), ("#3d9bd6", "#7cc4f0"), ("#00835f", "#2fbf94")
ORANGE, RED, PINK = ("#c98200", "#f0b040"), ("#c84e00", "#f5874a"), ("#b85a90", "#e39cc4")
INK, GRAY = ("#1d2530", "#eef1f5"), ("#6f7783", "#99a2ae")

ROLES = {
    # where training starts
    "zero": Look(*GREEN, "^"),
    "first phase": Look(*BLUE, "o"),
    "gaussian": Look(*ORANGE, "s", (5, 2)),
    "first phase, drawn": Look(*SKY, "v", (2, 2)),
    # what is measured, and the bounds beside it
    "measured": Look(*INK, "o"),
    "ours": Look(*BLUE, "D", (6, 2)),
    "sharp": Look(*SKY, "P", (4, 1)),
    "explicit": Look(*PINK, "v", (2, 2)),
    "printed": Look(*RED, "s", (1, 2)),
    "reference": Look(*GRAY, "", (4, 3)),
    # margins and the directions that attain them
    "linear": Look(*GRAY, "", (2, 2)),
    "attention": Look(*RED, "", (6, 2)),
    # data
    "mixture": Look(*BLUE, "o"),
    "random labels": Look(*RED, "s", (5, 2)),
    "planted": Look(*GREEN, "^", (2, 2)),
    "construction": Look(*PINK, "D", (6, 2, 2, 2)),
    # heads by the sign of their first step
    "plus": Look(*SKY, "o"),
    "minus": Look(*PINK, "s", (5, 2)),
    # train and test
    "train": Look(*BLUE, "o"),
    "test": Look(*ORANGE, "s", (5, 2)),
    # optimizers
    "gd": Look(*BLUE, "o"),
    "normalized": Look(*GREEN, "^", (5, 2)),
    "polyak": Look(*ORANGE, "s", (2, 2)),
    "adam": Look(*PINK, "D", (6, 2, 2, 2)),
}

# The same H looks the same everywhere. Every doubling takes the next color and the next marker, up to 2^16 heads; from
# there on every decade does. The two cycles differ in length, so that few pairs of H look alike.
VIOLET, BROWN, SLATE = ("#5b4bb5", "#a99cf5"), ("#7a4b1e", "#d0a273"), ("#43566b", "#b3c2d4")
_HEAD_COLORS = (VIOLET, ORANGE, BLUE, RED, GREEN, PINK, BROWN, SLATE, SKY)
_HEAD_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")


def heads(num_heads: float) -> str:
    """The role of a run with this many heads."""
    return f"heads:{num_heads:g}"


def look(role: str) -> Look:
    """How a role is drawn; an unknown role is an error, so that colors are chosen here and nowhere else."""
    if role.startswith("heads:"):
        count = float(role.removeprefix("heads:"))
        turn = round(math.log2(count)) if count <= 2**16 else 19 + round(math.log10(count))
        light, dark = _HEAD_COLORS[turn % len(_HEAD_COLORS)]
        return Look(light, dark, _HEAD_MARKERS[turn % len(_HEAD_MARKERS)])
    if role not in ROLES:
        raise ValueError(
            f"role={role!r} has no look; choose one of {', '.join(ROLES)}, or palette.heads(H)."
        )
    return ROLES[role]
