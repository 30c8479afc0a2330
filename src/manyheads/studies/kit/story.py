"""The order in which the studies tell what was found, under headings, and what is still open at the end of it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TypeVar

from manyheads.studies.kit.study import PARTS, Study

OPEN = (
    "Whether descent reaches the margin that attention makes possible, and how fast: at the end of the longest runs it "
    "still grows.",
    "A bound on the test loss that says something at the sizes people use: the measured gap falls like 1/n, and "
    "Theorem 2 lies orders of magnitude above it.",
    "How training could find the T/2 heads that are proved to be enough for parity: most starts with so few miss them.",
    "What the published experiments show: neither their code nor all their settings are known.",
    "Several layers, mini-batches, learned embeddings: no statement here speaks about them.",
)
OPEN_HEADING = "What is open"

T = TypeVar("T")


def place(study: Study) -> tuple:
    """Where a study comes in the story; those without a part come last."""
    return list(PARTS).index(study.part), study.order, study.name


def told(pairs: Iterable[tuple[Study, T]]) -> list[tuple[str, list[T]]]:
    """Things that belong to studies, in the order of the story, under the heading of their part."""
    ordered = sorted(pairs, key=lambda pair: place(pair[0]))
    return [
        (PARTS[part], [thing for _, thing in same]) for part, same in groupby(ordered, key=lambda pair: pair[0].part)
    ]
