r"""Theorem F: what gradient descent will reach, proved from the parameters at one step, at any number of heads.

A step of descent lies in a ball around a multiple of any unit vector $v$ along which all tangent
features have margin $\Gamma$. Adding such balls up gives a region that the iterates cannot leave
before the loss has fallen; over that region the margin, the ratio of slope to loss and the
smoothness are bounded locally. Proof: docs/theory/forecast.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from manyheads._check import REFUSED, Constraint, check, many, none, positive, real, whole
from manyheads.data.dataset import is_dataset
from manyheads.measures.neighborhood import LARGEST_LOGIT
from manyheads.model import attention
from manyheads.model.attention import is_multi_head
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.theory import provenance
from manyheads.theory.deora2023.setting import loss_scope
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.manyheads2026.promise import measured_against
from manyheads.theory.manyheads2026.region import (
    ENLARGE,
    Center,
    margin_box,
    ratio_bound,
    smoothness_bound,
    smoothness_per_loss,
)
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import OURS, Bound, Certificate, Hypothesis
from manyheads.training import descent
from manyheads.training.rules import GD, Normalized, Polyak, Rule
from manyheads.training.stop import asked_steps
from manyheads.training.trajectory import Trajectory, is_trajectory

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead
    from manyheads.theory.examination import Examination


# nats that one piece of the region would certify without losses
PIECE = 0.03
# with more sequences than a kernel is made of, where a center takes a second
PIECE_OF_MANY = 0.1
MOST_PIECES = 250
MOST_STEPS = 2.0**62
HOPELESS, LIKELY = (
    0.25,
    0.55,
)  # first_forecast skips steps with an indicator below the first, and starts at the second
NAMES = {
    "gd": "gradient descent",
    "normalized": "normalized descent",
    "polyak": "descent by Polyak's rule",
}
# of a piece, before the region ends
HALVINGS = 4
REASONS = {
    "margin": "the margin over the region is no longer positive",
    "inseparable": "no direction of the parameters raises all margins",
    "step": "the step size is too large for the curvature that the bounds allow over the region",
    "slow": "the bounds promise no further decrease",
    "pieces": f"the region was followed for only {MOST_PIECES} pieces",
    "long": "it takes more steps than can be counted",
    "ended": "the step sizes that were given end there",
    "logits": f"attention logits exceed {LARGEST_LOGIT:g}, too large for the bounds: scale the tokens or weights down",
    "range": "its numbers leave the range of float64: scale the tokens or weights",
}


is_covered = Constraint(
    "mh.GD(0.1), mh.Normalized(0.1) or mh.Polyak(10.0)",
    lambda rule: rule if isinstance(rule, GD | Normalized | Polyak) else REFUSED,
)


@dataclass(frozen=True)
class Piece:
    r"""One piece of the region: balls of radius up to `radius`, on which the three local bounds hold.

    `margin` $\Gamma$: every tangent feature has at least this margin. `ratio` $c$: the mean slope
    is at least $c$ times the loss. `efficiency` $e = 1-\eta\beta/2$: the share of the linear
    decrease that is kept. `nats` is the fall of the log-loss certified up to here.
    """

    radius: float
    margin: float
    ratio: float
    efficiency: float
    smoothness: float
    nats: float

    @property
    def sound(self) -> bool:
        """Whether all of it is finite, and positive where it must be."""
        positive = (self.radius, self.margin, self.ratio, self.efficiency, self.nats)
        return all(0 < value < math.inf for value in positive) and 0 <= self.smoothness < math.inf


@dataclass(frozen=True, eq=False)
class Forecast:
    """What is proved about the next steps of gradient descent.

    `steps` and `certified_loss` are the curve: within `steps[i]` steps some iterate has a loss of
    at most `certified_loss[i]`; until then the loss decreases at every step, and the iterates stay
    within `radius` of a known center, hence within twice `radius` of the start. Every bound is
    enlarged by 1e-9 of itself for rounding. The same holds for smaller and for changing step sizes,
    after as many steps as add up to the same time: `schedule` holds those that were given, and
    `step_size` the largest of them.
    """

    step_size: float
    loss: float
    reduce: float
    indicator: float
    reason: str
    pieces: tuple[Piece, ...] = field(repr=False)
    schedule: np.ndarray | None = field(default=None, repr=False)
    rule: str = "gd"

    def __post_init__(self) -> None:
        """Drop promises beyond the given steps, or after more steps than can be counted."""
        total, before, last = 0.0, 0.0, len(self.pieces)
        for i, p in enumerate(self.pieces):
            if not (p.sound and 0 < self._rate(p) < math.inf):
                last = i
                object.__setattr__(self, "reason", "range")
                break
            total += self._between(p, before, p.nats) if p.nats < 700 else math.inf
            before = p.nats
            if not total <= MOST_STEPS:
                last = i
                object.__setattr__(self, "reason", "long")
                break
        object.__setattr__(self, "pieces", self.pieces[:last])
        if self.schedule is None:
            return
        given = float(np.sum(self.schedule)) / self.step_size * (1 - ENLARGE)
        within = tuple(p for p in self.pieces if self._time(p.nats) <= given)
        if len(within) < len(self.pieces):
            object.__setattr__(self, "pieces", within)
            object.__setattr__(self, "reason", "ended")

    def _rate(self, p: Piece) -> float:
        r"""At least so many nats one step makes on a piece: of plain descent and of Polyak's, at the loss of the start.

        $\eta e c^2\Gamma^2L$, which falls with the loss; of a normalized step of length $\eta$,
        $\eta e c\Gamma$ at any.
        """
        slope = p.ratio * p.margin
        if self.rule == "normalized":
            return self.step_size * p.efficiency * slope
        return self.step_size * slope * slope * self.loss * p.efficiency

    def _between(self, p: Piece, low: float, high: float) -> float:
        """Steps from one level to a lower one on a piece: the integral of one over what a step makes."""
        rate = self._rate(p)
        if self.rule == "normalized":
            return (high - low) / rate
        if (
            self.rule == "polyak"
        ):  # as long as the largest step is not reached, each makes `efficiency` nats
            turn = min(max(low, math.log(rate / p.efficiency)), high)
            whole = (turn - low) / p.efficiency
            return whole + (math.exp(high) - math.exp(turn)) / rate
        return (math.exp(high) - math.exp(low)) / rate

    @property
    def certified_loss(self) -> np.ndarray:
        return self.loss * np.exp([-p.nats for p in self.pieces])

    @property
    def steps(self) -> np.ndarray:
        return np.array([self._count(p.nats) for p in self.pieces], np.int64)

    @property
    def nats(self) -> float:
        """The certified fall of the logarithm of the loss."""
        return self.pieces[-1].nats if self.pieces else 0.0

    @property
    def radius(self) -> float:
        return self.pieces[-1].radius if self.pieces else 0.0

    @property
    def speaks(self) -> bool:
        """Whether the loss is certified to fall by the factor `reduce`."""
        return self.nats >= math.log(self.reduce)

    @property
    def steps_to_reduce(self) -> int | None:
        """Steps within which the loss falls by the factor `reduce`; None where that is not certified."""
        return self.steps_to(self.loss / self.reduce) if self.speaks else None

    def steps_to(self, loss: float) -> int | None:
        """Steps within which some iterate has at most this loss; None where that is not certified."""
        if not loss > 0:
            raise ValueError(f"loss={loss} must be above 0; pass a positive loss.")
        if loss < (self.certified_loss[-1] if self.pieces else self.loss):
            return None
        return max(0, self._count(min(math.log(self.loss / loss), self.nats)))

    def _count(self, nats: float) -> int:
        """Steps whose sizes add up to the time of this level."""
        time = self._time(nats)
        if self.schedule is None or time <= 0:
            return math.ceil(time)
        return 1 + int(
            np.searchsorted(np.cumsum(self.schedule) / self.step_size * (1 - ENLARGE), time)
        )

    def _time(self, nats: float) -> float:
        r"""$\mathcal K(s)=\int_0^s e^t/(\eta L_0 q(t))\,dt$ with $q = e c^2 \Gamma^2$ constant on each piece."""
        time, before = 0.0, 0.0
        for p in self.pieces:
            time += self._between(p, before, min(p.nats, nats))
            before = p.nats
            if p.nats >= nats:
                break
        return time * (1 + ENLARGE)

    def to_dict(self) -> dict:
        """Plain values, ready for JSON."""
        return {
            "rule": self.rule,
            "step_size": self.step_size,
            "loss": self.loss,
            "reduce": self.reduce,
            "steps_to_reduce": self.steps_to_reduce,
            "indicator": self.indicator if math.isfinite(self.indicator) else str(self.indicator),
            "radius": self.radius,
            "reason": REASONS[self.reason],
            "steps": self.steps.tolist(),
            "certified_loss": self.certified_loss.tolist(),
        }

    def __str__(self) -> str:
        sizes = "size" if self.schedule is None else "sizes of at most"
        sizes = {"normalized": "length", "polyak": "sizes of at most"}.get(self.rule, sizes)
        start = f"From here, {NAMES[self.rule]} with step {sizes} {self.step_size:g}"
        end = f"because {REASONS[self.reason]}"
        if not self.pieces:
            return f"{start} is not proved to lower the loss, {end}."
        last = f"{self.certified_loss[-1]:.3g}"
        if self.speaks:
            fall = "halve the loss" if self.reduce == 2 else f"divide the loss by {self.reduce:g}"
            return (
                f"{start} is proved to {fall} ({self.loss:.3g}) within {self.steps_to_reduce:,} "
                "steps; below a loss of "
                f"{last} nothing is proved, {end}."
            )
        return (
            f"{start} is proved to bring the loss from {self.loss:.3g} to {last} within "
            f"{self.steps[-1]:,} steps; "
            f"below that nothing is proved, {end}."
        )

    __repr__ = __str__


@check(
    model=is_multi_head | is_trajectory,
    dataset=is_dataset,
    step_size=positive | many(positive) | none,
    reduce=real(above=1),
    most_pieces=whole(),
    loss=is_loss | none,
    rule=is_covered | none,
)
def forecast(
    model: MultiHead | Trajectory,
    dataset: Dataset,
    *,
    step_size: float | Sequence[float] | None = None,
    reduce: float = 2.0,
    most_pieces: int = MOST_PIECES,
    loss: str | Loss | None = None,
    rule: Rule | None = None,
) -> Forecast:
    """What descent on a loss, by default the logistic one, is proved to reach from this model.

    `model` may be a run on these data: then its last parameters, its step size and its loss are
    used. The curve is followed until the bounds end it, or for `most_pieces` pieces. `step_size`
    may be a list of the coming step sizes; nothing is promised after the last of them. Descent is
    plain unless `rule` is `Normalized(length)` or `Polyak(largest)`, or the run was made by one of
    these.
    """
    if rule is not None and step_size is not None:
        raise ValueError("rule= has a step size of its own; leave step_size out.")
    if isinstance(model, Trajectory):
        dataset = provenance.trained_on(model, dataset)
        provenance.check_ends(model, dataset)
    schedule = np.array(step_size) if isinstance(step_size, list) else None
    made = str(getattr(model, "settings", {"optimizer": "gd"}).get("optimizer"))
    name = made if rule is None else rule.name
    if schedule is not None and name != "gd":
        raise ValueError("a list of step sizes is for plain descent; leave step_size out.")
    size: Any = step_size if rule is None else rule.step_size
    model, eta, loss = checked(
        model,
        size if schedule is None else max(schedule, default=0),
        reduce,
        loss=loss,
        rules=tuple(NAMES) if rule is None else (made, *NAMES),
    )
    found = followed(Center.at(model, dataset, loss), eta, reduce, most_pieces, rule=name)
    return found if schedule is None else replace(found, schedule=schedule)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def followed(
    state: Center,
    eta: float,
    reduce: float,
    most_pieces: int,
    enough: float = math.inf,
    rule: str = "gd",
) -> Forecast:
    """The region from a first center on, until the bounds end it or `enough` nats are certified."""
    loss, pieces, reason = float(np.mean(state.loss.at(state.margins))), [], "pieces"
    indicator, share, trouble = state.indicator, 1.0, state.trouble
    if trouble or not 0 < loss < math.inf:
        return Forecast(eta, loss, float(reduce), indicator, trouble or "range", (), rule=rule)
    size = PIECE if state.kernel is not None else PIECE_OF_MANY
    while len(pieces) < most_pieces and (not pieces or pieces[-1].nats < enough):
        direction, along = state.direction
        if direction is None:
            reason = "inseparable"
            break
        last = pieces[-1] if pieces else Piece(0.0, math.inf, math.inf, math.inf, 0.0, 0.0)
        length = share * size / (2 * min(last.margin, along))
        new, piece, why = _next(state, direction, length, last, eta, loss, rule)
        if piece is None:
            share /= 2
            if share < 2.0**-HALVINGS:
                reason = why
                break
            continue
        if piece.nats - last.nats < 1e-3 * share * size:
            reason = "slow"
            break
        state, pieces = new, [*pieces, piece]
    return Forecast(eta, loss, float(reduce), indicator, reason, tuple(pieces), rule=rule)


@check(run=is_trajectory, dataset=is_dataset, reduce=real(above=1))
def first_forecast(
    run: Trajectory, dataset: Dataset, *, reduce: float = 2.0
) -> tuple[int, Forecast] | None:
    """The earliest step of a run from which the forecast certifies the factor `reduce`, and what it says there.

    The run is repeated in float64, and steps 0, 1, 2, 3, 5, 8, ... are tried, except those with a
    hopeless indicator. The first try is where the indicator suggests success. From there earlier
    steps are tried until one is silent, or later ones until one is certified, and the interval
    before it is halved down to one step. The answer is the earliest step if certification, once
    reached, is never lost; it is None only if all these steps are silent.
    """
    dataset = provenance.trained_on(run, dataset)
    provenance.check_ends(run, dataset)
    return earliest_forecast(run, dataset, reduce)


def earliest_forecast(
    run: Trajectory, dataset: Dataset, reduce: float = 2.0
) -> tuple[int, Forecast] | None:
    """`first_forecast` of a run that is known to be one on these data."""
    _, eta, loss = checked(run, None, reduce)
    models = _Path(run.start, dataset, eta, loss)
    grid = [int(k) for k in np.union1d(asked_steps(run.last_step), [run.last_step])]
    centers, path = {}, models(grid)

    def hopeful(k: int) -> bool:
        centers[k] = Center.at(path[k], dataset, loss)
        return centers[k].indicator >= HOPELESS

    def speaks(center: Center) -> bool:
        return followed(center, eta, reduce, MOST_PIECES, math.log(reduce)).speaks

    ahead = iter(
        [k for k in grid if k in path]
    )  # evaluated lazily, as the search reaches each step
    seen: list[int] = []
    for k in ahead:
        seen += [k] if hopeful(k) else []
        if centers[k].indicator >= LIKELY:
            break
    if not seen:
        return None
    first = max(seen, key=lambda k: centers[k].indicator)
    later = itertools.chain([k for k in seen if k >= first], filter(hopeful, ahead))
    step = next((k for k in later if speaks(centers[k])), None)
    # an earlier step may succeed; if none has, every step was tried
    if step in (first, None):
        for k in (k for k in reversed(seen) if k < first):
            if speaks(centers[k]):
                step = k
            elif step is not None:
                break
    if step is None:
        return None
    model = path[step]
    between = list(range(max((k for k in grid if k < step), default=-1) + 1, step))
    path = models(between)
    while between:
        middle = between[len(between) // 2]
        center = Center.at(path[middle], dataset, loss)
        if center.indicator >= HOPELESS and speaks(center):
            step, model, between = middle, path[middle], [k for k in between if k < middle]
        else:
            between = [k for k in between if k > middle]
    return step, forecast(model, dataset, step_size=eta, loss=loss, reduce=reduce)


@dataclass(frozen=True)
class _Path:
    """The models of a run at given steps, in float64."""

    start: MultiHead
    dataset: Dataset
    step_size: float
    loss: Loss

    def __call__(self, steps: list[int]) -> dict[int, MultiHead]:
        if not steps:
            return {}
        plan: dict[str, Any] = {
            "rule": GD(self.step_size),
            "loss": self.loss,
            "num_steps": max(steps),
            "dtype": "float64",
        }
        again = descent.train(self.start, self.dataset, **plan, snapshots=steps, record=10**9)
        return {k: again.model(k) for k in steps if k <= again.last_step}


def checked(
    model, step_size, reduce, settings: dict | None = None, loss=None, rules: tuple = ("gd",)
) -> tuple[MultiHead, float, Loss]:
    """The model, the step size and the loss of a descent covered by the forecast."""
    run = getattr(model, "settings", None)
    settings = run if settings is None else settings
    if settings is not None and settings.get("optimizer") not in rules:
        names = " and ".join(NAMES[name] for name in NAMES if name in rules)
        names = names.replace("gradient", "plain gradient")
        raise ValueError(
            f"the run used {settings.get('optimizer')}; the forecast is proved for {names}."
        )
    if settings is not None and loss is None:
        loss = settings.get("loss")
    if run is not None:
        model, step_size = model.final, run["step_size"] if step_size is None else step_size
    loss = get_loss("logistic" if loss is None else loss)
    known = loss_scope(loss)
    if not known.holds:
        raise ValueError(f"the forecast needs {known.text}: {known.remedy}.")
    if not isinstance(model, attention.MultiHead):
        raise ValueError("the forecast is proved for MultiHead models; pass one, or a run of one.")
    if model.num_outputs is not None:
        raise ValueError(
            f"the forecast is proved for one score a sequence; this model has {model.num_outputs}."
        )
    if isinstance(model.key_query, tuple):
        raise ValueError(
            "the forecast is proved for models whose key-query matrix itself is trained, not its "
            "factors."
        )
    if step_size is None or not 0 < step_size < math.inf:
        raise ValueError(
            f"step_size={step_size} must be a finite number > 0; pass the step size of the descent."
        )
    if not 1 < reduce < math.inf:
        raise ValueError(f"reduce={reduce} must be a finite number > 1; 2 asks for half the loss.")
    return model, float(step_size), loss


def _next(
    state: Center, direction, length: float, last: Piece, eta: float, start_loss: float, rule: str
):
    """The next center and piece; or None and the reason why there is none."""
    radius = last.radius + length
    if not radius < math.inf:
        return None, None, "range"
    new = state.moved(direction, length)
    if new.trouble:
        return None, None, new.trouble
    margin = least(last.margin, new.ball.margins(direction, radius).min())
    if not margin > 0:
        return None, None, "margin"
    level = start_loss * math.exp(-last.nats)
    drift = new.ball.drift(radius)
    low, high = margin_box(new, drift, radius)
    ratio = least(last.ratio, ratio_bound(low, high, level, state.loss))
    if ratio <= 0:
        return None, None, "slow"
    push = min(float(np.mean(state.loss.slope_at(low))), state.loss.self_bound * level)
    farthest = eta * push * float(new.norms.max() + drift.gradient.max())
    # a step is as long as it says
    if rule == "normalized":
        farthest = eta
    elif rule == "polyak":  # and at most L/|∇L| long
        farthest = min(farthest, 1 / (ratio * margin))
    reach = radius + farthest
    around = new.ball.drift(reach)
    smoothness = math.inf
    if rule != "normalized":
        smoothness = smoothness_bound(new, around, reach, level)
    # η_j β, where β is at most `bent` times the loss and η_j falls with its slope
    if rule != "gd":
        bent = smoothness_per_loss(new, around)
        by_slope = bent / (ratio * margin)
        by_slope = by_slope if rule == "normalized" else by_slope / (ratio * margin) / eta
        smoothness = min(smoothness, by_slope)
    efficiency = least(last.efficiency, 1 - eta * smoothness / 2)
    if not efficiency > 0:
        return None, None, "step"
    nats = last.nats + 2 * margin * ratio * efficiency * length * (1 - ENLARGE)
    piece = Piece(radius, margin, ratio, efficiency, smoothness, nats)
    return (new, piece, "") if piece.sound else (None, None, "range")


def least(last: float, new: float) -> float:
    """The smaller of two bounds; NaN where one of them is, which the smaller of two Python floats may hide."""
    return float(np.minimum(last, new))


def certify_forecast(work: Examination) -> list[Certificate]:
    """From `from_step`, or the first certified step: steps to half the loss, measured against certified."""
    work.progress("the forecast along the run")
    claim, where = "steps in which the loss is halved", "some step"
    if work.from_step is None:
        found = earliest_forecast(work.run, work.dataset)
    else:
        where, found = f"step {work.from_step}", _at(work.run, work.dataset, work.from_step)
    if found is None:
        text = f"the forecast certifies half the loss from {where} of the run"
        trouble = Center.at(work.run.final, work.dataset, work.loss).trouble
        text += f": {REASONS[trouble]}" if trouble else ""
        silent = Hypothesis(text, False, REMEDY)
        return [Certificate("forecast", claim, math.nan, (Bound(OURS, math.nan, (silent,)),))]
    step, promise = found
    steps = promise.steps_to_reduce
    assert steps is not None
    model = _Path(work.run.start, work.dataset, promise.step_size, work.loss)([step])[step]
    claim, level = f"{claim}, from step {step}", promise.loss / 2
    return [measured_against(work, "forecast", claim, model, level, steps, promise.step_size)]


def _at(run: Trajectory, dataset: Dataset, step: int) -> tuple[int, Forecast] | None:
    """That step of a run with its forecast, if it certifies half the loss."""
    _, eta, loss = checked(run, None, 2.0)
    model = _Path(run.start, dataset, eta, loss)([step])[step]
    found = followed(Center.at(model, dataset, loss), eta, 2.0, MOST_PIECES, math.log(2.0))
    return (step, found) if found.speaks else None


def check_forecast(effort: Effort) -> Finding:
    """Adversarial points in balls against every local bound, and runs against their forecasts."""
    # which asks this forecast
    from manyheads.theory.manyheads2026 import attack as attacks

    tally = Tally()
    shares = attacks.local_bounds(tally, effort)
    spoke, runs = attacks.runs(tally, effort)
    text = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    how = "at random points" if effort.quick else "by ascent"
    found = f"{spoke} of {runs} forecasts were not silent, and every promise was kept"
    return tally.finding(f"largest shares {how}: {text}; {found}")


REMEDY = "use a smaller step size, more heads, or more steps before the forecast"

FORECAST = Statement(
    id="forecast",
    place="ours, Theorem F",
    title="what descent will reach, proved from one step at any number of heads",
    ours="over balls B(θ̂_a, σ_a) whose centers move by (σ_a−σ_{a−1})v_a, let every tangent feature have margin Γ_a "
    "along v_a, the mean slope be at least c_a times the loss, and e_a = 1 − ηβ_a/2 > 0 for the "
    "curvature β_a there. "
    "Then L(θ_0)e^{−s}, s ≤ Σ 2Γ_a c_a e_a (σ_a−σ_{a−1}), is reached within ⌈∫_0^s e^t "
    "dt/(ηL(θ_0)e c²Γ²)⌉ steps, and "
    "the loss decreases at every step until then",
    proof="docs/theory/forecast.md#theorem-f",
    remark="local bounds attacked by ascent inside random balls; promised over measured steps on runs",
    check=check_forecast,
    about=certify_forecast,
    aliases=("theorem-f", "lens"),
    used_by=("certify",),
)
