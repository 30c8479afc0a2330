"""Which start is better at an equal number of heads?"""

from __future__ import annotations

import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, mean, number, ratio
from manyheads.studies.kit.figure import FOCUS, STEP, TANGENT_MARGIN, TRAIN_LOSS, Axis, Figure, Panel, over_seeds
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import capital, heads_text, listed
from manyheads.sweeps.spec import Sweep

STARTS = {
    "zero": ("zero", "zero", {"kind": "zero"}),
    "first_phase": ("first phase", "first phase", {"kind": "first_phase"}),
    "drawn": ("first phase, drawn", "drawn α", {"kind": "first_phase", "signs": "uniform"}),
    "gaussian": ("gaussian", "Gaussian", {"kind": "gaussian"}),
}
LABELS = {name: label for name, (_, label, _) in STARTS.items()}
DATA = {**tasks.MIXTURE, "num_examples": Scaled(60, 80), "num_test": 200}
STEP_SIZE, STEPS = 0.5, Scaled(200, 2000)
ALIKE = 1.15  # losses closer than this factor count as alike


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "data": DATA,
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
        "axes": {"model.num_heads": Scaled([4, 16], [2, 4, 16, 32])},
        "seeds": Scaled(4, 6),
        "cell": "manyheads.studies.initialization.cells:look",
    }
    made = {
        name: {**common, "start": start, "parameters": {"card": capital(label)}}
        for name, (_, label, start) in STARTS.items()
    }
    return grids("initialization", scale, **made)


def finding(results: Results) -> Finding:
    numbers, many = Numbers(), float(results["zero"]["num_heads"].max())
    last = {name: data.isel(record=-1).sel(num_heads=many) for name, data in results.items()}
    last = {name: data for name, data in last.items() if bool(data["train_loss"].notnull().any())}
    cells = [data["train_loss"].isel(record=-1) for data in results.values()]
    if len(last) < 2:
        nothing = conclude("Not measured", [], numbers, cells)
        return nothing if nothing.text else Finding("Not measured", "There are no two starts to compare.")
    quantities = {
        "distinct": "distinct heads",
        "b2": "P1, largest norm of a head",
        "b_phi": "P2, largest score",
        "p3_margin": "P3, tangent margin",
        "train_loss": "train loss at the end",
        "test_loss": "test loss at the end",
        "focus": "focus at the end",
        "margin": "margin at the end",
    }
    measured: dict[str, dict[str, Estimate]] = {
        variable: {
            name: numbers.add(
                f"{variable}.{name}", f"{caption}, {LABELS[name]}, H = {heads_text(many)}", mean(data[variable])
            )
            for name, data in last.items()
        }
        for variable, caption in quantities.items()
    }
    order = sorted(last, key=lambda name: float(last[name]["train_loss"].mean()))
    best, *others = order
    factors = {
        name: numbers.add(
            f"loss_ratio.{name}",
            f"train loss, {LABELS[name]} / {LABELS[best]}, H = {heads_text(many)}",
            ratio(last[name]["train_loss"], last[best]["train_loss"]),
        )
        for name in others
    }
    undecided = [LABELS[name] for name in order if name not in factors or not factors[name].above(1)]
    if all(factor.below(ALIKE) for factor in factors.values()):
        answer = f"They train alike, within {100 * (max(f.value for f in factors.values()) - 1):.0f}%"
    elif len(undecided) == 1:
        answer = f"The {LABELS[best]} start trains fastest"
    else:
        answer = f"No clear winner among {listed(undecided)}"
    counts = ", ".join(f"{LABELS[name]} {int(data['distinct'].max())}" for name, data in last.items())
    answer += f"; different heads out of {heads_text(many)}: {counts}"
    margins, focus = measured["p3_margin"], measured["focus"]
    widest, sharpest = (max(estimates, key=lambda n, e=estimates: e[n].value) for estimates in (margins, focus))
    rest = ", ".join(f"{number(e.value)} ({LABELS[n]})" for n, e in margins.items() if n != widest)
    steps = number(int(next(iter(results.values()))["step"].max()))
    sentences = [
        f"With {heads_text(many)} heads the train loss after {steps} steps is least from the {LABELS[best]} start; "
        f"from the {LABELS[order[-1]]} start it is {factors[order[-1]]} times as large.",
        f"The tangent margin (P3) is largest from the {LABELS[widest]} start, {margins[widest]}, against {rest}.",
        f"Most attention ends on the relevant tokens from the {LABELS[sharpest]} start, {focus[sharpest]}.",
    ]
    note = (
        "Heads that start equal get equal gradients and stay equal, whatever the data: this is so by construction "
        "(they are stored as one), and was not measured. H then only scales the steps."
    )
    return conclude(answer, sentences, numbers, cells, [note])


def figures(results: Results) -> list[Figure]:
    many = float(results["zero"]["num_heads"].max())
    names = [heads_text(h) for h in sorted(results["zero"]["num_heads"].values.tolist())]
    count, margin = Axis("heads", "count"), Axis("margin", "per unit of readout moved", scale="moved")

    def over_time(variable: str, scale: str = ""):
        at = {n: data[variable].sel(num_heads=many).isel(record=slice(1, None)) for n, data in results.items()}
        return [over_seeds(role, label, "step", at[n], scale) for n, (role, label, _) in STARTS.items()]

    def by_heads(variable: str, scale: str = ""):
        values: dict[str, xarray.DataArray] = {n: data[variable] for n, data in results.items()}
        return [
            over_seeds(role, label, names, values[n].transpose("num_heads", "seed"), scale, kind="bars")
            for n, (role, label, _) in STARTS.items()
        ]

    return [
        Figure(
            "initialization-properties",
            "Four starts before training",
            "How many heads are really different, and Definition 1 as measured, at equal numbers of heads. Means and "
            "95% intervals over seeds; the tangent margins are proved lower ends.",
            [
                Panel("Different heads", count, Axis("different heads", "count", log=True), by_heads("distinct")),
                Panel("P1: largest norm of a head", count, Axis("B₂", "norm"), by_heads("b2")),
                Panel("P2: largest score", count, Axis("B_Φ", "score"), by_heads("b_phi")),
                Panel("P3: margin of the tangent kernel", count, TANGENT_MARGIN, by_heads("p3_margin", "P3")),
            ],
        ),
        Figure(
            "initialization-time",
            "Four starts in training",
            f"{heads_text(many)} heads, step size {STEP_SIZE:g}. Means and 95% intervals over seeds.",
            [
                Panel("Train loss", STEP, TRAIN_LOSS, over_time("train_loss")),
                Panel("Margin", STEP, margin, over_time("margin", "moved")),
                Panel("Focus", STEP, FOCUS, over_time("focus")),
            ],
        ),
    ]


STUDY = Study(
    name="initialization",
    title="Initialization",
    question="Which start is better at an equal number of heads?",
    claim="Definition 1 asks for bounded heads (P1), bounded scores (P2) and a margin in the tangent kernel (P3); the "
    "first phase, one randomized step from zero, has all three on the mixture (Proposition 2).",
    settings=[
        stated("first phase", "one step from zero on fresh data, step α_h√H, α_h = +1 or -1"),
        chosen("signs", "balanced; 'drawn α' has α_h uniform on [-1, 1] instead, so that all heads differ"),
        chosen("Gaussian start", tasks.UNIT_GAUSSIAN),
        chosen("data", f"{tasks.describe(DATA)}, 200 of the first phase"),
        chosen("descent", f"step size {STEP_SIZE:g}, {STEPS} steps"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=4,
)
