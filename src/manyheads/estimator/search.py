"""What "auto" means: a short comparison on sequences that are held out, then one run on all of them.

The sequences held out have weight zero in `train`, so that all runs of one number of heads share a compiled program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from manyheads._check import checked
from manyheads._names import DECODERS, OPTIMIZERS
from manyheads._registry import nearest
from manyheads.data.dataset import Dataset
from manyheads.data.door import shown
from manyheads.model.attention import MultiHead
from manyheads.model.loss import LOGISTIC, Weighted
from manyheads.training.descent import train
from manyheads.training.rules import RULES
from manyheads.training.start import first_phase, gaussian_start, is_heads, zero_start
from manyheads.training.stop import asked_steps
from manyheads.training.trajectory import Trajectory

AUTO = "auto"
KINDS = ("zero", "first_phase", "gaussian")
CANDIDATES = (("zero", 1.0), ("first_phase", 8.0), ("gaussian", 4.0))
HEADS = {
    "zero": (1.0,),
    "first_phase": (2.0, 64.0),
    "gaussian": (1.0, 4.0, 16.0),
}  # where only the start is given
USUAL_STEP = {"adam": 0.02, "normalized": 0.1, "polyak": 10.0}
MOST_STEPS = 1000
TRIED_STEPS = 32  # of a step size
NUM_RECORDS = TRIED_STEPS + 1  # of every run, so that all have one shape
POWERS = (-40, 20)  # of two, the step sizes that are tried
PATIENCE = (
    3  # times in a row that the held-out loss is asked for, from step 32 on, and has not fallen
)
FRESH_SHARE = 0.25  # of the sequences, for a first phase


@dataclass(frozen=True)
class Wishes:
    """The settings of a fit as the user gave them, each a value or "auto"."""

    num_heads: Any = AUTO
    start: str = AUTO
    step_size: Any = AUTO
    num_steps: Any = AUTO
    optimizer: str = "gd"
    decoder: str = "full"
    early_stopping: bool = True
    validation_fraction: float = 0.2
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, known in (
            ("start", (*KINDS, AUTO)),
            ("optimizer", OPTIMIZERS),
            ("decoder", DECODERS),
        ):
            if (value := getattr(self, name)) not in known:
                raise ValueError(
                    f"{name}={shown(value)} is not known; {nearest(str(value), known)}."
                )
        if self.num_heads != AUTO:
            checked("num_heads", self.num_heads, is_heads)
        steps, size, share = self.num_steps, self.step_size, self.validation_fraction
        if steps != AUTO and not (_is_number(steps) and steps == int(steps) and steps >= 1):
            raise ValueError(f"num_steps={shown(steps)} must be a whole number >= 1 or 'auto'.")
        if size != AUTO and not (_is_number(size) and 0 < size < math.inf):
            raise ValueError(f"step_size={shown(size)} must be a finite number > 0 or 'auto'.")
        if not (_is_number(share) and 0 < share < 1):
            raise ValueError(
                f"validation_fraction={shown(share)} must be a number between 0 and 1."
            )

    @property
    def candidates(self) -> list[tuple[str, float]]:
        """The starts with their numbers of heads that are compared."""
        if self.num_heads != AUTO:
            return [
                (kind, float(self.num_heads))
                for kind in (KINDS if self.start == AUTO else (self.start,))
            ]
        return (
            list(CANDIDATES)
            if self.start == AUTO
            else [(self.start, heads) for heads in HEADS[self.start]]
        )

    @property
    def most_steps(self) -> int:
        return MOST_STEPS if self.num_steps == AUTO else int(self.num_steps)


def counted(number: float, noun: str) -> str:
    """A number with its noun: 1 step, 1,000 steps."""
    return f"{number:,.0f} {noun}" + ("" if number == 1 else "s")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


@dataclass(frozen=True)
class Trial:
    """One start with its heads: a step size and a number of steps for each class against the rest."""

    start: str
    num_heads: float
    step_sizes: tuple[float, ...]
    num_steps: tuple[int, ...]
    held_out_loss: float | None = None  # where something was held out

    def __str__(self) -> str:
        def told(values, form):
            low, high = form(min(values)), form(max(values))
            return low if low == high else f"{low} to {high}"

        heads, sizes = counted(self.num_heads, "head"), told(self.step_sizes, lambda v: f"{v:.6g}")
        steps = told(self.num_steps, lambda v: f"{v:,}") + (
            " step" if set(self.num_steps) == {1} else " steps"
        )
        return f"{heads}, {self.start.replace('_', ' ')} start, step size {sizes}, {steps}"


@dataclass(frozen=True)
class Found:
    """The trials, the chosen one, and the runs made with it on all sequences, with their training data."""

    chosen: Trial
    trials: tuple[Trial, ...]
    runs: tuple[Trajectory, ...]
    trained_on: tuple[Dataset, ...]
    weighted: bool


def search(
    problems: Sequence[Dataset],
    codes: np.ndarray,
    weight: np.ndarray | None,
    wishes: Wishes,
    seed: int,
    tell: Callable[[str], None] | None = None,
) -> Found:
    """Choose what is "auto", then train on all sequences: one run for each problem, which share their tokens.

    `codes` are the classes, by which the sequences that are held out are spread; `weight` are the sequences' weights.
    """
    tell = tell or (lambda text: None)
    rng = np.random.default_rng(seed)
    shares = np.full(len(codes), 1 / len(codes)) if weight is None else weight / weight.sum()
    candidates = wishes.candidates
    stops = wishes.early_stopping
    held = _held_out(
        codes, wishes.validation_fraction if stops or len(candidates) > 1 else 0.0, rng
    )
    if not held.any():  # too few sequences to set some aside
        candidates, stops = candidates[:1], False
    fresh = _held_out(codes, FRESH_SHARE, rng)
    key = jax.random.key(int(rng.integers(2**31)))
    trials = []
    if len(candidates) > 1 or stops:
        for kind, heads in candidates:
            tell(f"trying {counted(heads, 'head')} from a {kind.replace('_', ' ')} start")
            trials.append(_trial(problems, kind, heads, shares, held, fresh, wishes, key, stops))
        chosen = min(trials, key=lambda trial: trial.held_out_loss)
    else:
        (kind, heads), steps = candidates[0], (wishes.most_steps,) * len(problems)
        chosen = Trial(kind, heads, (), steps)
    tell(f"training on all {len(codes)} sequences")
    runs, data, sizes = [], [], []
    for i, problem in enumerate(problems):
        model, used = (
            _start(chosen.start, chosen.num_heads, problem, fresh, wishes, key),
            np.ones(len(codes), bool),
        )
        if chosen.start == "first_phase":
            used = ~fresh
        rest, own = (
            (problem, shares)
            if used.all()
            else (problem.subset(used), shares[used] / shares[used].sum())
        )
        size = chosen.step_sizes[i] if chosen.step_sizes else _step_size(model, rest, own, wishes)
        given = None if weight is None else own
        runs.append(_run(model, rest, given, size, chosen.num_steps[i], wishes))
        data.append(rest)
        sizes.append(size)
    chosen = replace(chosen, step_sizes=tuple(sizes))
    return Found(chosen, tuple(trials), tuple(runs), tuple(data), weight is not None)


def _trial(problems, kind, heads, shares, held, fresh, wishes: Wishes, key, stops: bool) -> Trial:
    """One candidate, trained on the sequences that are not held out."""
    sizes, steps, losses = [], [], []
    train_shares = np.where(held | (fresh if kind == "first_phase" else False), 0.0, shares)
    if not train_shares.any():
        train_shares = np.where(held, 0.0, shares)
    train_shares /= train_shares.sum()
    for problem in problems:
        model = _start(kind, heads, problem, fresh & ~held, wishes, key)
        size = _step_size(model, problem, train_shares, wishes)
        watch = HeldOut(problem, held, shares)
        run = _run(
            model, problem, train_shares, size, wishes.most_steps, wishes, watch if stops else None
        )
        if run.status != "diverged":
            watch(run.last_step, run.final)
        sizes.append(size)
        steps.append(max(1, watch.best_step) if stops else wishes.most_steps)
        losses.append(watch.best if stops else watch.last)
    return Trial(kind, heads, tuple(sizes), tuple(steps), float(np.mean(losses)))


class HeldOut:
    """The loss on sequences held out, asked for along a run; ends it when the loss has stopped falling."""

    def __init__(self, problem: Dataset, held: np.ndarray, shares: np.ndarray):
        self.problem, self.held = problem, held
        self.shares = shares[held] / max(shares[held].sum(), np.finfo(float).tiny)
        self.best, self.best_step, self.last, self.since = math.inf, 0, math.inf, 0

    def __call__(self, step: int, model: MultiHead) -> str:
        scores = model.scores(self.problem)[self.held]
        self.last = float(self.shares @ LOGISTIC.at(self.problem.labels[self.held] * scores))
        if self.last < self.best:
            self.best, self.best_step, self.since = self.last, step, 0
            return ""
        self.since += step >= TRIED_STEPS
        return (
            f"the held-out loss has not fallen since step {self.best_step}"
            if self.since >= PATIENCE
            else ""
        )


def _held_out(codes: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Flags of a random share of each class, of which at least one sequence is left."""
    held = np.zeros(len(codes), bool)
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        held[members[: min(math.ceil(share * len(members)), len(members) - 1)]] = True
    return held


