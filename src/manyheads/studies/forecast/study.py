"""From which step on can theory predict where a run will get, at the numbers of heads used in practice?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, mean, number, ratio, share
from manyheads.studies.kit.figure import (
    HEADS,
    STEP,
    TRAIN_LOSS,
    Axis,
    Figure,
    Panel,
    line,
    over_seeds,
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
)
from manyheads.studies.kit.words import capital, heads_text, listed
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.forecast.cells:speaks"
FEW = 8  # heads; the number that the answer is about
EASY = {**tasks.MIXTURE, "num_examples": Scaled(30, 80), "num_test": 0}
HARD = {**tasks.HARD_MIXTURE, "num_examples": Scaled(40, 80), "num_test": 0}
PLANTED = {
    "kind": "planted",
    "num_tokens": 6,
    "dim": 6,
    "teacher_heads": 2,
    "teacher_scale": 3.0,
    "num_examples": 60,
    "num_test": 0,
}
FEW_LABELS = {**tasks.RANDOM_LABELS, "num_examples": 10}
SHARP = {
    "kind": "gaussian",
    "key_query_scale": 10.0,
    "readout_scale": 0.1,
}  # attention that chooses among tokens
DIGITS = {"kind": "digits", "num_examples": 100, "num_test": 0}
STEP_SIZE = {
    "easy": 0.5,
    "gaussian": 0.5,
    "hard": 0.2,
    "planted": 0.2,
    "random": 0.2,
    "few": 0.1,
    "digits": 0.2,
}
NAMES = {
    "easy": "easy mixture",
    "gaussian": "easy mixture, Gaussian start",
    "hard": "hard mixture",
    "planted": "planted labels",
    "random": "random labels",
    "few": "ten random labels, sharp Gaussian start",
    "digits": "digits 3 and 8",
}
STEPS, SEEDS = Scaled(60, 600), Scaled(3, 5)


def sweeps(scale: str) -> dict[str, Sweep]:
    def made(name: str, data: dict, heads, start=None, seeds=SEEDS, steps=STEPS, **more) -> dict:
        return {
            "data": data,
            "start": start or {"kind": "first_phase"},
            "train": {"step_size": STEP_SIZE[name], "num_steps": steps},
            "axes": {"model.num_heads": heads},
            "seeds": seeds,
            "cell": CELL,
            **more,
        }

    many = Scaled([8, 64], [1, 2, 8, 64, 1024])
    own = {"kind": "gaussian"}
    return grids(
        "forecast",
        scale,
        easy=made("easy", EASY, many),
        hard=Scaled(None, made("hard", HARD, many)),
        gaussian=Scaled(None, made("gaussian", EASY, [1, 2, 8], own)),
        planted=Scaled(None, made("planted", PLANTED, many)),
        random=Scaled(None, made("random", tasks.RANDOM_LABELS, many)),
        few=Scaled(None, made("few", FEW_LABELS, [1, 2, 8], SHARP)),
        digits=Scaled(
            None, made("digits", DIGITS, many, {"kind": "first_phase", "num_examples": 100})
        ),
        curves=made("easy", EASY, [FEW], None, 1, 1000, parameters={"draw": True}),
    )


def _spoken(data: xarray.Dataset) -> xarray.DataArray:
    """Whether the forecast certified half the loss; NaN if the run is missing."""
    return (data["first_step"] < np.inf).where(data["first_step"].notnull())


def finding(results: Results) -> Finding:
    numbers, parts, cells = Numbers(), [], []
    levels = kept = 0
    first: dict[str, Estimate] = {}
    for name, label in NAMES.items():
        if name not in results:
            continue
        data = results[name]
        cells.append(data["first_step"])
        levels, kept = levels + int(data["levels"].sum()), kept + int(data["kept"].sum())
        few = data.sel(num_heads=FEW)
        caption = f"share of runs certified to halve the loss, {label}, H = {FEW}"
        spoke = numbers.add(f"spoke.{name}", caption, share(_spoken(few)))
        known = few["first_step"].where(np.isfinite(few["first_step"]))
        first[name] = numbers.add(
            f"first.{name}", f"first certified step, {label}, H = {FEW}", mean(known)
        )
        loose = ratio(few["promised"], few["measured"])
        numbers.add(
            f"loose.{name}", f"steps promised / needed to halve the loss, {label}, H = {FEW}", loose
        )
        numbers.add(
            f"nats.{name}",
            f"nats certified at the start, {label}, H = {FEW}",
            mean(few["nats_start"]),
        )
        numbers.add(
            f"indicator.{name}",
            f"indicator at the start, {label}, H = {FEW}",
            mean(few["indicator_start"]),
        )
        if spoke.count and spoke.value > 0:
            made = f"from step {first[name]} on, within {loose} times the steps it takes"
            every = "every run" if spoke.value == 1 else f"{number(100 * spoke.value)}% of the runs"
            parts.append(f"{capital(label)}: the loss is certified to halve in {every}, {made}.")
        elif spoke.count:
            most = float(few["nats_last"].max())
            parts.append(
                f"{capital(label)}: never certified to halve; the most that is certified is a factor "
                f"{number(float(np.exp(most)))}, at the end of the run."
            )
    speaking = [NAMES[name] for name, value in first.items() if value.count]
    if not levels:
        answer = (
            "Not measured"
            if not any(int(c.notnull().sum()) for c in cells)
            else "It stays silent on these data"
        )
    elif kept < levels:
        answer = f"It fails: {levels - kept:,} of {levels:,} promises were not kept"
    else:
        soonest = min((value.value for value in first.values() if value.count), default=np.nan)
        answer = (
            f"With {FEW} heads from step {number(soonest)} at the earliest ({'; '.join(speaking)})"
        )
        silent = [NAMES[name] for name in first if not first[name].count]
        answer += f"; silent on {listed(silent)}" if silent else ""
    note = f"{kept:,} of {levels:,} certified levels were reached in time. "
    note += "The forecast uses the parameters at one step."
    return conclude(answer, parts, numbers, cells, [note])


ROLES = {
    "easy": "mixture",
    "hard": "construction",
    "planted": "planted",
    "random": "random labels",
    "digits": "test",
}


def figures(results: Results) -> list[Figure]:
    shown = {name: results[name] for name in ROLES if name in results}

    def against_heads(variable: str):
        finite = {n: d[variable].where(np.isfinite(d[variable])) for n, d in shown.items()}
        finite = {n: d for n, d in finite.items() if bool(d.notnull().any())}
        return [
            over_seeds(ROLES[n], NAMES[n], "num_heads", d.transpose("num_heads", "seed"))
            for n, d in finite.items()
        ]

    one = results["curves"].isel(seed=0).sel(num_heads=FEW)
    curves = [line("measured", "measured", one["loss_step"].values, one["loss"].values)]
    for steps, losses in zip(one["curve_step"].values, one["curve_loss"].values, strict=True):
        known = np.isfinite(steps) & (steps > 0)
        if known.any():
            curves.append(
                line(
                    "ours",
                    f"proved at step {steps[np.isfinite(steps)][0]:,.0f}",
                    steps[known],
                    losses[known],
                )
            )
    ratios = [
        over_seeds(
            ROLES[n],
            NAMES[n],
            "num_heads",
            (d["promised"] / d["measured"]).transpose("num_heads", "seed"),
        )
        for n, d in shown.items()
        if bool(d["promised"].notnull().any())
    ]
    panels = (
        [Panel(f"{heads_text(FEW)} heads, easy mixture", STEP, TRAIN_LOSS, curves)]
        if len(curves) > 1
        else []
    )
    speak = [
        Panel(
            "Certified at the start",
            HEADS,
            Axis("certified fall of log loss", "nats"),
            against_heads("nats_start"),
        ),
        Panel(
            "Promised / needed", HEADS, Axis("steps to halve the loss", "ratio", log=True), ratios
        ),
    ]
    drawn = [
        Figure(
            "forecast-curves",
            "A run and what was proved about it in advance",
            "Train loss, and the loss that the forecast certifies from the parameters at a step; one seed.",
            panels,
        )
    ]
    heads = Figure(
        "forecast-heads",
        "What the forecast certifies",
        "@1: how far the log loss is certified to fall, at the start. @2: steps within which the loss is certified to "
        "halve over the steps it took, from the first certified step. Means and 95% intervals over seeds.",
        speak,
    )
    return [*(drawn if panels else []), *([heads] if speak[0].marks else [])]


STUDY = Study(
    name="forecast",
    title="The forecast",
    question="From which step on does theory say where a run will get, at the number of heads that people use?",
    claim="Theorem 1 needs thousands of heads before it says anything. Theorem F, ours, applies at any number, using "
    "the parameters at one step.",
    settings=[
        chosen(
            "statement",
            "Theorem F (docs/theory/forecast.md): half the loss, certified from one step",
        ),
        chosen("start", f"{tasks.FIRST_PHASE}; for comparison: {tasks.UNIT_GAUSSIAN}"),
        chosen("easy mixture", tasks.describe(EASY)),
        chosen("hard mixture (full)", tasks.describe(HARD)),
        chosen("planted labels (full)", tasks.describe(PLANTED)),
        chosen("random labels (full)", tasks.describe(tasks.RANDOM_LABELS)),
        chosen(
            "ten random labels (full)",
            f"{tasks.describe(FEW_LABELS)}; W of scale 10, U of scale 0.1",
        ),
        chosen("digits (full)", "3 against 8, 16 patches of dimension 4; 100 images"),
        chosen(
            "descent", f"step size 0.5 (easy), 0.1 (ten random labels), 0.2 (others), {STEPS} steps"
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="theory",
    order=1,
    in_story=True,
    seconds=10,
)
