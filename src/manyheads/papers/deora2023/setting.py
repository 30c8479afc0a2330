"""What every statement assumes about model and optimizer: the paper's own setting. The rest has not been examined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyheads.certificates.verdict import Hypothesis

if TYPE_CHECKING:
    from manyheads.certificates.examination import Examination
    from manyheads.model.attention import MultiHead

REMEDY = "the theory here is proved for the paper's own setting only"


def model_scope(start: MultiHead) -> tuple[Hypothesis, ...]:
    """The model's part of the paper's setting, as hypotheses."""
    decoder, W, exponent = (getattr(start, name, None) for name in ("decoder", "key_query", "exponent"))
    return (
        Hypothesis("full readout U of shape T x d", decoder == "full", REMEDY),
        Hypothesis("key-query matrix W itself is trained", W is not None and not isinstance(W, tuple), REMEDY),
        Hypothesis("scaling 1/sqrt(H)", exponent == 0.5, REMEDY),
    )


def require_scope(start: MultiHead) -> None:
    """An error where a function that gives no verdict is asked about another model."""
    missing = [h.text for h in model_scope(start) if not h.holds]
    if missing:
        raise ValueError(f"the start does not have: {', '.join(missing)}; {REMEDY}")


def scope(work: Examination) -> tuple[Hypothesis, ...]:
    """The setting of a run, as hypotheses."""
    settings = work.run.settings
    return (
        Hypothesis("plain gradient descent with a constant step", settings.get("optimizer") == "gd", REMEDY),
        Hypothesis("logistic loss", settings.get("loss") == "logistic", REMEDY),
        *model_scope(work.run.start),
    )
