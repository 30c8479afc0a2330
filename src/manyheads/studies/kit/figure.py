"""What a figure shows, independent of how it is drawn: the page and the print version use the same description.

A `Figure` has panels; a `Panel` has two axes and marks; a `MapPanel` is a matrix of colors. A mark names a role of the
palette and never a color. A mark has a `scale` (how its quantity is normalized), and a panel refuses marks whose
scale differs from that of its vertical axis: two normalizations never share one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from manyheads.studies.kit import words
from manyheads.studies.kit.estimate import mean, ratio, rows, share
from manyheads.studies.kit.palette import heads, look
from manyheads.studies.kit.tasks import STARTS

KINDS = ("line", "bars", "rule")
MOST_TICKS = 7


@dataclass(frozen=True)
class Axis:
    """A labeled axis. `unit` is required ("steps", "nats", "dimensionless"); `scale` names the normalization."""

    label: str
    unit: str
    log: bool = False
    scale: str = ""
    limits: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not self.label or not self.unit:
            raise ValueError(
                f"axis {self.label!r} with unit {self.unit!r}: write a label and a unit."
            )

    @property
    def title(self) -> str:
        return f"{self.label} ({self.unit})"


HEADS, STEP = Axis("heads", "count", log=True), Axis("step", "steps", log=True)
TRAIN_LOSS, TEST_LOSS = Axis("train loss", "nats", log=True), Axis("test loss", "nats", log=True)
FOCUS = Axis("focus", "share of attention")
TANGENT_MARGIN = Axis("tangent margin", "direction of norm √2", scale="P3")


@dataclass(frozen=True)
class Mark:
    """One series: its role decides its look, `low` and `high` its band or whiskers, `label` its name in the legend."""

    kind: str
    role: str
    label: str
    x: tuple
    y: tuple
    low: tuple = ()
    high: tuple = ()
    scale: str = ""

    def __post_init__(self) -> None:
        look(self.role)
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r} is not known; choose one of {', '.join(KINDS)}.")
        sizes = {
            len(self.x),
            len(self.y),
            *(len(side) for side in (self.low, self.high) if len(side)),
        }
        if len(sizes) != 1:
            raise ValueError(
                f"mark {self.label!r} has x, y, low, high of lengths {sorted(sizes)}; they must be equal."
            )

    def rows(self) -> list[dict]:
        """The points that can be drawn, one dictionary each."""
        bands = len(self.low) > 0
        rows = []
        for i, (x, y) in enumerate(zip(self.x, self.y, strict=True)):
            if y is not None and np.isfinite(y):
                row = {"x": x, "y": y, "series": self.label}
                if bands and np.isfinite(self.low[i]) and np.isfinite(self.high[i]):
                    row |= {"low": self.low[i], "high": self.high[i]}
                rows.append(row)
        return rows


@dataclass(frozen=True)
class Panel:
    """Two axes and the marks on them. A categorical axis has texts as x.

    `sideways` draws horizontal bars, with categories from top to bottom: for many or long names.
    """

    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    sideways: bool = False
    given: Sequence[Mark] = field(
        init=False, repr=False
    )  # the marks with unclipped bands, for tables

    def __post_init__(self) -> None:
        object.__setattr__(self, "marks", tuple(self.marks))
        object.__setattr__(self, "given", self.marks)
        if self.sideways and any(mark.kind != "bars" for mark in self.marks):
            raise ValueError(f"panel {self.title!r} is sideways, which is for bars only.")
        for mark in self.marks:
            if mark.scale != self.y.scale:
                raise ValueError(
                    f"mark {mark.label!r} is on the scale {mark.scale!r}, axis {self.y.label!r} on {self.y.scale!r}: "
                    "two normalizations never share one axis; make another panel."
                )
            if self.y.log and any(np.isfinite(v) and v <= 0 for v in mark.y):
                raise ValueError(
                    f"mark {mark.label!r} has values <= 0 on the logarithmic axis {self.y.label!r}."
                )
        if self.y.log:
            self._clip_bands()

    def _clip_bands(self) -> None:
        """On a logarithmic axis a band that reaches to 0 or below is drawn to a decade under the smallest value."""
        values = [v for mark in self.marks for v in mark.y if np.isfinite(v)]
        floor = min(values, default=1.0) / 10
        clipped = [replace(mark, low=tuple(max(v, floor) for v in mark.low)) for mark in self.marks]
        object.__setattr__(self, "marks", tuple(clipped))

    def legend(self) -> list[tuple[str, str, str]]:
        """(role, label, kind) of every series, each once, in order of appearance."""
        seen: dict[str, tuple[str, str, str]] = {}
        for mark in self.marks:
            seen.setdefault(mark.label, (mark.role, mark.label, mark.kind))
        return list(seen.values())

    @property
    def categorical(self) -> bool:
        return bool(self.categories)

    @property
    def categories(self) -> list[str]:
        """The names on a categorical axis, in order of appearance."""
        return list(dict.fromkeys(x for mark in self.marks for x in mark.x if isinstance(x, str)))

    @property
    def ticks(self) -> list[float]:
        """Tick positions of a logarithmic horizontal axis: its values, if they are few; empty for automatic ticks."""
        values = (
            sorted({x for mark in self.marks if mark.kind != "rule" for x in mark.x})
            if self.x.log
            else []
        )
        return values if len(values) <= MOST_TICKS else []


@dataclass(frozen=True)
class MapPanel:
    """A matrix of colors: rows downward, columns to the right, `limits` the two ends of the color scale."""

    title: str
    x: Axis
    y: Axis
    color: Axis
    values: tuple[tuple[float, ...], ...]
    limits: tuple[float, float] = (0.0, 1.0)
    row_labels: tuple[str, ...] = ()
    column_labels: tuple[str, ...] = ()

    def legend(self) -> list[tuple[str, str, str]]:
        """No series: the color scale needs no entries."""
        return []

    def rows(self) -> list[dict]:
        """One dictionary per entry that is a number."""
        r, c = self.names
        return [
            {"x": c[j], "y": r[i], "value": value}
            for i, line in enumerate(self.values)
            for j, value in enumerate(line)
            if np.isfinite(value)
        ]

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of rows and columns; numbers from 1 where none are given."""
        r = self.row_labels or tuple(str(i + 1) for i in range(len(self.values)))
        return r, self.column_labels or tuple(str(j + 1) for j in range(len(self.values[0])))


