"""What every statement assumes about model and optimizer. Other settings are unexamined or known to be impossible."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from manyheads._names import DECODERS
from manyheads.model.loss import Loss, misdeclared
from manyheads.theory.verdict import Hypothesis

if TYPE_CHECKING:
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination

REMEDY = "the theory here is proved for the paper's own setting only"
FACTORS = "with W = Q K^T the bounds grow with the norms of Q and K, which nothing here limits along a run"


def model_scope(start: MultiHead) -> tuple[Hypothesis, ...]:
    """The model's part of the setting, as hypotheses."""
    decoder, W, exponent = (
        getattr(start, name, None) for name in ("decoder", "key_query", "exponent")
    )
    return (
        Hypothesis("full, pooled or last-token readout of attention", decoder in DECODERS, REMEDY),
        Hypothesis(
            "key-query matrix W itself is trained",
            W is not None and not isinstance(W, tuple),
            FACTORS if isinstance(W, tuple) else REMEDY,
        ),
        Hypothesis("scaling 1/sqrt(H)", exponent == 0.5, REMEDY),
    )


def loss_scope(loss: Loss | None) -> Hypothesis:
    """A convex loss whose constants are known."""
    text = "a loss that is registered, smooth, Lipschitz and self-bounded"
    if loss is None:
        return Hypothesis(
            text, False, "register the loss with LOSSES under the name that the run stores"
        )
    if not math.isfinite(loss.lipschitz + loss.smoothness + loss.self_bound):
        return Hypothesis(
            text, False, f"the {loss.name} loss declares no finite constants; use another loss"
        )
    wrong = misdeclared(loss)
    return Hypothesis(
        text, not wrong, f"of the {loss.name} loss {wrong}; fix its constants" if wrong else ""
    )


def require_scope(start: MultiHead) -> None:
    """Raise an error if a function that gives no verdict is called with a model outside the setting."""
    missing = [h for h in model_scope(start) if not h.holds]
    if missing:
        raise ValueError(
            f"the start does not have: {', '.join(h.text for h in missing)}; {missing[0].remedy}"
        )


def scope(work: Examination) -> tuple[Hypothesis, ...]:
    """The setting of a run, as hypotheses."""
    return (
        Hypothesis(
            "plain gradient descent with a constant step",
            work.run.settings.get("optimizer") == "gd",
            REMEDY,
        ),
        loss_scope(work.known_loss),
        *model_scope(work.run.start),
    )