def _start(
    kind: str, heads: float, problem: Dataset, fresh: np.ndarray, wishes: Wishes, key
) -> MultiHead:
    if kind == "first_phase":
        data = problem.subset(fresh) if fresh.any() else problem
        return first_phase(data, heads, decoder=wishes.decoder, key=key)
    shape = {"num_tokens": problem.num_tokens, "dim": problem.dim, "decoder": wishes.decoder}
    if kind == "zero":
        return zero_start(heads, **shape)
    return gaussian_start(heads, key=key, **shape)


def _run(model, data, shares, size: float, steps: int, wishes: Wishes, stop=None) -> Trajectory:
    return train(
        model,
        data,
        rule=RULES[wishes.optimizer](size),
        num_steps=steps,
        loss="logistic" if shares is None else Weighted(shares),
        record=_records(steps),
        dtype=wishes.dtype,
        stop=stop,
    )


def _records(steps: int) -> list[int]:
    """As many steps for every run that is long enough: those at which questions are asked, and others between."""
    wanted = {*asked_steps(steps).tolist(), 0, steps}
    more = [
        k
        for k in np.unique(np.geomspace(1, max(steps, 1), 400).round().astype(int)).tolist()
        if k not in wanted
    ]
    missing = max(0, min(NUM_RECORDS, steps + 1) - len(wanted))
    extra = (
        [more[round(i)] for i in np.linspace(0, len(more) - 1, missing)]
        if len(more) >= missing
        else more
    )
    return sorted(wanted | set(extra))


def _step_size(model: MultiHead, data: Dataset, shares: np.ndarray, wishes: Wishes) -> float:
    """The given one; or for descent by the gradient the largest power of two at which the loss falls steadily."""
    if wishes.step_size != AUTO:
        return float(wishes.step_size)
    if wishes.optimizer != "gd":
        return USUAL_STEP[wishes.optimizer]

    def falls(power: int) -> bool:
        run = _run(model, data, shares, 2.0**power, TRIED_STEPS, wishes)
        loss = run.train_loss
        steady = np.all(np.diff(loss) <= 4 * np.finfo(loss.dtype).eps * loss[:-1])
        return run.status == "finished" and bool(steady and np.isfinite(loss).all())

    lowest, highest = POWERS
    power = 0
    if falls(power):
        while power < highest and falls(power + 1):
            power += 1
        return 2.0**power
    while power > lowest and not falls(power):
        power -= 1
    return 2.0**power
