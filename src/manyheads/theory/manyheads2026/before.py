r"""Corollary P: the forecast before a run is made, from the margin at the start and worst-case constants.

Over the ball of radius $2\sigma$ around the start the constants $b_1$, $b_3$ of Corollary 1 take
the place of the local bounds of Theorem F, so that only the start has to be evaluated. Proof:
docs/theory/forecast.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from manyheads.theory import targets
from manyheads.theory import walk as follower
from manyheads.theory.deora2023 import initialization
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.deora2023.regime import MOST_HEADS
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.manyheads2026.forecast import ENLARGE, PIECE, Forecast, Piece, least
from manyheads.theory.manyheads2026.promise import affordable, measured_against
from manyheads.theory.manyheads2026.region import floors
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis
from manyheads.training import start as starts

if TYPE_CHECKING:
    from manyheads.theory.deora2023.initialization import GoodStart
    from manyheads.theory.examination import Examination


# the fewest pieces of a region that ends because no margin is left
PIECES = 100
MOST_PIECES = 1000
# of the step size 4/b1^2 that are tried
SHARES = [2.0**-k for k in range(7)]


@dataclass(frozen=True)
class Before:
    """What the corollary needs from a start, for any number of heads in the same shares."""

    shape: Shape
    margin: float  # of the tangent features, along a unit vector
    least_score: float  # the smallest margin at the start
    most_score: float  # the largest
    loss: float
    readout_norm: float
    smallest_share: float  # of the heads that one class has

    @classmethod
    def of(cls, good: GoodStart) -> Before:
        start, data = good.start, good.dataset
        margins = data.labels * start.scores(data)
        return cls(
            good.shape,
            good.interval.lower,
            float(margins.min()),
            float(margins.max()),
            targets.train_loss(start, data, good.shape.loss),
            good.readout_norm,
            float(start.multiplicity.min() / start.num_heads),
        )

    def forecast(
        self, num_heads: float, step_size: float, reduce: float = 2.0, enough: float = math.inf
    ) -> Forecast:
        """The curve that is certified before the first step, or its beginning, until it has fallen by `enough` nats."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self._followed(num_heads, step_size, reduce, enough)
        except (OverflowError, ZeroDivisionError):
            return Forecast(step_size, self.loss, float(reduce), 0.0, "range", ())

    def _followed(
        self, num_heads: float, step_size: float, reduce: float, enough: float
    ) -> Forecast:
        features, curved, root = self.shape.features, self.shape.bend, math.sqrt(num_heads)
        loss, per_head = (
            self.shape.loss,
            self.shape.repeat / math.sqrt(self.smallest_share * num_heads),
        )
        bend = curved(self.readout_norm) / root
        indicator = max(self.margin, 0.0) ** 2 / bend
        pieces, reason, nats = [], "slow" if self.margin > 0 else "inseparable", 0.0
        last = (math.inf, math.inf, math.inf)
        # no margin is left there
        farthest, radius = max(self.margin, 0.0) / (2 * bend), 0.0
        while len(pieces) < MOST_PIECES and self.margin > 0 and nats < enough:
            length = min(farthest / PIECES, max(PIECE / (2 * self.margin), radius / 20))
            radius += length
            M = self.readout_norm + 2 * radius * per_head
            bend = curved(M) / root
            margin = least(last[0], self.margin - 2 * radius * bend)
            if not margin > 0:
                reason = "margin"
                break
            worst = self.least_score - radius * (features(M) - self.margin) - radius**2 / 2 * bend
            best = self.most_score + 2 * radius * features(M)
            ratio = least(last[1], floors(np.array([worst]), np.array([best]), loss)[0])
            level = self.loss * math.exp(-nats)
            M += step_size * self.loss * self.shape.b1(M) * per_head
            most = min(loss.smoothness, loss.self_curvature * level)
            smoothness = most * features(M) ** 2 + loss.self_bound * level * curved(M) / root
            efficiency = least(last[2], 1 - step_size * smoothness / 2)
            if not efficiency > 0:
                reason = "step"
                break
            nats += 2 * margin * ratio * efficiency * length * (1 - ENLARGE)
            last = (margin, ratio, efficiency)
            piece = Piece(radius, margin, ratio, efficiency, smoothness, nats)
            if not piece.sound:
                reason = "range"
                break
            pieces.append(piece)
        return Forecast(step_size, self.loss, float(reduce), indicator, reason, tuple(pieces))

    def smallest_heads(self, loss: float) -> tuple[float, Forecast] | None:
        """The smallest number of heads that certifies this loss, and the forecast there; None where none does."""
        if not self.margin > 0:
            return None
        top = 1 / self.shape.loss.smoothness / self.shape.features(self.readout_norm) ** 2
        best = None
        for share in reversed(
            SHARES
        ):  # small steps lose least, so larger ones rarely need a search
            best = self._least(loss, share * top, best) or best
        return best

    def _least(
        self, loss: float, step_size: float, best: tuple[float, Forecast] | None
    ) -> tuple[float, Forecast] | None:
        """The smallest number of heads with this step size, and its forecast; None if it is not below the best."""
        goal = math.log(self.loss / loss)

        def certified(log_heads):
            return (
                self.forecast(math.exp(log_heads), step_size, self.loss / loss, enough=goal).nats
                >= goal
            )

        low, high = 0.0, math.log(MOST_HEADS)
        if self.loss <= loss or not certified(math.log(best[0]) if best else high):
            return None
        while high - low > 1e-3:
            middle = (low + high) / 2
            low, high = (low, middle) if certified(middle) else (middle, high)
        heads = math.exp(high)
        if best and heads > best[0]:
            return None
        return heads, self.forecast(heads, step_size, self.loss / loss)


