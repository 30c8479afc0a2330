"""What do the heads look at?"""

from __future__ import annotations

import numpy as np

from manyheads.studies import tasks
from manyheads.studies.estimate import Estimate, lacking, mean, number
from manyheads.studies.figure import Axis, Figure, MapPanel, Panel, over_seeds, rule
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.attention:look"
STARTS = {
    "zero": ("zero", "zero start"),
    "first_phase": ("first phase", "first-phase start"),
    "gaussian": ("gaussian", "Gaussian start"),
}
SPARSITY = tasks.MIXTURE["sparsity"]


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    steps = 1000 if quick else 10_000
    return {
        "look": grid(
            name="attention-look",
            data={**tasks.MIXTURE, "num_examples": 80, "num_test": 0},
            train={"step_size": 0.2, "num_steps": steps},
            axes={"start.kind": list(STARTS)},
            model={"num_heads": 8},
            seeds=3 if quick else 8,
            cell=CELL,
            parameters={"map_steps": [30, steps // 5]},
        )
    }


def finding(results: Results) -> Finding:
    data = results["look"]
    last = data["focus"].isel(record=-1)
    gained = last - data["focus"].isel(record=_tenth(data["step"].values))
    numbers: dict[str, Estimate] = {}
    for kind, (_, label) in STARTS.items():
        numbers[f"attention on relevant tokens at the end, {label}"] = mean(last.sel(start=kind))
        numbers[f"the same, gained over the last tenfold steps, {label}"] = mean(gained.sel(start=kind))
        numbers[f"alignment with W_* at the end, {label}"] = mean(data["mean_alignment"].sel(start=kind).isel(map=-1))
        numbers[f"largest minus smallest attention of a head, {label}"] = mean(data["spread"].sel(start=kind))
    signs = data["mass"].sel(start="first_phase").isel(record=-1)
    difference = mean(signs.isel(sign=0) - signs.isel(sign=1))
    numbers["attention of + heads minus that of - heads, first-phase start"] = difference
    focus = [numbers[f"attention on relevant tokens at the end, {label}"] for _, label in STARTS.values()]
    alignment = numbers["alignment with W_* at the end, first-phase start"]
    classes = number(float(data["classes"].sel(start="first_phase").max()))
    growth = [numbers[f"the same, gained over the last tenfold steps, {label}"] for _, label in STARTS.values()]
    if difference.count == 0:
        split = "how the two signs differ was not measured"
    elif difference.above(0):
        split = f"heads that started with sign + look there more than those with - (difference {difference})"
    elif difference.below(0):
        split = f"heads that started with sign - look there more than those with + (difference {difference})"
    else:
        split = f"heads of both signs do not clearly differ in it (difference {difference})"
    shares = ", ".join(
        f"{number(e.value)} from the {label}" for e, (_, label) in zip(focus, STARTS.values(), strict=True)
    )
    sentence = (
        f"Uniform attention would put {SPARSITY:g} on the relevant tokens; after training 8 heads put {shares}. "
        f"{_trend(growth)} From the first phase there are {classes} distinct heads among 8, and {split}. "
        f"Their key-query weights have a cosine of {alignment} with the paper's W_*, in absolute value."
    )
    if gone := lacking(last):
        sentence += f" {gone}"
    return Finding(_answer(focus, growth), sentence, numbers)


def _tenth(steps: np.ndarray) -> int:
    """Where the record nearest to a tenth of the last step is."""
    return int(np.argmin(np.abs(np.log(np.maximum(steps, 1)) - np.log(steps[-1] / 10))))


def _answer(focus: list[Estimate], growth: list[Estimate]) -> str:
    """Where the heads look at the end, and whether that still moved over the last tenfold steps."""
    if all(e.count == 0 for e in focus):
        return "Not measured"
    if all(e.above(SPARSITY) for e in focus):
        if all(e.above(0) for e in growth):
            return "At the relevant tokens, more and more"
        if all(e.below(0) for e in growth):
            return "At the relevant tokens, but less and less"
        return "At the relevant tokens, without a clear further trend from every start"
    if all(e.below(SPARSITY) for e in focus):
        return "Away from the relevant tokens"
    if all(e.above(SPARSITY) or e.below(SPARSITY) for e in focus):
        return "It depends on the start"
    return "Undecided: not from every start does attention clearly differ from uniform"


def _trend(growth: list[Estimate]) -> str:
    each = ", ".join(f"{e} from the {label}" for e, (_, label) in zip(growth, STARTS.values(), strict=True))
    return f"Over the last tenfold steps that changed by {each}."


def figures(results: Results) -> list[Figure]:
    data = results["look"]
    steps = data["step"].values
    keep = steps > 0
    mass = Axis("focus", "share of attention")
    over_time = []
    for kind, (role, label) in STARTS.items():
        values = data["focus"].sel(start=kind).transpose("record", "seed").values
        over_time.append(over_seeds(role, label, steps[keep], values[keep]))
    over_time.append(rule("reference", "uniform attention", SPARSITY))
    by_sign = []
    for sign, (role, label) in enumerate((("plus", "heads with sign +"), ("minus", "heads with sign -"))):
        values = data["mass"].sel(start="first_phase").isel(sign=sign).transpose("record", "seed").values
        by_sign.append(over_seeds(role, label, steps[keep], values[keep]))
    by_sign.append(rule("reference", "uniform attention", SPARSITY))
    step = Axis("step", "steps", log=True)
    return [
        Figure(
            "attention-mass",
            "Attention on the relevant tokens over time",
            "Focus: mean attention on relevant tokens, of 8 heads; right, the two kinds of heads that the first phase "
            "makes. Means and 95% intervals over seeds.",
            [Panel("All heads", step, mass, over_time), Panel("First-phase start, by sign", step, mass, by_sign)],
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
        "(positions 1 and 2). Top: heads that started with sign +; bottom: with sign -.",
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
        stated("descent", "full batch, constant step size, logistic loss"),
        chosen("data", tasks.MIXTURE_TEXT + "; 80 sequences"),
        chosen("heads", "8"),
        chosen("Gaussian start", "E|W_h|^2 = E|U_h|^2 = 1"),
        chosen("step size", "0.2"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
