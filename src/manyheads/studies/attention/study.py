"""What do the heads look at?"""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, tenth
from manyheads.studies.kit.figure import FOCUS, STEP, Axis, Figure, MapPanel, Panel, by_start, over_seeds, rule
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.tasks import STARTS
from manyheads.studies.kit.words import choose, choose_all
from manyheads.sweeps.spec import Sweep

DATA = {**tasks.MIXTURE, "num_examples": 80, "num_test": 0}
SPARSITY, NUM_HEADS, STEP_SIZE = DATA["sparsity"], 8, 0.2
STEPS = Scaled(1000, 10_000)


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
    return grids("attention", scale, look=look)


def finding(results: Results) -> Finding:
    numbers, data = Numbers(), results["look"]
    last = data["focus"].isel(record=-1)
    gained = last - data["focus"].isel(record=tenth(data["step"].values))
    alignment, focus, growth = data["mean_alignment"].isel(map=-1), {}, {}
    for kind, (_, label) in STARTS.items():
        focus[label] = mean(last.sel(start=kind))
        growth[label] = mean(gained.sel(start=kind))
        numbers.add(f"focus.{kind}", f"attention on relevant tokens at the end, {label}", focus[label])
        numbers.add(f"focus_gain.{kind}", f"the same, gained over the last tenfold steps, {label}", growth[label])
        numbers.add(f"alignment.{kind}", f"alignment with W_* at the end, {label}", mean(alignment.sel(start=kind)))
        spread = mean(data["spread"].sel(start=kind))
        numbers.add(f"spread.{kind}", f"largest minus smallest attention of a head, {label}", spread)
    plus, minus = (data["mass"].sel(start="first_phase").isel(record=-1, sign=sign) for sign in (0, 1))
    difference = numbers.add(
        "sign_difference", "attention of + heads minus that of - heads, first-phase start", mean(plus - minus)
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
        growth.values(), above="more and more", below="but less and less", undecided=no_trend, missing=no_trend
    )
    answer = choose_all(
        focus.values(),
        at=SPARSITY,
        above=f"At the relevant tokens, {trend}",
        below="Away from the relevant tokens",
        mixed="It depends on the start",
        undecided="Undecided: from some starts attention does not clearly differ from uniform",
    )
    return conclude(answer, sentences, numbers, [last])


def figures(results: Results) -> list[Figure]:
    data = results["look"]
    later = data.isel(record=data["step"].values > 0)
    uniform = rule("reference", "uniform attention", SPARSITY)
    by_sign = [
        over_seeds(role, label, "step", later["mass"].sel(start="first_phase").isel(sign=sign))
        for sign, (role, label) in enumerate((("plus", "heads with sign +"), ("minus", "heads with sign -")))
    ]
    return [
        Figure(
            "attention-mass",
            "Attention on the relevant tokens over time",
            f"Focus: mean attention on relevant tokens, of {NUM_HEADS} heads. @1: all heads. @2: the two kinds of "
            "heads that the first phase makes. Means and 95% intervals over seeds.",
            [
                Panel("All heads", STEP, FOCUS, [*by_start("step", later["focus"]), uniform]),
                Panel("First-phase start, by sign", STEP, FOCUS, [*by_sign, uniform]),
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
    order=5,
    in_story=True,
)
