"""How many heads, which step size, how many steps: what each version of the theory requires, and what is enough."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING

import numpy as np
from jax import random

from manyheads import _check
from manyheads._card import card
from manyheads._check import check, flag, none, one_of, positive, share, whole
from manyheads._names import DECODERS
from manyheads.data.dataset import is_dataset
from manyheads.measures import kernel as kernels
from manyheads.measures import margin as margins
from manyheads.model import attention
from manyheads.model.loss import LOGISTIC, Loss, get_loss, is_loss
from manyheads.theory import walk as follower
from manyheads.theory.deora2023.initialization import GoodStart, good_start
from manyheads.theory.deora2023.regime import STEPS, Ray, fixed_plan, smallest_heads, whole_heads
from manyheads.theory.manyheads2026 import before as forecasts
from manyheads.theory.verdict import EXPLICIT, OURS, PRINTED, plain
from manyheads.training import start as starts

if TYPE_CHECKING:
    import jax

    from manyheads.data.dataset import Dataset
    from manyheads.model.attention import MultiHead


PLANNED = ("first_phase", "zero", "gaussian")
NAMES = {
    PRINTED: "the paper, its hidden constants read as 1",
    EXPLICIT: "the paper's proof sketch, constants written out",
    OURS: "our version of the theorem",
}
FORECAST = "our forecast before the run"
MEASURED_HEADS = (2, 16, 256)
GAUSSIAN_HEADS = 64
SHORT_BUDGET, STEP_BUDGET = 250, 4000
# sequences whose kernel, margins and trial runs are computed; the time grows with the square
MOST_SAMPLED = 1000
# powers of two that a trial may use: smallest, first tried, largest
STEP_SIZES = (-60, -12, 10)
# the third answer is "undecided"
SEPARABLE, NOT_SEPARABLE = "separable", "not separable"


@dataclass(frozen=True)
class Demand:
    """What one version of the theory requires to certify the loss."""

    version: str
    num_heads: float  # infinite where no number is enough
    step_size: float
    num_steps: float
    distance: float
    certified_loss: float
    note: str = ""

    def __str__(self) -> str:
        if math.isinf(self.num_heads):
            return f"  {'-':>12}  {self.version}: {self.note}"
        note = f"; {self.note}" if self.note else ""
        plan = f"step size {below(self.step_size)}, {_count(self.num_steps)} steps"
        return f"  {_count(self.num_heads):>12} heads, {plan}  ({self.version}{note})"


@dataclass(frozen=True)
class Measured:
    """What a trial run shows to be enough, for one number of heads."""

    num_heads: float
    step_size: float  # NaN where no step size descends steadily
    num_steps: float  # infinite where the budget did not suffice
    reached_loss: float

    def __str__(self) -> str:
        told = f"step size {below(self.step_size)}, {self.num_steps:,.0f} steps"
        if math.isnan(self.step_size):
            told = "no step size descends steadily; scale tokens down"
        elif math.isinf(self.num_steps):
            reached = f"loss {self.reached_loss:.3g} after {STEP_BUDGET:,} steps"
            told = f"{reached} at step size {below(self.step_size)}; not reached"
        return f"  {_count(self.num_heads):>12} heads: {told}"


@dataclass(frozen=True, eq=False)
class Plan:
    """An answer to "how many heads, which step size, how many steps", with the numbers behind it.

    `training` is the part of the data that was not used for planning; the plan does not depend on
    it, so train on it. `start` has the heads of the plan's start (two of them for a first phase,
    one for zero, 64 for a Gaussian start); for more heads each stands for many, in equal shares.
    `kernel_answer` and `linear_answer` say whether the planning data are "separable", "not
    separable" or "undecided", by the model near its start and by a linear model. Kernel, margins
    and trial runs use at most 1000 sequences: `looked_at` is how many were used, and of how many.
    """

    target_loss: float
    start_kind: str
    start: MultiHead
    training: Dataset
    num_planning: int
    looked_at: tuple[int, int]
    demands: tuple[Demand, ...]
    measured: tuple[Measured, ...]
    kernel_margin: tuple[float, float]
    readout_margin: tuple[float, float]
    linear_margin: tuple[float, float]
    kernel_answer: str
    linear_answer: str
    token_radius: float

    @property
    def separable(self) -> bool:
        """Whether a small change of the model at its start is proved to separate the planning data."""
        return self.kernel_answer == SEPARABLE

    @property
    def silent(self) -> bool:
        """Whether no version of the theory guarantees the loss with any number of heads."""
        return not any(math.isfinite(demand.num_heads) for demand in self.demands)

    @property
    def linear_does_as_well(self) -> bool:
        """Whether a linear model on the same tokens reaches the same loss without moving farther."""
        return self.linear_answer == SEPARABLE and self.linear_margin[0] >= self.kernel_margin[1]

    def to_dict(self) -> dict:
        told = "token_radius separable kernel_answer linear_answer kernel_margin readout_margin linear_margin"
        values = {
            name: getattr(self, name)
            for name in (*told.split(), "linear_does_as_well", "demands", "measured")
        }
        counts = {
            "planned_on": self.num_planning,
            "looked_at": self.looked_at[0],
            "left_for_training": self.training.num_examples,
        }
        return plain(
            {"target_loss": self.target_loss, "start": self.start_kind, **counts, **values}
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        start, left, (seen, of) = (
            self.start_kind.replace("_", " "),
            self.training.num_examples,
            self.looked_at,
        )
        trials = [
            "",
            "What is enough, by trial runs on the planning data (largest step size with steady "
            "descent):",
        ]
        nothing = "  nothing: at this start no small change of the model is known to separate the data, so the theory is"
        return "\n".join(
            [
                f"Goal: a train loss of {self.target_loss:g}, from a {start} start. Planned on "
                f"{self.num_planning} of "
                f"{self.num_planning + left} sequences"
                + (
                    f": {self.num_planning - of} make the start, {of} are"
                    if of < self.num_planning
                    else ", which are"
                )
                + f" those that the guarantee covers. The other {left} were not used."
                + (
                    f" Margins and trials: on {seen:,} of {of:,}, drawn at random."
                    if seen < of
                    else ""
                ),
                *(trials if self.measured else ()),
                *map(str, self.measured),
                "",
                "What guarantees it before the first step (mean loss over the run; proved for the "
                "planning data only, "
                "so\ncertify the run on the others):",
                *(map(str, self.demands) if self.demands else [f"{nothing} silent."]),
                "",
                self._kernel(),
                self._linear(),
                f"R = {self.token_radius:.4g} is the largest token norm seen, an assumption about "
                "data not yet seen.",
            ]
        )

    def _repr_html_(self) -> str:
        rows = {
            f"{_count(d.num_heads)} heads": f"{d.version}"
            for d in self.demands
            if math.isfinite(d.num_heads)
        }
        rows |= {
            f"{_count(m.num_heads)} heads, by trial": str(m).partition(": ")[2]
            for m in self.measured
        }
        return card(
            f"A train loss of {self.target_loss:g} from a {self.start_kind.replace('_', ' ')} "
            "start",
            rows,
        )

    def _kernel(self) -> str:
        margins = (
            f"{pair[0]:.4g}"
            for pair in (self.kernel_margin, self.readout_margin, self.linear_margin)
        )
        most = f"{self.kernel_margin[1]:.2g}"
        if self.separable:
            return (
                "Margins per unit of movement: {} for the whole model near its start, {} for its "
                "readout alone, {} for "
                "a linear model on the same tokens."
            ).format(*margins)
        if self.kernel_answer == NOT_SEPARABLE:
            return (
                f"The data are not separable near this start: proved, no margin above {most} per "
                "unit of movement in "
                "the tangent kernel."
            )
        return (
            "Whether the data are separable near this start is undecided: the margin in the "
            "tangent kernel is at most "
            f"{most} per unit of movement."
        )

    def _linear(self) -> str:
        (low, high), kernel = self.linear_margin, self.kernel_margin[0]
        if self.linear_does_as_well and self.separable:
            return "A linear model fits these sequences as well: it separates them with at least the same margin."
        if self.linear_does_as_well:
            return f"A linear model fits these sequences, and this start does not: its margin is {low:.4g}."
        if self.linear_answer == NOT_SEPARABLE:
            more = "; attention has" if self.separable else ""
            return f"A linear model has no margin above {high:.2g} on these tokens{more}."
        if self.linear_answer != SEPARABLE:
            return f"Whether a linear model separates these tokens is undecided: its margin is at most {high:.2g}."
        if self.separable:
            return f"A linear model would have to move {kernel / low:.2f} times as far for the same loss."
        return f"A linear model on these tokens separates them, with margin {low:.4g}."


@check(
    dataset=is_dataset,
    start=one_of(*PLANNED),
    target_loss=positive,
    num_steps=whole() | none,
    key=_check.key,
    planning_share=share,
    trials=flag,
    decoder=one_of(*DECODERS),
    loss=is_loss,
    progress=_check.function | none,
)
def plan(
    dataset: Dataset,
    *,
    start: str = "first_phase",
    target_loss: float = 0.1,
    num_steps: int | None = None,
    key: jax.Array,
    planning_share: float = 0.5,
    trials: bool = True,
    decoder: str = "full",
    loss: str | Loss = "logistic",
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Plan a training run on a part of the data that is split off and not trained on.

    `start` is "first_phase", "zero" or "gaussian": 32 Gaussian heads, each with its mirror image
    (the readout negated), so that the scores at the start are zero however many copies there are.
    `num_steps` fixes the number of steps for our version of the theorem; by default the number is
    chosen too. `planning_share` of the sequences is used for planning (half of them for the first
    phase). `trials=False` leaves out the trial runs. `decoder` and `loss` are those of the run; the
    paper's own versions are left out for others than its own.
    """
    tell, loss = progress or (lambda text: None), get_loss(loss)
    if not 1e-100 <= target_loss < loss.at(0.0):
        nothing = "log 2 = 0.69" if loss is LOGISTIC else f"{loss.at(0.0):.4g}"
        raise ValueError(
            f"target_loss={target_loss} must be from 1e-100 to {nothing}, the loss of zero scores."
        )
    sample, training, make = planned_parts(dataset, start, planning_share, key, decoder, loss)
    whole_sample = sample
    if sample.num_examples > MOST_SAMPLED:
        # drawn at random already
        sample = sample.subset(np.arange(MOST_SAMPLED))

    tell("margins")
    model = make()
    good = good_start(model, sample, loss=loss)
    X = sample.tokens if sample.mask is None else sample.tokens * sample.mask[:, :, None]
    linear = margins.hard_margin(sample.labels, features=X.reshape(sample.num_examples, -1))
    kernel = kernels.tangent_kernel(model, sample)
    readout = margins.hard_margin(
        sample.labels, gram=kernel.readout, gram_accuracy=kernel.readout_accuracy
    )
    tell("what the theory requires")
    demands = _demands(good, target_loss, num_steps) if good.holds else []
    measured = []
    if trials:
        for heads in (GAUSSIAN_HEADS,) if start == "gaussian" else MEASURED_HEADS:
            tell(f"trial run with {heads} heads")
            measured.append(_trial(make(heads), sample, target_loss, loss))
    kernel_margin, readout_margin, linear_margin = (
        (m.lower, m.upper) for m in (good.interval, readout, linear)
    )
    count = dataset.num_examples - training.num_examples
    looked = (sample.num_examples, whole_sample.num_examples)
    return Plan(
        target_loss,
        start,
        model,
        training,
        count,
        looked,
        tuple(demands),
        tuple(measured),
        kernel_margin,
        readout_margin,
        linear_margin,
        good.interval.verdict,
        linear.verdict,
        sample.token_radius,
    )


