"""A setting about which the forecast speaks with few heads: sharp heads drawn at random on centered, short tokens.

Centering takes the part that all sequences share out of the tangent features. Large random key-query weights make each
head choose among the tokens instead of averaging them, so the features tell sequences apart. On short tokens the heads
turn little while the readout learns. Theorem F (docs/theory/forecast.md) then proves a level of the loss from an early
step of the run, where Theorem 1 asks for more heads than anybody has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import numpy as np

from manyheads.data.budget import duration
from manyheads.data.dataset import Dataset
from manyheads.model.attention import MultiHead
from manyheads.model.loss import Loss
from manyheads.theory.deora2023.planner import below
from manyheads.theory.deora2023.setting import loss_scope
from manyheads.theory.manyheads2026.forecast import LIKELY, followed
from manyheads.theory.manyheads2026.region import Center
from manyheads.theory.walk import follow
from manyheads.training.descent import train
from manyheads.training.rules import GD
from manyheads.training.start import gaussian_start
from manyheads.training.stop import asked_steps

DISTINCT = 8  # heads that differ; more heads are copies of them
HEADS = (8.0, 64.0, 512.0)  # tried in turn
LENGTH = 0.1  # root mean square of the tokens' norms
SHARPNESS = 160.0  # of the key-query weights, on tokens of norm 1
STEPS = 1000  # of the run that is looked at
PIECES = 60  # of one forecast
TRIES = 4  # forecasts that are made at most
MOST = 300  # sequences
PIECE_SECONDS = (
    1e-4  # of a core for one piece of a forecast with 8 distinct heads, times sequences and tokens
)


@dataclass(frozen=True)
class Sharp:
    """How the data and the start of a promise are made, and from which step on it is proved."""

    seed: int
    distinct: int = DISTINCT
    length: float = LENGTH
    sharpness: float = SHARPNESS
    from_step: int = 0

    def data(self, sample: Dataset, *others: Dataset) -> list[Dataset]:
        """The sequences less their mean over the sample, token by token, at the length of this setting."""
        real = (
            np.ones(sample.tokens.shape[:2]) if sample.mask is None else sample.mask.astype(float)
        )
        center = (
            np.einsum("nt,ntd->td", real, sample.tokens)
            / np.maximum(real.sum(axis=0), 1.0)[:, None]
        )
        square = np.einsum("nt,ntd->", real, (sample.tokens - center) ** 2) / real.sum()
        scale = self.length / math.sqrt(square) if square > 0 else 1.0

        def made(one: Dataset) -> Dataset:
            kept = 1.0 if one.mask is None else one.mask[:, :, None]
            return replace(one, tokens=scale * (one.tokens - center) * kept, norm_bound=None)

        return [made(one) for one in (sample, *others)]

    def start(self, num_heads: float, sample: Dataset, decoder: str) -> MultiHead:
        """Sharp heads with a readout of zero, in equal shares."""
        drawn = gaussian_start(
            self.distinct,
            num_tokens=sample.num_tokens,
            dim=sample.dim,
            decoder=decoder,
            key_query_scale=self.sharpness / self.length**2,
            readout_scale=0.0,
            key=jax.random.key(self.seed),
        )
        counts = np.full(self.distinct, num_heads / self.distinct)
        return MultiHead.create(
            drawn.key_query, drawn.readout, multiplicity=counts, decoder=decoder
        )


@dataclass(frozen=True)
class Proved:
    """What the forecast proves about one run: from step `how.from_step` on, half the loss there is reached in time."""

    how: Sharp
    num_heads: float
    step_size: float
    num_steps: int
    loss: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"Promised: {self.num_heads:,.0f} heads, a sharp Gaussian start on centered tokens, step size "
            f"{self.step_size:g}: a train loss of {self.loss:.3g} within {self.num_steps:,} steps, proved from step "
            f"{self.how.from_step} of that run on (Theorem F; found in {duration(self.seconds)})."
        )


def proved(
    sample: Dataset,
    target_loss: float,
    *,
    seed: int,
    decoder: str,
    loss: Loss,
    tell: Callable[[str], None],
) -> Proved | str:
    """The first of a few settings about which the forecast speaks, with at most this loss; or why there is none."""
    if not loss_scope(loss).holds:
        return f"the forecast is not proved for the loss {loss.name}"
    if sample.num_examples > MOST:
        return f"{sample.num_examples:,} sequences are too many for a forecast, which takes at most {MOST}"
    began, how, tries = time.perf_counter(), Sharp(seed), 0
    data = how.data(sample)[0]
    each = PIECES * PIECE_SECONDS * data.num_examples * data.num_tokens
    tell(
        f"a setting that can be promised: at most {TRIES} forecasts of about {duration(max(each, 1.0))} of a core"
    )
    for heads in HEADS:
        model = how.start(heads, data, decoder)
        first = Center.at(model, data, loss)
        if first.direction[0] is None:
            return "no small change of sharp random heads is known to separate the data either"
        eta = _quarter_of_stable(first)
        walk = follow(model, data, step_size=eta, num_steps=STEPS, loss=loss)
        steps = [int(k) for k in asked_steps(STEPS) if walk.loss[k] <= 2 * target_loss]
        if not steps:
            continue
        run = train(
            model,
            data,
            rule=GD(eta),
            num_steps=steps[-1],
            loss=loss,
            dtype="float64",
            snapshots=steps,
            record=10**9,
        )
        for k in steps:
            center = Center.at(run.model(k), data, loss)
            if center.margins.min() <= 0 or center.indicator < LIKELY:  # it would hardly speak
                continue
            if tries == TRIES:
                return f"{TRIES} forecasts from a sharp start promise too little"
            tries += 1
            tell(f"a forecast from step {k} with {heads:,.0f} heads")
            found = followed(center, eta, 2.0, PIECES, math.log(2.0))
            more = found.steps_to_reduce
            if more is not None:
                spent = time.perf_counter() - began
                return Proved(Sharp(seed, from_step=k), heads, eta, k + more, found.loss / 2, spent)
    return f"not practical: the theory would need more than {HEADS[-1]:,.0f} heads"


def _quarter_of_stable(center: Center) -> float:
    """A quarter of the largest step size at which descent is stable for the model's linear part, rounded down."""
    assert center.kernel is not None  # the sequences are few
    top = (
        float(np.linalg.eigvalsh(center.kernel)[-1]) * center.loss.smoothness / len(center.margins)
    )
    return float(below(0.5 / top))
