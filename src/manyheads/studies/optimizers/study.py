"""Does another optimizer find what plain descent does not?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number
from manyheads.studies.kit.figure import (
    FOCUS,
    STEP,
    TRAIN_LOSS,
    Axis,
    Figure,
    Mark,
    Panel,
    by_heads,
    over_seeds,
    rule,
)
from manyheads.studies.kit.selection import at_end, held_out, taken
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
from manyheads.studies.kit.words import MISSING, capital, choose, heads_text, listed, setting
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.optimizers.cells:ladder"
NAMES = {
    "gd": "plain descent",
    "normalized": "normalized descent",
    "polyak": "Polyak's step",
    "adam": "Adam",
}
LADDERS = {
    "gd": [0.25, 1.0, 4.0, 16.0, 64.0, 256.0],
    "normalized": [0.01, 0.04, 0.16, 0.64],
    "polyak": [1.0, 16.0, 256.0, 4096.0],  # largest step size allowed
    "adam": [0.004, 0.016, 0.064, 0.256],
}
STEP_AXES = {
    "gd": Axis("step size", "factor of the gradient", log=True),
    "normalized": Axis("step size", "length of a step", log=True),
    "polyak": Axis("largest step size", "factor of the gradient", log=True),
    "adam": Axis("step size", "move of a weight", log=True),
}
SIZES = Scaled(60, 100)
DATA = {**tasks.HARD_MIXTURE, "num_examples": SIZES, "num_test": 0}
STEPS = Scaled(300, 2000)
REACHED = 0.9  # of the best attention margin
FLOOR = 1e-12  # losses below are not drawn
SCALE = "readout"


def sweeps(scale: str) -> dict[str, Sweep]:
    made = {
        name: {
            "data": DATA,
            "start": {"kind": "first_phase"},
            "train": {"optimizer": name, "num_steps": STEPS},
            "axes": {"model.num_heads": Scaled([2, 64], [2, 16, 64, 1024])},
            "seeds": Scaled(4, 6),
            "cell": CELL,
            "parameters": {"step_sizes": steps},
        }
        for name, steps in LADDERS.items()
    }
    return grids("optimizers", scale, **made)


def finding(results: Results) -> Finding:
    numbers, first = Numbers(), next(iter(results.values()))
    heads, steps = first["num_heads"].values, int(first["step"].max())
    few, many = min(heads), max(heads)
    said: dict[str, set[str]] = {}
    open_ends: list[str] = []
    parts, focus = {many: [], few: []}, {}
    for name, data in results.items():
        shares = {
            h: numbers.add(
                f"share.{name}.{h:g}",
                f"margin / best attention margin, {NAMES[name]}, H = {heads_text(h)}",
                mean(_best(data, h, "margin")[:, -1] / data["attention"].sel(num_heads=h).values),
            )
            for h in heads
        }
        said[name] = {
            choose(e, at=REACHED, above="reach", below="miss", undecided="")
            for e in shares.values()
        }
        for h in (many, few):
            parts[h].append(f"{NAMES[name]} {shares[h]}")
            if at_end(_last(data, h)):
                open_ends.append(f"{NAMES[name]} with {heads_text(h)} heads")
        focus[name] = mean(_best(data, many, "focus")[:, -1])
        numbers.add(f"focus.{name}", f"focus, {NAMES[name]}, H = {heads_text(many)}", focus[name])
    sentences = [
        f"With {heads_text(many)} heads and its best step size each optimizer has this share of the best attention "
        f"margin after {number(steps)} steps: {', '.join(parts[many])}.",
        f"With {heads_text(few)} heads: {', '.join(parts[few])}.",
    ]
    if seen := [n for n in focus if focus[n].count]:
        most = max(seen, key=lambda n: focus[n].value)
        looks = f"With {heads_text(many)} heads {NAMES[most]} attends most to the relevant tokens, {focus[most]}."
        sentences.insert(1, looks)
    if open_ends:
        ends = f"No best step size was found for {listed(open_ends)}: the best one tried is at an end of its ladder, so "
        sentences.insert(
            2, f"{ends}its share is a lower bound of what a better step size would reach."
        )
    note = "The best step size has the largest final margin; for every seed it is the one that the other seeds choose."
    cells = [data["attention"] for data in results.values()]
    where = ["hard mixture", f"{SIZES.quick if steps == STEPS.quick else SIZES.full} sequences"]
    where += [
        "first-phase start",
        f"{heads_text(few)} to {heads_text(many)} heads",
        f"{steps:,} steps",
    ]
    return conclude(setting(_answer(said), *where), sentences, numbers, cells, [note])


def _answer(said: dict[str, set[str]]) -> str:
    """Which optimizers reach the margin at every H, at none, and at some."""
    reach, miss = (
        [NAMES[name] for name, words in said.items() if words == {word}]
        for word in ("reach", "miss")
    )
    depends = [NAMES[name] for name, words in said.items() if {"reach", "miss"} <= words]
    goal = f"{REACHED:.0%} of the best attention margin"

    def who(names: list[str]) -> str:
        return f"{listed(names)} {'reaches' if len(names) == 1 else 'reach'} {goal}"

    if reach and miss:
        rest = [
            f"{listed(miss)} {'does' if len(miss) == 1 else 'do'} not at any H and step size tried"
        ]
        rest += [f"{listed(depends)} at some H"] if depends else []
        return f"Yes: {who(reach)}, {', '.join(rest)}"
    if reach:
        return f"{who(reach)} at every H"
    if len(miss) == len(said):
        return f"No: no optimizer reaches {goal}"
    if depends:
        return f"It depends on the number of heads whether {who(depends)}"
    measured = any(words != {"not measured"} for words in said.values())
    return (
        f"Undecided at this number of seeds which reach {goal} at every H" if measured else MISSING
    )


def _last(data: xarray.Dataset, heads: float) -> np.ndarray:
    """The final margin at every step size (rows) for every seed (columns)."""
    return data["margin"].sel(num_heads=heads).isel(record=-1).transpose("rung", "seed").values


def _best(data: xarray.Dataset, heads: float, variable: str) -> np.ndarray:
    """A variable over time for every seed, at the step size with the largest final margin of the other seeds."""
    curves = data[variable].sel(num_heads=heads).transpose("rung", "seed", "record").values
    return taken(curves, held_out(_last(data, heads)))


def figures(results: Results) -> list[Figure]:
    first = next(iter(results.values()))
    many = max(first["num_heads"].values)
    margin = Axis("margin", "per unit of readout norm", scale=SCALE)
    limits = [
        rule("attention", "best attention", float(first["attention"].mean()), SCALE),
        rule("linear", "best linear", float(first["linear"].mean()), SCALE),
    ]

    def over_time(variable: str, scale: str = "", **options) -> list[Mark]:
        best = {n: _best(data, many, variable)[:, 1:].T for n, data in results.items()}
        steps = {n: data["step"].values[1:] for n, data in results.items()}
        return [
            over_seeds(n, capital(NAMES[n]), steps[n], values, scale, **options)
            for n, values in best.items()
        ]

    return [
        Figure(
            "optimizers-time",
            "Four optimizers at equal steps",
            f"{heads_text(many)} heads, each optimizer at the step size with the largest final margin of the other "
            f"seeds. Means over seeds with 95% intervals (loss: geometric mean, not drawn below {FLOOR:g}).",
            [
                Panel("Loss", STEP, TRAIN_LOSS, over_time("train_loss", log=True, floor=FLOOR)),
                Panel("Margin", STEP, margin, [*over_time("margin", SCALE), *limits]),
                Panel("Focus", STEP, FOCUS, over_time("focus")),
            ],
        ),
        Figure(
            "optimizers-step",
            "What the step size does",
            "Final margin at every step size tried; its meaning differs between optimizers, see the axes. "
            "Means and 95% intervals over seeds.",
            [
                Panel(
                    capital(NAMES[name]),
                    STEP_AXES[name],
                    margin,
                    [*by_heads("step_size_tried", data["margin"].isel(record=-1), SCALE), *limits],
                )
                for name, data in results.items()
            ],
        ),
    ]


STUDY = Study(
    name="optimizers",
    title="Optimizers",
    question="Does another optimizer find what plain descent does not?",
    claim="The paper analyzes plain gradient descent, and asks whether it finds weights with the attention margin.",
    settings=[
        stated("descent", "full batch, logistic loss"),
        stated("start", tasks.FIRST_PHASE),
        chosen(
            "optimizers",
            "plain, normalized (unit gradient), Polyak (loss over squared gradient norm), Adam (0.9, 0.999)",
        ),
        chosen(
            "step sizes",
            "; ".join(
                f"{NAMES[n]} {', '.join(f'{s:g}' for s in steps)}" for n, steps in LADDERS.items()
            ),
        ),
        chosen("data", tasks.describe(DATA)),
        chosen("steps", STEPS),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="attention",
    order=4,
)
