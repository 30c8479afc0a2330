"""Does another optimizer find what plain descent does not?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies import palette, tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, ratio
from manyheads.studies.figure import Axis, Figure, Mark, Panel, line, over_seeds, rule
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.optimizers:ladder"
NAMES = {"gd": "plain descent", "normalized": "normalized descent", "polyak": "Polyak's step", "adam": "Adam"}
LADDERS = {
    "gd": [0.25, 1.0, 4.0, 16.0],
    "normalized": [0.01, 0.04, 0.16, 0.64],
    "polyak": [1.0, 16.0, 256.0, 4096.0],  # largest step size allowed
    "adam": [0.004, 0.016, 0.064, 0.256],
}
STEPS = {
    "gd": ("step size", "factor of the gradient"),
    "normalized": ("step size", "length of a step"),
    "polyak": ("largest step size", "factor of the gradient"),
    "adam": ("step size", "move of a weight"),
}
REACHED = 0.9  # of the best attention margin
FLOOR = 1e-12  # losses below are not drawn
UNSEEN = Estimate(np.nan, np.nan, np.nan, 0)
SCALE = "readout"


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    return {
        name: grid(
            name=f"optimizers-{name}",
            data={**tasks.HARD_MIXTURE, "num_examples": 60 if quick else 100, "num_test": 0},
            start={"kind": "first_phase"},
            train={"optimizer": name, "num_steps": 300 if quick else 2000},
            axes={"model.num_heads": [2, 64] if quick else [2, 16, 64, 1024]},
            seeds=4 if quick else 6,
            cell=CELL,
            parameters={"step_sizes": steps},
        )
        for name, steps in LADDERS.items()
    }


def finding(results: Results) -> Finding:
    heads = next(iter(results.values()))["num_heads"].values
    numbers: dict[str, Estimate] = {}
    reach, miss, depends = [], [], []
    for name, data in results.items():
        shares = [mean(_best(data, h, "margin").isel(record=-1) / data["attention"].sel(num_heads=h)) for h in heads]
        numbers |= {
            f"margin / best attention margin, {NAMES[name]}, H = {heads_text(h)}": share
            for h, share in zip(heads, shares, strict=True)
        }
        if all(share.above(REACHED) for share in shares):
            reach.append(NAMES[name])
        if all(share.below(REACHED) for share in shares):
            miss.append(NAMES[name])
        if any(share.above(REACHED) for share in shares) and any(share.below(REACHED) for share in shares):
            depends.append(NAMES[name])
    share_of_best = f"{REACHED:.0%} of the best attention margin"
    if reach and miss:
        fail = "does not" if len(miss) == 1 else "do not"
        answer = f"Yes: {_list(reach)} {_verb(reach)} {share_of_best}, {_list(miss)} {fail}"
    elif reach:
        answer = f"{_list(reach)} {_verb(reach)} {share_of_best} at every H"
    elif len(miss) == len(results):
        answer = f"No: no optimizer reaches {share_of_best}"
    elif depends:
        answer = f"It depends on the number of heads whether {_list(depends)} {_verb(depends)} {share_of_best}"
    elif all(share.count == 0 for share in numbers.values()):
        answer = "Not measured"
    else:
        answer = f"Undecided at this number of seeds who reaches {share_of_best} at every H"
    steps = int(next(iter(results.values()))["step"].max())
    few, many = min(heads), max(heads)
    parts = [
        f"{NAMES[name]} {number(numbers[_key(name, few)].value)} with {heads_text(few)} heads and "
        f"{numbers[_key(name, many)]} with {heads_text(many)}"
        for name in results
    ]
    sentence = f"Share of the best attention margin after {number(steps)} steps, each optimizer at its best step size: "
    sentence += "; ".join(parts) + "."
    focus = {n: mean(_best(data, many, "focus").isel(record=-1)) for n, data in results.items()}
    if seen := [n for n in focus if focus[n].count]:
        most = max(seen, key=lambda n: focus[n].value)
        sentence += f" With {heads_text(many)} heads {NAMES[most]} looks most at the relevant tokens, {focus[most]}."
    if gone := lacking(*(data["attention"] for data in results.values())):
        sentence += f" {gone}"
    numbers |= {f"focus, {NAMES[n]}, H = {heads_text(many)}": value for n, value in focus.items()}
    note = "The best step size is the one of the four tried with the largest mean margin, chosen after the runs."
    return Finding(answer[0].upper() + answer[1:], sentence, numbers, (note,))


def _key(name: str, heads: float) -> str:
    return f"margin / best attention margin, {NAMES[name]}, H = {heads_text(heads)}"


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: list[str]) -> str:
    return "reaches" if len(names) == 1 else "reach"


def _rung(data: xarray.Dataset, heads: float) -> int:
    """The step size with the largest mean margin at the end; one that failed for a seed does not count.

    Seeds whose run is missing are left out.
    """
    last = data["margin"].sel(num_heads=heads).isel(record=-1).transpose("rung", "seed").values
    last = last[:, data["attention"].sel(num_heads=heads).notnull().values]
    means = [row.mean() if len(row) and np.isfinite(row).all() else -np.inf for row in last]
    return int(np.argmax(means))


def _best(data: xarray.Dataset, heads: float, variable: str) -> xarray.DataArray:
    return data[variable].sel(num_heads=heads).isel(rung=_rung(data, heads))


def _over_time(results: Results, heads: float, variable: str, scale: str = "") -> list[Mark]:
    marks = []
    for name, data in results.items():
        values = _best(data, heads, variable).transpose("record", "seed").values[1:]
        if variable == "train_loss":
            drawn = [e if e.value > FLOOR else UNSEEN for e in (ratio(row, np.ones_like(row)) for row in values)]
            y, low, high = ([getattr(e, side) for e in drawn] for side in ("value", "low", "high"))
            marks.append(line(name, _sentence(name), data["step"].values[1:], y, low, high))
        else:
            marks.append(over_seeds(name, _sentence(name), data["step"].values[1:], values, scale))
    return marks


def _sentence(name: str) -> str:
    return NAMES[name][0].upper() + NAMES[name][1:]


def figures(results: Results) -> list[Figure]:
    first = next(iter(results.values()))
    heads = first["num_heads"].values
    many = max(heads)
    best, linear = float(first["attention"].mean()), float(first["linear"].mean())
    margin = Axis("margin", "per unit of readout norm", scale=SCALE)
    step = Axis("step", "steps", log=True)
    limits = [rule("attention", "best attention", best, SCALE), rule("linear", "best linear", linear, SCALE)]
    time = [
        Panel("Loss", step, Axis("train loss", "nats", log=True), _over_time(results, many, "train_loss")),
        Panel("Margin", step, margin, [*_over_time(results, many, "margin", SCALE), *limits]),
        Panel("Focus", step, Axis("attention on relevant tokens", "share"), _over_time(results, many, "focus")),
    ]
    caption = (
        f"{heads_text(many)} heads, each optimizer at the step size with the largest final margin. Means over seeds "
    )
    caption += f"with 95% intervals (loss: geometric mean, not drawn below {FLOOR:g})."
    by_step = []
    for name, data in results.items():
        marks = [
            over_seeds(
                palette.heads(h),
                f"{heads_text(h)} heads",
                data["step_size_tried"].values,
                data["margin"].sel(num_heads=h).isel(record=-1).transpose("rung", "seed").values,
                SCALE,
            )
            for h in heads
        ]
        by_step.append(Panel(_sentence(name), Axis(*STEPS[name], log=True), margin, [*marks, *limits]))
    chosen_step = "Final margin at every step size tried, which means something else for each optimizer: see the axes. "
    chosen_step += "Means and 95% intervals over seeds."
    return [
        Figure("optimizers-time", "Four optimizers at equal steps", caption, time),
        Figure("optimizers-step", "What the step size does", chosen_step, by_step),
    ]


STUDY = Study(
    name="optimizers",
    title="Optimizers",
    question="Does another optimizer find what plain descent does not?",
    claim="The paper analyzes plain gradient descent, and asks whether it finds weights with the attention margin.",
    settings=[
        stated("descent", "full batch, logistic loss"),
        stated("start", "first phase: one step from zero on fresh data, heads with signs +1 and -1"),
        chosen(
            "optimizers",
            "plain, normalized (unit gradient), Polyak (loss over squared gradient norm), Adam (0.9, 0.999)",
        ),
        chosen("step sizes", "four per optimizer, a factor 4 apart (16 for Polyak's largest step)"),
        chosen("data", tasks.HARD_TEXT),
        chosen("steps", "300 (quick) or 2,000 (full)"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
