"""Results proved by this project, beyond sharper forms of other papers' statements."""

from manyheads.theory.deora2023.setting import scope
from manyheads.theory.statement import Paper

PAPER = Paper(
    id="manyheads2026",
    title="A forecast for gradient descent on attention, at any number of heads",
    authors="the authors of manyheads",
    reference="docs/theory/forecast.md",
    text="docs/theory/forecast.md",
    scope=scope,
)
