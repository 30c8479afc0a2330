"""The order of the studies in the report, their headings, and the open questions at the end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TypeVar

from manyheads.studies.kit.study import PARTS, Study

OPEN = (
    "Whether descent reaches the margin that attention makes possible, and how fast: at the end of the longest runs it "
    "still grows.",
    "A bound on the test loss that is not vacuous at practical sizes: the measured gap falls like 1/n, and "
    "Theorem 2 lies orders of magnitude above it.",
    "How training could find the T/2 heads that are proved to be enough for parity: most starts with so few fail.",
    "What the published experiments show: neither their code nor all their settings are known.",
    "Several layers, mini-batches, learned embeddings: no statement here covers them.",
)
OPEN_HEADING = "What is open"

T = TypeVar("T")


def place(study: Study) -> tuple:
    """The position of a study in the story; studies without a part come last."""
    return list(PARTS).index(study.part), study.order, study.name


def told(pairs: Iterable[tuple[Study, T]]) -> list[tuple[str, list[T]]]:
    """Items that belong to studies, in the order of the story, under the heading of their part."""
    ordered = sorted(pairs, key=lambda pair: place(pair[0]))
    return [
        (PARTS[part], [thing for _, thing in same])
        for part, same in groupby(ordered, key=lambda pair: pair[0].part)
    ]
