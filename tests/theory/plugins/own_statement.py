"""A plug-in of one statement."""

from manyheads.theory.finding import Tally
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate


def check(effort):
    tally = Tally()
    for k in range(effort.count(20, 5)):
        tally.add(1 / (k + 1), 1.0)
    return tally.finding("tried")


def about(work):
    loss = work.run.train_loss
    return [
        Certificate(
            "fallen",
            "the last loss is at most the first",
            float(loss[-1]),
            (Bound(OURS, float(loss[0])),),
        )
    ]


FALLEN = Statement(
    id="fallen",
    place="ours",
    title="the loss falls",
    ours="L_K <= L_0",
    proof="a notebook",
    remark="tried",
    check=check,
    about=about,
    aliases=("down",),
)
