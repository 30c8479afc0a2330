"""Statements of the plug-in's paper; two of their names are taken by others."""

from manyheads.theory.finding import erratum
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate

STATEMENTS = (
    Statement(
        id="thm1",
        place="Section 1",
        title="steps are counted",
        printed="K >= 0",
        corrected="as printed",
        proof="the preprint",
        remark="by hand",
        check=lambda effort: erratum(True, "counted", trials=3),
        aliases=("down",),
        about=lambda work: [
            Certificate("thm1", "K is at least 0", work.num_steps, (Bound(OURS, 0.0),), sense=">=")
        ],
    ),
    Statement(
        id="misprint",
        place="Section 2",
        title="a misprint",
        printed="1 = 2",
        corrected="1 = 1",
        proof="the preprint",
        remark="by hand",
        check=lambda effort: erratum(True, "shown"),
        weight="typographic",
    ),
)
