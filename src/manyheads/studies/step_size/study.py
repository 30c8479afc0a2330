"""How far is the theory's step size from the largest one that still descends?"""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, number, power, ratio, rows
from manyheads.studies.kit.figure import HEADS, Axis, Figure, Panel, over_seeds
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import capital, choose, choose_all, heads_text, once
from manyheads.sweeps.spec import Sweep

NAMES = {"mixture": "the mixture", "random": "random labels"}
DATA = {"mixture": {**tasks.HARD_MIXTURE, "num_examples": 100, "num_test": 0}, "random": tasks.RANDOM_LABELS}
STEPS = 200
FOUND_TO = 2 ** (1 / 8)  # the stable step size is known to this factor, from below
FLAT = (-0.1, 0.1)  # an exponent of H in between is hardly a dependence
CAREFUL = 10  # times smaller than needed; less is nearly right
ROUTES = {
    "stable": ("measured", "largest stable, measured"),
    "ours": ("ours", "ours, 1/b₂(M)"),
    "printed": ("printed", "printed, 1/β₂(M)"),
    "explicit": ("explicit", "Section 6.1, 1/ρ"),
}


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "start": {"kind": "first_phase"},
        "train": {"num_steps": STEPS},
        "axes": {"model.num_heads": Scaled([1, 16, 256, 1e6], [1, 2, 4, 16, 64, 256, 4096, 1e6, 1e9])},
        "seeds": Scaled(4, 10),
        "cell": "manyheads.studies.step_size.cells:largest_steps",
    }
    return grids("step_size", scale, **{name: {**common, "data": data} for name, data in DATA.items()})


def finding(results: Results) -> Finding:
    numbers = Numbers()
    sentences, details, trends, factors = [], [], {}, []
    for name, data in results.items():
        on = NAMES[name]
        H, stable = rows("num_heads", data["stable"])
        ours, printed = (stable / rows("num_heads", data[route])[1] for route in ("ours", "printed"))
        capped = bool((data["capped"].values == 1).any())
        factor = numbers.add(f"over_ours.{name}", f"stable step / ours, mean over H, {on}", _over_heads(ours))
        numbers.add(f"over_ours_least.{name}", f"stable step / ours, least over H, {on}", ratio(ours.min(axis=0)))
        above = numbers.add(f"over_printed.{name}", f"stable step / printed, mean over H, {on}", _over_heads(printed))
        growth = NONE if capped else power(H, stable)
        numbers.add(f"exponent.{name}", f"exponent of the stable step in H, {on}", growth)
        trends[on] = choose(
            growth,
            within=FLAT,
            inside="hardly depends on H",
            above="grows with H",
            below="falls with H",
            undecided="shows no clear trend in H",
            missing="is not measured",
        )
        least = float(np.nanmin(ours)) if np.isfinite(ours).any() else np.nan
        sentences.append(
            f"On {on} the loss falls at every step up to {factor} times our 1/b₂(M), {number(above.value)} times the "
            "printed 1/β₂(M)."
        )
        details.append(f"That is a geometric mean over H; the least of all runs on {on} is {number(least)}.")
        if capped:
            details.append(
                f"Some of these runs were stable at the largest step size tried: on {on} these are lower bounds, and "
                "there is no exponent of H."
            )
        factors.append(factor)
    largest = max(float(data["num_heads"].max()) for data in results.values())
    details.append(f"From 1 to {heads_text(largest)} heads the stable step size {once(trends, 'on')}.")
    note = "The Section 6.1 value 1/ρ of the paper, drawn for the mixture, is for a target with loss 1/K."
    cells = [data["stable"] for data in results.values()]
    return conclude(_answer(results, factors), [*sentences, *details], numbers, cells, [note])


def _answer(results: Results, factors: list[Estimate]) -> str:
    """Safe means safe in every run; how careful is an estimate over seeds."""
    ratios = np.concatenate([(data["stable"] / data["ours"]).values.ravel() for data in results.values()])
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) == 0:
        return "Not measured"
    if failing := int((ratios * FOUND_TO < 1).sum()):
        return f"The theory's step size is too large: in {failing} of {len(ratios)} runs it does not always descend"
    if (ratios < 1).any():
        return "Undecided: the largest stable step size is the theory's, to the accuracy of the search"
    least, most = min(e.value for e in factors), max(e.value for e in factors)
    return "The theory is safe in every run" + choose_all(
        factors,
        at=CAREFUL,
        above=f" and {number(least, 2)} to {number(most, 2)} times too careful",
        below=" and nearly right",
        undecided="; by how much it is too careful is undecided or depends on the data",
    )


def _over_heads(ratios: np.ndarray) -> Estimate:
    """The geometric mean over H for each seed, then over seeds; seeds that lack a run are left out."""
    return ratio(np.exp(np.log(ratios).mean(axis=0)))


def figures(results: Results) -> list[Figure]:
    panels = []
    for name, data in results.items():
        drawn = {route: look for route, look in ROUTES.items() if bool(data[route].notnull().any())}
        marks = [over_seeds(*look, "num_heads", data[route], log=True) for route, look in drawn.items()]
        title = capital(NAMES[name].removeprefix("the "))
        panels.append(Panel(title, HEADS, Axis("step size", "dimensionless", log=True), marks))
    caption = f"Largest step size at which the loss never rises in {STEPS} steps, beside what the theory allows. "
    caption += "First-phase start; means and 95% intervals over seeds."
    return [Figure("step_size-heads", "Step size: measured and allowed", caption, panels)]


STUDY = Study(
    name="step_size",
    title="Step size",
    question="How far is the theory's step size from the largest one that still descends?",
    claim="Theorem 1 asks for a step size of at most 1/ρ, with ρ of the order d^(3/2) T^(3/2) R^13 times norms of "
    "the target; descent itself needs 1/β₂.",
    settings=[
        stated("descent", tasks.DESCENT),
        stated("start", tasks.FIRST_PHASE),
        chosen("signs", "balanced, half of the heads each"),
        chosen("data", tasks.describe(DATA["mixture"])),
        chosen("second data", tasks.describe(DATA["random"])),
        chosen("stable", f"the loss never rises in {STEPS} steps; found to a factor {FOUND_TO:.2g}"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="theory",
    order=3,
)
