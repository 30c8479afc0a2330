"""The attention support-vector problem: a head with a fixed readout, whose key-query matrix alone is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from manyheads.theory.statement import Paper
from manyheads.theory.verdict import Hypothesis

if TYPE_CHECKING:
    from manyheads.theory.examination import Examination


def scope(work: Examination) -> tuple[Hypothesis, ...]:
    """One query per sequence, one head, a readout that is not trained."""
    run, data = work.run, work.dataset
    start, final = (
        getattr(model, "full", model) for model in (run.start, run.final)
    )  # a block may be frozen
    last = getattr(start, "decoder", None) == "last"
    single = getattr(start, "num_classes", 0) == 1 and getattr(start, "num_outputs", None) is None
    whole = not isinstance(getattr(start, "key_query", ()), tuple)
    fixed = hasattr(start, "readout") and np.array_equal(start.readout, final.readout)
    return (
        Hypothesis("one query per sequence: a last-token readout", last, 'use decoder="last"'),
        Hypothesis("one head, or equal heads, with one score", single, "use one head"),
        Hypothesis("W itself is trained, not its factors", whole, "leave out rank"),
        Hypothesis("the readout is not trained", fixed, 'train frozen(model, "readout")'),
        Hypothesis("logistic loss", run.settings.get("loss") == "logistic", 'use loss="logistic"'),
        Hypothesis(
            "two tokens or more, no padding",
            data.num_tokens > 1 and data.mask is None,
            "use equal lengths",
        ),
    )


PAPER = Paper(
    id="tarzanagh2023",
    title="Transformers as Support Vector Machines",
    authors="Davoud Ataee Tarzanagh, Yingcong Li, Christos Thrampoulidis, Samet Oymak",
    reference="arXiv:2308.16898",
    text="the abstract on arXiv, quoted word for word; its theorems were not available, so every bound here is ours",
    scope=scope,
)
