"""Does gradient descent reach the margin that attention makes possible?"""

from __future__ import annotations

import numpy as np

from manyheads.studies import palette, tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number
from manyheads.studies.figure import Axis, Figure, Panel, over_seeds, rule
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.margins:over_time"
STARTS = {"zero": ("zero", "zero start"), "first_phase": ("first phase", "first-phase start")}
SCALE = "per unit readout norm"  # γ_lin and γ_attn live on this scale, kernel margins do not
REACHED = 0.95  # of γ_attn


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    heads = [2, 16, 1024] if quick else [2, 4, 16, 64, 1024]
    axes = {"start.kind": list(STARTS), "model.num_heads": heads}
    sparsity = [0.125, 0.25, 0.5] if quick else [0.125, 0.25, 0.375, 0.5]
    common = {
        "data": {**tasks.MIXTURE, "num_examples": 80, "num_test": 0},
        "train": {"step_size": 0.2, "num_steps": 2000 if quick else 20_000},
        "seeds": 3 if quick else 6,
        "cell": CELL,
    }
    one = {"start.kind": ["zero"], "model.num_heads": [1, *heads]}
    return {
        "time": grid(name="margins-time", axes=axes, **common),
        "sparsity": grid(name="margins-sparsity", axes={**one, "data.sparsity": sparsity}, **common),
    }


def finding(results: Results) -> Finding:
    data = results["sparsity"].isel(start=0)
    share = data["margin"].isel(record=-1) / data["attention"]
    over_linear = data["margin"].isel(record=-1) / data["linear_sample"]
    H, steps = data["num_heads"].values, int(data["step"].values[-1])
    few = mean(share.sel(num_heads=H[0]).mean("sparsity", skipna=False))  # seeds that lack a sparsity are left out
    many = mean(over_linear.sel(num_heads=H[-1]).mean("sparsity", skipna=False))
    growth = _growth(data)
    numbers: dict[str, Estimate] = {
        f"share of γ_attn reached, {heads_text(H[0])} head": few,
        f"share of γ_attn gained per tenfold steps, {heads_text(H[0])} head": growth,
        f"margin / best linear margin of the sample, {heads_text(H[-1])} heads": many,
    }
    for h in H[1:]:
        numbers[f"share of γ_attn reached, {heads_text(h)} heads"] = mean(
            share.sel(num_heads=h).mean("sparsity", skipna=False)
        )
    if few.count == 0:
        answer = "Not measured"
    elif few.above(REACHED):
        answer = "Yes: one head reaches the attention margin"
    elif few.below(REACHED):
        answer = f"No: after {steps:,} steps one head has {number(100 * few.value, 2)}% of it"
    else:
        answer = "Undecided at this number of seeds"
    if many.below(1):
        answer += ", many heads stay below the linear margin"
        lazy = "does not get past the best linear classifier of uniformly averaged tokens"
    elif many.above(1):
        answer += ", many heads pass the linear margin"
        lazy = "gets past the best linear classifier"
    elif many.count == 0:
        lazy = "was not measured"
    else:
        lazy = "is not clearly different from that of the best linear classifier"
    if growth.above(0):
        trend = f"It still grows, by {growth} of γ_attn for every tenfold number of steps."
    elif growth.below(0):
        trend = f"It falls, by {growth} of γ_attn for every tenfold number of steps."
    else:
        trend = "Whether it still grows is undecided."
    sentence = (
        f"From zero, one head reaches {few} of γ_attn, averaged over sparsities. {trend} "
        f"With {heads_text(H[-1])} heads the margin {lazy}: it is {many} times the best linear margin on the sample."
    )
    if gone := lacking(data["margin"].isel(record=-1), results["time"]["margin"].isel(record=-1)):
        sentence += f" {gone}"
    note = (
        "From a balanced first phase the readouts of the two signs cancel in the score but count in the norm, which "
        "dilutes the normalized margin when there are many heads; the zero start has no such effect."
    )
    return Finding(answer, sentence, numbers, (note,))