@dataclass(frozen=True)
class Figure:
    """Panels under one title, with a caption that explains them. `name` becomes the name of its files.

    In the caption `@1` stands for the position of the first panel: "left" if panels are side by side, "top" if they are
    stacked.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel | MapPanel]
    columns: int = field(default=1)  # panels side by side in print; the page arranges by width

    def __post_init__(self) -> None:
        object.__setattr__(self, "panels", tuple(self.panels))
        if not self.panels:
            raise ValueError(f"figure {self.name!r} has no panel; pass at least one.")

    def legends(self) -> list[list[tuple[str, str, str]]]:
        """(role, label, kind) of every series: one list for all panels where they agree, else one list per panel."""
        each = [panel.legend() for panel in self.panels]
        return each[:1] if all(legend == each[0] for legend in each) else each


def place(panel: int, of: int, *, across: bool, first: bool = False) -> str:
    """The position of a panel in words, of two or three side by side or stacked; `first` begins a sentence."""
    ends = ("left", "right") if across else ("top", "bottom")
    word = {1: ends[0], of: ends[1]}.get(panel, "middle")
    return words.capital(word) if first else word


def line(
    role: str, label: str, x: ArrayLike, y: ArrayLike, low=(), high=(), scale: str = ""
) -> Mark:
    """A line with markers, and a band from `low` to `high`."""
    return Mark("line", role, label, _plain(x), _plain(y), _plain(low), _plain(high), scale)


def bars(
    role: str, label: str, x: ArrayLike, y: ArrayLike, low=(), high=(), scale: str = ""
) -> Mark:
    """Bars over categories with error bars."""
    return replace(line(role, label, x, y, low, high, scale), kind="bars")


def rule(role: str, label: str, y: float, scale: str = "") -> Mark:
    """A horizontal line over the whole panel."""
    return Mark("rule", role, label, (0.0,), (float(y),), (), (), scale)


def over_seeds(
    role: str,
    label: str,
    x: Any,
    values: Any,
    scale: str = "",
    kind: str = "line",
    log: bool = False,
    truth: bool = False,
    floor: float | None = None,
) -> Mark:
    """The mean over seeds with its 95% interval, at each x; NaN is left out.

    `x` names a coordinate of an xarray `values`, or lists positions, with a row of `values` for each. With `log` the
    geometric mean and its interval, which stays positive: for a logarithmic axis. With `truth` the share of seeds for
    which the values are 1 and not 0, and its interval, which stays between 0 and 1. Only
    values above `floor` are drawn.
    """
    x, table = rows(x, values)
    estimates = [share(row) if truth else ratio(row) if log else mean(row) for row in table]
    y, low, high = (
        np.array([getattr(e, side) for e in estimates]) for side in ("value", "low", "high")
    )
    if floor is not None:
        y, low = np.where(y > floor, y, np.nan), np.where((y > floor) & (low > 0), low, np.nan)
    return Mark(kind, role, label, _plain(x), _plain(y), _plain(low), _plain(high), scale)


def by_heads(x: Any, values: Any, scale: str = "", **options: Any) -> list[Mark]:
    """One line per number of heads, each in its own color; `x` is as in `over_seeds`."""
    numbers = values["num_heads"].values.tolist()
    return [
        over_seeds(heads(h), words.heads(h), x, values.sel(num_heads=h), scale, **options)
        for h in numbers
    ]


def by_start(x: Any, values: Any, scale: str = "", **options: Any) -> list[Mark]:
    """One line per kind of start; `x` is as in `over_seeds`."""
    kinds = values["start"].values.tolist()
    return [
        over_seeds(*STARTS[kind], x, values.sel(start=kind), scale, **options) for kind in kinds
    ]


def _plain(values: Any) -> tuple:
    return tuple(np.asarray(values).tolist())
