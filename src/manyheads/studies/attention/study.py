"""What do the heads look at?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, mean, number, ratio, tenth
from manyheads.studies.kit.figure import (
    FOCUS,
    STEP,
    Axis,
    Figure,
    MapPanel,
    Panel,
    by_heads,
    by_start,
    over_seeds,
    rule,
)
from manyheads.studies.kit.study import (
    Finding,
    Numbers,
    Results,
    Scaled,
    Study,
    chosen,
    conclude,
    grids,
    stated,
)
from manyheads.studies.kit.tasks import STARTS
from manyheads.studies.kit.words import MISSING, choose, choose_all, heads, setting
from manyheads.sweeps.spec import Sweep

DATA = {**tasks.MIXTURE, "num_examples": 80, "num_test": 0}
SPARSITY, NUM_HEADS, STEP_SIZE = DATA["sparsity"], 8, 0.2
STEPS = Scaled(1000, 10_000)
DIP = 5e-4  # share of attention: a smaller dip below uniform does not count as looking away


def sweeps(scale: str) -> dict[str, Sweep]:
    look = {
        "data": DATA,
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
        "axes": {"start.kind": list(STARTS)},
        "model": {"num_heads": NUM_HEADS},
        "seeds": Scaled(3, 8),
        "cell": "manyheads.studies.attention.cells:look",
        "parameters": {"map_steps": Scaled([30, STEPS.quick // 5], [30, STEPS.full // 5])},
    }
    signs = {
        **look,
        "axes": {"model.num_heads": Scaled([2, 64], [2, 8, 64, 256])},
        "start": {"kind": "first_phase"},
        "parameters": {"map_steps": []},
    }
    return grids(
        "attention",
        scale,
        look=look,
        signs={key: part for key, part in signs.items() if key != "model"},
    )


def finding(results: Results) -> Finding:
    numbers, data = Numbers(), results["look"]
    last = data["focus"].isel(record=-1)
    gained = last - data["focus"].isel(record=tenth(data["step"].values))
    alignment, focus, growth = data["mean_alignment"].isel(map=-1), {}, {}
    for kind, (_, label) in STARTS.items():
        focus[label] = mean(last.sel(start=kind))
        growth[label] = mean(gained.sel(start=kind))
        numbers.add(
            f"focus.{kind}", f"attention on relevant tokens at the end, {label}", focus[label]
        )
        numbers.add(
            f"focus_gain.{kind}",
            f"the same, gained over the last tenfold steps, {label}",
            growth[label],
        )
        numbers.add(
            f"alignment.{kind}",
            f"alignment with W_* at the end, {label}",
            mean(alignment.sel(start=kind)),
        )
        spread = mean(data["spread"].sel(start=kind))
        numbers.add(
            f"spread.{kind}", f"largest minus smallest attention of a head, {label}", spread
        )
    plus, minus = (
        data["mass"].sel(start="first_phase").isel(record=-1, sign=sign) for sign in (0, 1)
    )
    difference = numbers.add(
        "sign_difference",
        "attention of + heads minus that of - heads, first-phase start",
        mean(plus - minus),
    )
    split = choose(
        difference,
        above=f"heads that started with sign + look there more than those with - (difference {difference})",
        below=f"heads that started with sign - look there more than those with + (difference {difference})",
        undecided=f"heads of both signs do not clearly differ in it (difference {difference})",
        missing="how the two signs differ was not measured",
    )
    shares = ", ".join(f"{number(e.value)} from the {label}" for label, e in focus.items())
    changes = ", ".join(f"{e} from the {label}" for label, e in growth.items())
    classes = number(float(data["classes"].sel(start="first_phase").max()))
    sentences = [
        f"Uniform attention would put {SPARSITY:g} on the relevant tokens; after training {NUM_HEADS} heads put "
        f"{shares}.",
        f"From the first phase there are {classes} distinct heads among {NUM_HEADS}, and {split}.",
        f"Over the last tenfold steps attention there changed by {changes}.",
        f"The key-query weights of the first phase have a cosine of {numbers['alignment.first_phase'].estimate} with "
        "the paper's W_*, in absolute value.",
    ]
    no_trend = "without a clear further trend from every start"
    trend = choose_all(
        growth.values(),
        above="more and more",
        below="but less and less",
        undecided=no_trend,
        missing=no_trend,
    )
    away, steps = _away(numbers, results["signs"]), int(data["step"].max())
    answer = choose_all(
        focus.values(),
        at=SPARSITY,
        above=f"At the relevant tokens, {trend}",
        below="Away from the relevant tokens",
        mixed="It depends on the start",
        undecided="Undecided: from some starts attention does not clearly differ from uniform",
    )
    sentences.insert(1, _turns(away, steps))
    where = [
        f"{NUM_HEADS} heads unless stated",
        f"mixture with ζ = {SPARSITY:g}",
        f"{DATA['num_examples']} sequences",
    ]
    where += [f"{steps:,} steps of size {STEP_SIZE:g}"]
    answer = answer if answer == MISSING else answer + _astray(away)
    cells = [last, results["signs"]["mass"].isel(record=-1, sign=1)]
    return conclude(setting(answer, *where), sentences, numbers, cells)


@dataclass(frozen=True)
class Away:
    """Attention of a first phase's - heads on the relevant tokens minus uniform: its minimum, and at the end."""

    num_heads: float
    least: Estimate
    end: Estimate
    back: Estimate  # the first step at which it is above uniform again

    @property
    def turned(self) -> bool:
        """Whether it falls below uniform at some step."""
        return self.least.below(-DIP)

    @property
    def still(self) -> bool:
        """Whether it is below uniform at the end."""
        return self.turned and self.end.below(-DIP)


