"""What every statement assumes about the model: the paper's own setting. The rest has not been examined."""

from __future__ import annotations

from manyheads.certificates.verdict import Hypothesis
from manyheads.model.attention import MultiHead

REMEDY = "the theory here is proved for the paper's own setting only"


def model_scope(start: MultiHead) -> tuple[Hypothesis, ...]:
    """The model's part of the paper's setting, as hypotheses."""
    return (
        Hypothesis("full readout U of shape T x d", start.decoder == "full", REMEDY),
        Hypothesis("key-query matrix W itself is trained", not isinstance(start.key_query, tuple), REMEDY),
        Hypothesis("scaling 1/sqrt(H)", start.exponent == 0.5, REMEDY),
    )


def require_scope(start: MultiHead) -> None:
    """An error where a function that gives no verdict is asked about another model."""
    missing = [h.text for h in model_scope(start) if not h.holds]
    if missing:
        raise ValueError(f"the start does not have: {', '.join(missing)}; {REMEDY}")