def planned_parts(
    dataset: Dataset, start: str, planning_share: float, key: jax.Array, decoder: str, loss: Loss
) -> tuple[Dataset, Dataset, Callable[..., MultiHead]]:
    """The planning sequences, those left for training, and a function that makes the plan's start with many heads."""
    count = round(planning_share * dataset.num_examples)
    if count < 8 or dataset.num_examples - count < 2:
        raise ValueError(
            f"{dataset.num_examples} sequences with planning_share={planning_share:g} leave "
            f"{count} for planning; at "
            "least 8 are needed, and 2 for training"
        )
    split, phase, draw = random.split(key, 3)
    planning, training = dataset.split(count, key=split)
    fresh, sample = (
        planning.split(count // 2, key=phase) if start == "first_phase" else (None, planning)
    )

    def make(heads: float = 2) -> MultiHead:
        if start != "gaussian":
            if fresh is not None:
                return starts.first_phase(fresh, heads, decoder=decoder, loss=loss)
            T, d = sample.num_tokens, sample.dim
            return starts.zero_start(heads, num_tokens=T, dim=d, decoder=decoder)
        half = starts.gaussian_start(
            GAUSSIAN_HEADS // 2,
            num_tokens=sample.num_tokens,
            dim=sample.dim,
            decoder=decoder,
            key=draw,
        )
        W, U = np.asarray(half.key_query), np.asarray(half.readout)
        counts = np.full(GAUSSIAN_HEADS, max(1.0, math.ceil(heads / GAUSSIAN_HEADS)))
        return attention.MultiHead.create(
            np.concatenate([W, W]), np.concatenate([U, -U]), multiplicity=counts, decoder=decoder
        )

    return sample, training, make


def _demands(good: GoodStart, target_loss: float, num_steps: int | None) -> list[Demand]:
    ray = Ray(good.start, good.dataset, good.theta_star(), good.shape.token_radius, good.shape.loss)
    steps = (
        {OURS: num_steps}
        if good.shape.unprinted()
        else {PRINTED: None, EXPLICIT: None, OURS: num_steps}
    )
    demands = [_demand(ray, variant, target_loss, count) for variant, count in steps.items()]
    found = forecasts.Before.of(good).smallest_heads(target_loss)
    if found is None:
        return demands
    heads = whole_heads(found[0], good.start)
    promise = found[1]
    count, note = promise.steps_to(target_loss) or math.inf, "reached by some step, not on average"
    distance = 2 * promise.radius
    return [
        *demands,
        Demand(FORECAST, heads, promise.step_size, count, distance, target_loss, note),
    ]


def _demand(ray: Ray, variant: str, target_loss: float, num_steps: int | None) -> Demand:
    """Heads, step size and steps for a certified mean loss of `target_loss`."""
    try:
        if variant == OURS:
            found = smallest_heads(
                ray.start,
                ray.dataset,
                [ray.direction],
                certified=target_loss,
                num_steps=STEPS if num_steps is None else num_steps,
                token_radius=ray.shape.token_radius,
                loss=ray.shape.loss,
            )
            found = (
                ray.best(whole_heads(found.num_heads, ray.start), int(found.case.num_steps))
                or found
            )
        else:
            found = fixed_plan(ray, variant, target_loss)
    except ValueError as error:
        return Demand(NAMES[variant], math.inf, math.nan, math.nan, math.nan, math.nan, str(error))
    note = "not proved: the paper does not name its constants" if variant == PRINTED else ""
    case = found.case
    return Demand(
        NAMES[variant],
        found.num_heads,
        case.step_size,
        case.num_steps,
        case.distance,
        found.bound,
        note,
    )


def _trial(model: MultiHead, sample: Dataset, target_loss: float, loss: Loss) -> Measured:
    eta = _stable_step(model, sample, loss)
    if math.isnan(eta):
        return Measured(model.num_heads, eta, math.inf, math.nan)
    # most targets are reached within the short budget
    for steps in (SHORT_BUDGET, STEP_BUDGET):
        walk = follower.follow(model, sample, step_size=eta, num_steps=steps, loss=loss)
        below = np.flatnonzero(walk.loss <= target_loss)
        if len(below):
            break
    return Measured(
        model.num_heads, eta, float(below[0]) if len(below) else math.inf, float(walk.loss[-1])
    )


def _stable_step(model: MultiHead, sample: Dataset, loss: Loss = LOGISTIC) -> float:
    """The largest power of two at which (13), the descent lemma, holds at all of 60 measured steps; NaN if none."""

    def descends(power: int) -> bool:
        walk = follower.follow(model, sample, step_size=2.0**power, num_steps=60, loss=loss)
        defect = np.diff(walk.loss) + 2.0 ** (power - 1) * walk.gradient_norm[:-1] ** 2
        # a NaN fails
        return bool(np.all(defect <= 1e-12 * (1 + walk.loss[0])))

    smallest, power, largest = STEP_SIZES
    if descends(power):
        while power < largest and descends(power + 1):
            power += 1
        return 2.0**power
    while power > smallest:
        power -= 1
        if descends(power):
            return 2.0**power
    return math.nan


def below(number: float) -> str:
    """A number that is guaranteed to be small enough, in four digits, rounded down."""
    return f"{Decimal(number).normalize(Context(prec=4, rounding=ROUND_FLOOR)):g}"


def _count(number: float) -> str:
    """A number of heads or steps that is enough; beyond ten million in two digits, rounded up."""
    if number < 1e7 or not math.isfinite(number):
        return f"{number:,.0f}"
    return f"{float(Decimal(number).normalize(Context(prec=2, rounding=ROUND_CEILING))):.2g}"