def _away(numbers: Numbers, data) -> list[Away]:
    """The - heads for every number of heads."""
    found, steps = [], data["step"].values
    for h in data["num_heads"].values:
        mass = data["mass"].sel(num_heads=h).isel(sign=1).transpose("seed", "record").values
        over = mass > SPARSITY
        lowest = np.argmin(np.where(np.isfinite(mass), mass, np.inf), axis=1)
        after = over & (np.arange(mass.shape[1]) > lowest[:, None])
        back = np.where(after.any(axis=1), steps[np.argmax(after, axis=1)], np.nan)
        with np.errstate(all="ignore"):
            one = Away(
                float(h),
                mean(mass.min(axis=1) - SPARSITY),
                mean(mass[:, -1] - SPARSITY),
                ratio(back),
            )
        numbers.add(
            f"minus_least.{h:g}", f"- heads: least attention minus uniform, {heads(h)}", one.least
        )
        numbers.add(
            f"minus_end.{h:g}", f"- heads: attention at the end minus uniform, {heads(h)}", one.end
        )
        if one.back.count:  # else they are never above it again, which the sentence says
            caption = f"- heads: step at which they are above uniform again, {heads(h)}"
            numbers.add(f"minus_back.{h:g}", caption, one.back)
        found.append(one)
    return found


def _turns(found: list[Away], steps: int) -> str:
    """The course of the - heads in one sentence."""
    parts = []
    for one in found:
        least = number(SPARSITY + one.least.value)
        if not one.least.count:
            text = "was not measured"
        elif not one.turned:
            text = "never falls clearly below it"
        elif one.still:
            text = f"falls to {least} and is still below it after {steps:,} steps"
        elif one.end.above(0) and one.back.count:
            text = f"falls to {least} and is above it again after about {number(one.back.value, 2)} steps"
        else:
            text = f"falls to {least}"
        parts.append(f"with {heads(one.num_heads)} it {text}")
    return f"The attention of heads with sign - starts at {SPARSITY:g}: {'; '.join(parts)}."


def _astray(found: list[Away]) -> str:
    """What the answer says about the - heads."""
    still, turned = (
        [one.num_heads for one in found if getattr(one, name)] for name in ("still", "turned")
    )
    if still:
        return f"; heads with sign - first look away, and with {heads(min(still))} still do"
    return "; heads with sign - first look away, then follow" if turned else ""


def figures(results: Results) -> list[Figure]:
    data = results["look"]
    later = data.isel(record=data["step"].values > 0)
    uniform = rule("reference", "uniform attention", SPARSITY)
    signs = results["signs"]
    minus = signs["mass"].isel(sign=1, record=signs["step"].values > 0)
    by_sign = [
        over_seeds(role, label, "step", later["mass"].sel(start="first_phase").isel(sign=sign))
        for sign, (role, label) in enumerate(
            (("plus", "heads with sign +"), ("minus", "heads with sign -"))
        )
    ]
    return [
        Figure(
            "attention-mass",
            "Attention on the relevant tokens over time",
            f"Focus: mean attention on relevant tokens. @1: all of {NUM_HEADS} heads. @2: the two kinds of these heads "
            "that the first phase makes. @3: only heads with sign -, which first look away. Means and 95% intervals "
            "over seeds.",
            [
                Panel("All heads", STEP, FOCUS, [*by_start("step", later["focus"]), uniform]),
                Panel("First-phase start, by sign", STEP, FOCUS, [*by_sign, uniform]),
                Panel("Heads with sign -", STEP, FOCUS, [*by_heads("step", minus), uniform]),
            ],
        ),
        _maps(data),
    ]


def _maps(data) -> Figure:
    first = data.sel(start="first_phase")
    times = first["map_step"].max("seed").values.astype(int)
    maps = first["maps"].mean("seed").values
    top = float(np.nanmax(maps, initial=0.05))
    panels = [
        MapPanel(
            f"{'+' if sign == 0 else '−'}, step {step:,}",
            Axis("key token", "position"),
            Axis("query token", "position"),
            Axis("attention", "share"),
            tuple(map(tuple, maps[sign, k].tolist())),
            limits=(0.0, np.ceil(20 * top) / 20),
        )
        for sign in (0, 1)
        for k, step in enumerate(times)
        if k > 0
    ]
    return Figure(
        "attention-maps",
        "Where the heads look",
        "Mean attention weights from the first-phase start, with the relevant tokens of every sequence put first "
        "(positions 1 and 2). The titles name the sign with which the heads started.",
        panels,
        columns=3,
    )


STUDY = Study(
    name="attention",
    title="Attention",
    question="What do the heads look at?",
    claim="The first phase makes heads of two kinds, with signs α_h; the paper's target turns the attention of each "
    "along sign(α_h) W_*, toward the relevant tokens for one sign and away for the other.",
    settings=[
        stated("descent", tasks.DESCENT),
        chosen("data", tasks.describe(DATA)),
        chosen("heads", NUM_HEADS),
        chosen("Gaussian start", tasks.UNIT_GAUSSIAN),
        chosen("step size", f"{STEP_SIZE:g}"),
        chosen("steps", STEPS),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="attention",
    order=1,
    in_story=True,
)
