"""Does gradient descent reach the margin that attention makes possible?"""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, tenth
from manyheads.studies.kit.figure import (
    FOCUS,
    STEP,
    Axis,
    Figure,
    Panel,
    by_heads,
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
from manyheads.studies.kit.words import MISSING, capital, choose, heads, heads_text, setting
from manyheads.sweeps.spec import Sweep

STARTS = {kind: tasks.STARTS[kind] for kind in ("zero", "first_phase")}
DATA = {**tasks.MIXTURE, "num_examples": 80, "num_test": 0}
STEP_SIZE = 0.2
SCALE = "per unit readout norm"  # γ_lin and γ_attn are on this scale, kernel margins are not
REACHED = 0.95  # of γ_attn
LINEAR = "best linear margin of the sample"  # what the answer compares with; γ_lin bounds that of the population


def sweeps(scale: str) -> dict[str, Sweep]:
    quick, full = [4, 16, 1024], [4, 16, 64, 1024]
    common = {
        "data": DATA,
        "train": {"step_size": STEP_SIZE, "num_steps": Scaled(2000, 20_000)},
        "seeds": Scaled(3, 6),
        "cell": "manyheads.studies.margins.cells:over_time",
    }
    sparsity = {
        "start.kind": ["zero"],
        "model.num_heads": Scaled([1, *quick], [1, *full]),
        "data.sparsity": Scaled([0.125, 0.25, 0.5], [0.125, 0.25, 0.375, 0.5]),
    }
    time = {"start.kind": list(STARTS), "model.num_heads": Scaled(quick, full)}
    return grids(
        "margins", scale, time={**common, "axes": time}, sparsity={**common, "axes": sparsity}
    )


def finding(results: Results) -> Finding:
    numbers, data = Numbers(), results["sparsity"].isel(start=0)
    last, H, steps = data["margin"].isel(record=-1), data["num_heads"].values, data["step"].values
    least, most = H[0], H[-1]

    def averaged(values):  # over sparsities; seeds that lack one are left out
        return mean(values.mean("sparsity", skipna=False))

    shares = {
        h: numbers.add(
            f"share.{h:g}",
            f"share of γ_attn reached, {heads(h)}",
            averaged((last / data["attention"]).sel(num_heads=h)),
        )
        for h in H
    }
    before = tenth(steps)
    gained = (
        (last - data["margin"].isel(record=before))
        / data["attention"]
        / np.log10(steps[-1] / steps[before])
    )
    growth = numbers.add(
        "growth",
        f"share of γ_attn gained per tenfold steps, {heads(least)}",
        averaged(gained.sel(num_heads=least)),
    )
    many = numbers.add(
        "over_linear",
        f"margin / best linear margin of the sample, {heads(most)}",
        averaged((last / data["linear_sample"]).sel(num_heads=most)),
    )
    few = shares[least]
    answer = choose(
        few,
        at=REACHED,
        above="Yes: one head reaches the attention margin",
        below=f"No: after {int(steps[-1]):,} steps one head has {number(100 * few.value, 2)}% of it",
        undecided="Undecided at this number of seeds",
        missing=MISSING,
    )
    answer += choose(
        many,
        at=1,
        above=f", {heads(most)} pass the best linear margin of the sample",
        below=f", {heads(most)} stay below the best linear margin of the sample",
        undecided="",
        missing="",
    )
    lazy = choose(
        many,
        at=1,
        above="exceeds that of the best linear classifier",
        below="does not exceed that of the best linear classifier",
        undecided="is not clearly different from that of the best linear classifier",
        missing="was not measured",
    )
    unknown = "Whether it still grows is undecided."
    trend = choose(
        growth,
        above=f"It still grows, by {growth} of γ_attn for every tenfold number of steps.",
        below=f"It falls, by {growth} of γ_attn for every tenfold number of steps.",
        undecided=unknown,
        missing=unknown,
    )
    sentences = [
        f"From zero, one head reaches {few} of the best margin that attention allows, averaged over sparsities.",
        f"With {heads_text(most)} heads the margin {lazy}: it is {many} times the best linear margin on the sample.",
        trend.replace("It", "The margin of one head", 1),
    ]
    known = results["sparsity"]["sparsity"].values
    where = [
        f"mixture with ζ from {min(known):g} to {max(known):g}",
        f"{DATA['num_examples']} sequences",
    ]
    where += ["zero start", f"step size {STEP_SIZE:g}"]
    note = (
        "From a balanced first phase the readouts of the two signs cancel in the score but count in the norm, which "
        "dilutes the normalized margin when there are many heads; the zero start has no such effect."
    )
    formula = averaged(
        data["linear"].sel(num_heads=most) / data["linear_sample"].sel(num_heads=most)
    )
    numbers.add("formula", "the formula γ_lin / best linear margin of the sample", formula)
    cells = [last, results["time"]["margin"].isel(record=-1)]
    return conclude(setting(answer, *where), sentences, numbers, cells, [note])


def figures(results: Results) -> list[Figure]:
    time, sparse = results["time"], results["sparsity"].isel(start=0)
    margin, zeta = Axis("margin", SCALE, scale=SCALE), Axis("relevant tokens ζ", "share of tokens")
    attention = rule("attention", "γ_attn (attention)", float(time["attention"].mean()), SCALE)
    linear = rule("linear", LINEAR, float(time["linear_sample"].mean()), SCALE)
    later = time["margin"].isel(
        record=time["step"].values >= 10
    )  # earlier, the margin depends on a few tokens
    last = sparse.isel(record=-1)
    ends = [
        *by_heads("sparsity", last["margin"], SCALE),
        over_seeds("linear", LINEAR, "sparsity", sparse["linear_sample"].isel(num_heads=0), SCALE),
        rule("attention", "γ_attn (attention)", float(sparse["attention"].mean()), SCALE),
    ]
    return [
        Figure(
            "margins-time",
            "The margin over time",
            f"Smallest margin over the norm of all readouts, sparsity {DATA['sparsity']:g}, step size {STEP_SIZE:g}, "
            f"{int(time['step'].values[-1]):,} steps. Means and 95% intervals over seeds.",
            [
                Panel(
                    capital(label),
                    STEP,
                    margin,
                    [*by_heads("step", later.sel(start=kind), SCALE), attention, linear],
                )
                for kind, (_, label) in STARTS.items()
            ],
        ),
        Figure(
            "margins-sparsity",
            "Margin and focus over the share of relevant tokens",
            "Zero start, at the last step, over the share of relevant tokens. @1: the margin. @2: the attention "
            "on relevant tokens (focus).",
            [
                Panel("Margin", zeta, margin, ends),
                Panel("Focus", zeta, FOCUS, by_heads("sparsity", last["focus"])),
            ],
        ),
    ]


STUDY = Study(
    name="margins",
    title="Margins",
    question="Does gradient descent reach the margin that attention makes possible?",
    claim="Attention can separate the mixture with margin γ_attn = S√(T/2), a linear classifier only with "
    "γ_lin = S√(T/2)(ζ - 2(1-ζ)Z_μ/S²) (Section 5.3, corrected); whether descent reaches it is left open.",
    settings=[
        stated("descent", tasks.DESCENT),
        stated("zero start", "all parameters zero, as in the published experiment"),
        chosen("data", f"{tasks.describe(DATA)}; other sparsities where stated"),
        chosen("step size", f"{STEP_SIZE:g}"),
        chosen(
            "margin", "smallest margin over the norm of all readouts, the scale of γ_lin and γ_attn"
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="attention",
    order=3,
)
