"""Deora, Ghaderi, Taheri, Thrampoulidis: On the Optimization and Generalization of Multi-Head Attention."""

from manyheads.theory.deora2023.setting import scope
from manyheads.theory.statement import Paper

PAPER = Paper(
    id="deora2023",
    title="On the Optimization and Generalization of Multi-Head Attention",
    authors="Puneesh Deora, Rouzbeh Ghaderi, Hossein Taheri, Christos Thrampoulidis",
    reference="TMLR 2024, arXiv:2310.12680",
    text="the main text of the copy under double-blind review (the published one, TMLR 2024 and version 2 of "
    "arXiv:2310.12680, may differ); where a statement is in the appendix, which was not available, "
    "the "
    "version given is ours",
    copy="the copy that went to review; the published version was not compared",
    scope=scope,
)
