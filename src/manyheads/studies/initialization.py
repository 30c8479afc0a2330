"""Which start is better at an equal number of heads?"""

from __future__ import annotations

import xarray

from manyheads.studies import tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, ratio
from manyheads.studies.figure import Axis, Figure, Panel, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.initialization:look"
STARTS = {
    "zero": ("zero", "zero", {"kind": "zero"}),
    "first_phase": ("first phase", "first phase", {"kind": "first_phase"}),
    "drawn": ("first phase, drawn", "drawn α", {"kind": "first_phase", "signs": "uniform"}),
    "gaussian": ("gaussian", "Gaussian", {"kind": "gaussian"}),
}
ALIKE = 1.15  # losses closer than this factor count as alike


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    return {
        name: grid(
            name=f"initialization-{name}",
            data={**tasks.MIXTURE, "num_examples": 60 if quick else 80, "num_test": 200},
            start=start,
            train={"step_size": 0.5, "num_steps": 200 if quick else 2000},
            axes={"model.num_heads": [4, 16] if quick else [2, 4, 16, 32]},
            seeds=4 if quick else 6,
            cell=CELL,
            parameters={"card": label[0].upper() + label[1:]},
        )
        for name, (_, label, start) in STARTS.items()
    }


def finding(results: Results) -> Finding:
    many = float(results["zero"]["num_heads"].max())
    everything = {name: data.sel(num_heads=many) for name, data in results.items()}
    at = {name: data for name, data in everything.items() if bool(_last(data, "train_loss").notnull().any())}
    gone = lacking(*(_last(data, "train_loss") for data in results.values()))
    if len(at) < 2:
        return Finding("Not measured", gone or "There are no two starts to compare.")
    numbers: dict[str, Estimate] = {}
    for name, data in at.items():
        label = f"{STARTS[name][1]}, H = {heads_text(many)}"
        numbers |= {
            f"distinct heads, {label}": mean(data["distinct"]),
            f"P1, largest norm of a head, {label}": mean(data["b2"]),
            f"P2, largest score, {label}": mean(data["b_phi"]),
            f"P3, tangent margin, {label}": mean(data["p3_margin"]),
            f"train loss at the end, {label}": mean(_last(data, "train_loss")),
            f"test loss at the end, {label}": mean(_last(data, "test_loss")),
            f"focus at the end, {label}": mean(_last(data, "focus")),
            f"margin at the end, {label}": mean(_last(data, "margin")),
        }
    order = sorted(at, key=lambda name: float(_last(at[name], "train_loss").mean()))
    factors = {name: ratio(_last(at[name], "train_loss"), _last(at[order[0]], "train_loss")) for name in order[1:]}
    numbers |= {
        f"train loss, {STARTS[n][1]} / {STARTS[order[0]][1]}, H = {heads_text(many)}": f for n, f in factors.items()
    }
    beaten = [n for n, f in factors.items() if f.above(1)]
    distinct = {name: int(data["distinct"].max()) for name, data in at.items()}
    counts = ", ".join(f"{STARTS[n][1]} {count}" for n, count in distinct.items())
    largest = max(factors.values(), key=lambda f: f.value)
    if all(f.below(ALIKE) for f in factors.values()):
        answer = f"They train alike, within {100 * (largest.value - 1):.0f}%"
    elif len(beaten) == len(factors):
        answer = f"The {STARTS[order[0]][1]} start trains fastest"
    else:
        equal = [STARTS[n][1] for n in order if n not in beaten]
        answer = f"No clear winner among {', '.join(equal[:-1])} and {equal[-1]}"
    answer += f"; different heads out of {heads_text(many)}: {counts}"
    margins = {n: numbers[f"P3, tangent margin, {STARTS[n][1]}, H = {heads_text(many)}"] for n in at}
    widest = max(margins, key=lambda n: margins[n].value)
    slowest = order[-1]
    looks = {n: numbers[f"focus at the end, {STARTS[n][1]}, H = {heads_text(many)}"] for n in at}
    most = max(looks, key=lambda n: looks[n].value)
    steps = number(int(next(iter(at.values()))["step"].max()))
    sentence = (
        f"With {heads_text(many)} heads the train loss after {steps} steps is least from the {STARTS[order[0]][1]} "
        f"start; from the {STARTS[slowest][1]} start it is {factors[slowest]} times as large. The tangent margin (P3) "
        f"is largest from the {STARTS[widest][1]} start, {margins[widest]}, against {_others(margins, widest)}. Most "
        f"attention ends on the relevant tokens from the {STARTS[most][1]} start, {looks[most]}. {gone}"
    )
    note = (
        "Heads that start equal get equal gradients and stay equal, whatever the data: this is so by construction "
        "(they are stored as one), and was not measured. H then only scales the steps."
    )
    return Finding(answer, sentence.strip(), numbers, (note,))


def _others(estimates: dict[str, Estimate], but: str) -> str:
    return ", ".join(f"{number(e.value)} ({STARTS[n][1]})" for n, e in estimates.items() if n != but)


def _last(data: xarray.Dataset, variable: str) -> xarray.DataArray:
    return data[variable].isel(record=-1)


def figures(results: Results) -> list[Figure]:
    many = float(results["zero"]["num_heads"].max())
    at = {name: data.sel(num_heads=many) for name, data in results.items()}
    step = Axis("step", "steps", log=True)

    def over_time(variable: str, scale: str = ""):
        return [
            over_seeds(
                role, label, at[n]["step"].values[1:], at[n][variable].transpose("record", "seed").values[1:], scale
            )
            for n, (role, label, _) in STARTS.items()
        ]

    heads = sorted(results["zero"]["num_heads"].values.tolist())
    names = [heads_text(h) for h in heads]

    def by_heads(variable: str, scale: str = ""):
        return [
            over_seeds(
                role, label, names, results[n][variable].transpose("num_heads", "seed").values, scale, kind="bars"
            )
            for n, (role, label, _) in STARTS.items()
        ]

    count, margin = Axis("heads", "count"), Axis("margin", "per unit of readout moved", scale="moved")
    tangent = Axis("tangent margin", "direction of norm √2", scale="P3")
    properties = [
        Panel("Different heads", count, Axis("different heads", "count", log=True), by_heads("distinct")),
        Panel("P1: largest norm of a head", count, Axis("B₂", "norm"), by_heads("b2")),
        Panel("P2: largest score", count, Axis("B_Φ", "score"), by_heads("b_phi")),
        Panel("P3: margin of the tangent kernel", count, tangent, by_heads("p3_margin", "P3")),
    ]
    time = [
        Panel("Train loss", step, Axis("train loss", "nats", log=True), over_time("train_loss")),
        Panel("Margin", step, margin, over_time("margin", "moved")),
        Panel("Focus", step, Axis("attention on relevant tokens", "share"), over_time("focus")),
    ]
    return [
        Figure(
            "initialization-properties",
            "Four starts before training",
            "How many heads are really different, and Definition 1 as measured, at equal numbers of heads. Means and "
            "95% intervals over seeds; the tangent margins are proved lower ends.",
            properties,
        ),
        Figure(
            "initialization-time",
            "Four starts in training",
            f"{heads_text(many)} heads, step size 0.5. Means and 95% intervals over seeds.",
            time,
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
        chosen("Gaussian start", "a head's W and U have root mean square norm 1"),
        chosen("data", tasks.MIXTURE_TEXT + "; 60 sequences (quick) or 80 (full), 200 of the first phase"),
        chosen("descent", "step size 0.5, 200 steps (quick) or 2,000 (full)"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