def certify_before(work: Examination) -> list[Certificate]:
    """Steps to the loss that is certified before the run, measured against promised."""
    good = work.shared(initialization.start_of)
    claim = "steps to the loss promised before the run"
    before = Before.of(good)
    promise = before.forecast(good.num_heads, work.step_size)
    told = f"worst-case constants promise a lower loss (indicator {promise.indicator:.3g})"
    if not promise.pieces:
        remedy = "use more heads or a smaller step size"
        hypothesis = Hypothesis(told, False, remedy)
        return [
            Certificate("forecast.before", claim, math.nan, (Bound(OURS, math.nan, (hypothesis,)),))
        ]
    last = max(int(np.searchsorted(promise.steps, affordable(work), side="right")) - 1, 0)
    steps, level = int(promise.steps[last]), float(promise.certified_loss[last])
    claim = f"{claim}, {level:.4g}"
    return [
        measured_against(
            work, "forecast.before", claim, work.run.start, level, steps, work.step_size
        )
    ]


def check_before(effort: Effort) -> Finding:
    """Runs from starts with a known margin: steps to several levels, with the loss falling at every step until then."""
    tally, spoke = Tally(), []
    for k in range(effort.count(200, 6)):
        _, data, fresh = small_problem(effort.seed + k)
        heads = 2.0 ** (1 + 2 * (k % 7))
        start = starts.first_phase(fresh, heads)
        before = Before.of(initialization.good_start(start, data))
        step = 4 / before.shape.b1(before.readout_norm) ** 2 * (1.0, 0.5, 0.1)[k % 3]
        promise = before.forecast(heads, step)
        if not promise.pieces:
            continue
        steps = min(int(promise.steps[-1]), 2000)
        walk = follower.follow(start, data, step_size=step, num_steps=steps)
        for count, level in zip(promise.steps, promise.certified_loss, strict=True):
            if count <= steps:
                tally.add(float(walk.loss[: count + 1].min()), float(level))
        spoke.append(heads)
    return tally.finding(
        f"{len(spoke)} runs at {min(spoke):g} to {max(spoke):g} heads; loss reached over loss "
        "promised"
    )


FORECAST_BEFORE = Statement(
    id="forecast.before",
    place="ours, Corollary P",
    title="what descent will reach, promised before the first step",
    ours="with γ the margin of the tangent features at θ_0 along a unit vector, M = ‖U_0‖_{2,∞} + 2σ/√(min N_g), "
    "Γ(σ) = γ − 2σ b3(M)/√H, m = min m_i − σ(b1(M) − γ) − σ² b3(M)/(2√H), c = (1 − e^{−ℓ(m)})/ℓ(m) "
    "and "
    "β = min(¼, L)b1² + L b3/√H at M + ηL_0 b1/√(min N_g), Theorem F holds with these Γ, c and e = "
    "1 − ηβ/2: "
    "halving needs about √H ≥ 2 ln 2·b3/(c e γ²)",
    proof="docs/theory/forecast.md#corollary-p",
    remark="loss reached over loss promised along the certified curve",
    check=check_before,
    about=certify_before,
    tightness=0.9,
    aliases=("corollary-p",),
    used_by=("plan", "certify"),
)
