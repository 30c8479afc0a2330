"""A plug-in that is a paper."""

from manyheads.theory.statement import Paper
from manyheads.theory.verdict import Hypothesis
from own_paper.section import STATEMENTS  # noqa: F401 (what the paper holds)


def scope(work):
    return (Hypothesis("an odd number of steps", work.num_steps % 2 == 1, "train one step more"),)


PAPER = Paper(
    id="own2026",
    title="A paper",
    authors="A. Student",
    reference="a preprint",
    text="the preprint",
    scope=scope,
)
