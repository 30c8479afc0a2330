"""The doctor: how a probe, ours or somebody else's, stands on given data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads.probe.attention_probe import AttentionProbe, certified
from manyheads.probe.choice import predicted
from manyheads.probe.columns import losses_and_slopes
from manyheads.probe.fitting import binary
from manyheads.theory.manyheads2026.forecast import Forecast

SATURATED, ASLEEP = 0.99, 0.05  # of the attention on one token; of it that is not spread evenly
EQUAL, DEAD = 0.01, 0.01  # distance of two heads' attention; share of the score that a head moves
MOST = 400  # sequences on which the forecast is made


@dataclass(frozen=True)
class Checkup:
    """What was found; shares and distances are means over sequences and heads."""

    num_sequences: int
    num_heads: int
    wrong: int
    loss: float
    smallest_margin: float  # of the scores, over the norm of the parameters
    top: float  # attention on the token that gets most
    awake: float  # distance of the attention from an even one
    effective_heads: float
    equal: tuple[tuple[int, int], ...]  # pairs of heads, from 1
    dead: tuple[int, ...]
    forecast: Forecast
    ours: tuple[float, float, float] | None  # error of an AttentionProbe, and its interval
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        kept = {name: value for name, value in vars(self).items() if name != "forecast"}
        return kept | {"forecast": self.forecast.to_dict()}

    def __str__(self) -> str:
        count, heads = self.num_sequences, self.num_heads
        fits = (
            "all sequences are on their side" if not self.wrong else "not separated by this probe"
        )
        state = f"most-looked-at token gets {self.top:.0%}, {self.awake:.0%} away from even"
        if self.top > SATURATED:
            state += ": saturated, the gradient of the queries is nearly lost"
        elif self.awake < ASLEEP:
            state += ": asleep, the probe averages tokens"
        twins = ", ".join(f"{a} and {b}" for a, b in self.equal[:4]) or "none"
        dead = ", ".join(map(str, self.dead[:8])) or "none"
        lines = [
            f"errors      {self.wrong} of {count} ({self.wrong / count:.1%}), {self.loss:.3f} nats; {fits}",
            f"margin      {self.smallest_margin:.2e}, the smallest over the norm of the parameters",
            f"attention   {state}",
            f"heads       {self.effective_heads:.1f} of {heads} carry the score; equal: {twins}; dead: {dead}",
            f"theory      {self.forecast}",
        ]
        if self.ours is not None:
            share, low, high = self.ours
            lines.append(
                f"ours        an AttentionProbe errs on {share:.1%} ({low:.1%} to {high:.1%}) of sequences "
                f"it was not fitted to\n            {self.verdict}"
            )
        return "\n".join(lines)


def checkup(
    probe: AttentionProbe, X: Any, y: Any, mask: Any = None, *, compare: bool = True
) -> Checkup:
    """How a probe stands on these sequences; with `compare`, beside an AttentionProbe fitted to other parts of them."""
    sequences, labels = AttentionProbe()._read(X, mask, y)
    if sequences.tokens.shape[2] != probe.n_features_in_:
        raise ValueError(
            f"X has {sequences.tokens.shape[2]} features, and the probe reads {probe.n_features_in_}."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) != probe.fit_.num_classes:
        raise ValueError(
            f"the data have {len(classes)} labels, and the probe {probe.fit_.num_classes}; pass the "
            "data it was made for."
        )
    fit = probe.fit_
    scores = fit.scores(sequences)
    wrong = predicted(scores) != codes
    if fit.num_classes == 2:
        margins = np.where(codes == 1, 1.0, -1.0) * scores[:, 0]
    else:
        own = scores[np.arange(len(codes)), codes]
        others = np.where(np.arange(len(classes))[None, :] == codes[:, None], -np.inf, scores)
        margins = own - others.max(axis=1)
    maps = fit.attention(sequences)
    even = sequences.mask / sequences.mask.sum(axis=1, keepdims=True)
    awake = 0.5 * np.abs(maps - even[:, None, :]).sum(axis=2)
    moves = fit.parts(sequences).std(axis=0).max(axis=1)
    share = moves / max(moves.sum(), 1e-300)
    pairs = [
        (a + 1, b + 1)
        for a in range(len(moves))
        for b in range(a)
        if 0.5 * np.abs(maps[:, a] - maps[:, b]).sum(axis=1).mean() < EQUAL
    ]
    few = np.arange(0, len(codes), -(-len(codes) // MOST))
    model, data, _ = binary(fit, sequences.take(few), codes[few])
    ours, verdict = None, ""
    if compare:
        ours, verdict = _beside(probe, sequences, labels, wrong)
    norm = float(np.sqrt(np.sum(fit.theta**2)))
    return Checkup(
        num_sequences=len(codes),
        num_heads=fit.kind.heads,
        wrong=int(wrong.sum()),
        loss=float(losses_and_slopes(scores, codes, np)[0].mean()),
        smallest_margin=float(margins.min() / max(norm, 1e-300)),
        top=float(maps.max(axis=2).mean()),
        awake=float(awake.mean()),
        effective_heads=float(1 / np.sum(share**2)) if moves.any() else 0.0,
        equal=tuple(pairs),
        dead=tuple((np.flatnonzero(share < DEAD) + 1).tolist()),
        forecast=certified(model, data),
        ours=ours,
        verdict=verdict,
    )


def _beside(probe, sequences, labels, wrong) -> tuple[tuple[float, float, float], str]:
    """The error of an AttentionProbe on sequences it was not fitted to, and which of the two is better."""
    from manyheads.probe.report import LEVEL, PROBE, paired, report

    found = report(AttentionProbe(), sequences.tokens, labels, sequences.mask, curve=False)
    p = paired(found.wrong[PROBE], wrong[found.tested])
    better = "this probe" if found.wrong[PROBE].sum() > wrong[found.tested].sum() else "ours"
    told = f"better is {better}" if p < LEVEL else "no difference seen"
    return found.interval(), (
        f"{told} (p = {p:.2g}), where this probe was tested on all of them, trained on or not"
    )