def _growth(data) -> Estimate:
    """Share of γ_attn gained over the last decade of steps, one head, per seed and averaged over sparsities."""
    steps = data["step"].values
    before = int(np.argmin(np.abs(np.log(np.maximum(steps, 1)) - np.log(steps[-1] / 10))))
    gained = data["margin"].isel(record=-1) - data["margin"].isel(record=before)
    decades = np.log10(steps[-1] / steps[before])
    first = (gained / data["attention"] / decades).isel(num_heads=0)
    return mean(first.mean("sparsity", skipna=False))


def figures(results: Results) -> list[Figure]:
    time, sparse = results["time"], results["sparsity"].isel(start=0)
    steps = time["step"].values
    margin = Axis("margin", SCALE, scale=SCALE)
    share = Axis("focus", "share of attention")
    step = Axis("step", "steps", log=True)
    keep = steps >= 10  # before, the margin is that of a few tokens
    linear, attention = float(time["linear"].mean()), float(time["attention"].mean())
    panels = []
    for kind, (_, label) in STARTS.items():
        marks = [
            over_seeds(
                palette.heads(h),
                f"{heads_text(h)} heads",
                steps[keep],
                time["margin"].sel(start=kind, num_heads=h).transpose("record", "seed").values[keep],
                scale=SCALE,
            )
            for h in time["num_heads"].values
        ]
        marks += [
            rule("attention", "γ_attn (attention)", attention, scale=SCALE),
            rule("linear", "γ_lin (linear)", linear, scale=SCALE),
        ]
        panels.append(Panel(label[0].upper() + label[1:], step, margin, marks))
    ends, looks = [], []
    for h in sparse["num_heads"].values:
        label = f"{heads_text(h)} head{'s' if h > 1 else ''}"
        at = sparse.sel(num_heads=h).isel(record=-1)
        zeta = sparse["sparsity"].values
        ends.append(
            over_seeds(palette.heads(h), label, zeta, at["margin"].transpose("sparsity", "seed").values, scale=SCALE)
        )
        looks.append(over_seeds(palette.heads(h), label, zeta, at["focus"].transpose("sparsity", "seed").values))
    by_sparsity = sparse["linear"].isel(num_heads=0).transpose("sparsity", "seed").values
    ends.append(over_seeds("linear", "γ_lin (linear)", sparse["sparsity"].values, by_sparsity, scale=SCALE))
    ends.append(rule("attention", "γ_attn (attention)", float(sparse["attention"].mean()), scale=SCALE))
    zeta_axis = Axis("relevant tokens ζ", "share of tokens")
    return [
        Figure(
            "margins-time",
            "The margin over time",
            f"Smallest margin over the norm of all readouts, sparsity 1/4, step size 0.2, {int(steps[-1]):,} steps. "
            "Means and 95% intervals over seeds.",
            panels,
        ),
        Figure(
            "margins-sparsity",
            "Margin and focus over the share of relevant tokens",
            "Zero start, at the last step, over the share of relevant tokens: the margin, and the attention that falls "
            "on relevant tokens (focus).",
            [Panel("Margin", zeta_axis, margin, ends), Panel("Focus", zeta_axis, share, looks)],
        ),
    ]


STUDY = Study(
    name="margins",
    title="Margins",
    question="Does gradient descent reach the margin that attention makes possible?",
    claim="Attention can separate the mixture with margin γ_attn = S√(T/2), a linear classifier only with "
    "γ_lin = S√(T/2)(ζ - 2(1-ζ)Z_μ/S²) (Section 5.3, corrected); whether descent gets there is left open.",
    settings=[
        stated("descent", "full batch, constant step size, logistic loss"),
        stated("zero start", "all parameters zero, as in the published experiment"),
        chosen("data", tasks.MIXTURE_TEXT + "; 80 sequences; other sparsities where said"),
        chosen("step size", "0.2"),
        chosen("margin", "smallest margin over the norm of all readouts, the scale of γ_lin and γ_attn"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
