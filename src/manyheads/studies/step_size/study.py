"""How far is the theory's step size from the largest one that still descends?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, number, power, ratio
from manyheads.studies.kit.figure import HEADS, Axis, Figure, Panel, over_seeds
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
from manyheads.studies.kit.words import choose, heads_text, listed, once
from manyheads.sweeps.spec import Sweep

# Every kind of data over the norm of its tokens: the bounds are worst cases over tokens of that norm.
SIZE = {"num_examples": 40, "num_test": 0}
DATA = {
    "easy": ("easy mixture", "signal", {**tasks.MIXTURE, **SIZE}),
    "hard": ("hard mixture", "signal", {**tasks.HARD_MIXTURE, **SIZE}),
    "random": (
        "random labels",
        "token_norm",
        {**tasks.RANDOM_LABELS, "num_tokens": 8, "dim": 10, **SIZE},
    ),
}
ROLES = {"easy": "mixture", "hard": "construction", "random": "random labels"}
NORMS = Scaled([1.0, 2.0, 4.0], [1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
COUNTS = Scaled([2, 1e6], [1, 2, 16, 256, 4096, 1e6])
LETTERS = {"signal": "S =", "token_norm": "norm"}
STEPS, LARGEST = 100, 4096  # of the step sizes tried
FOUND_TO = 2 ** (1 / 8)  # the stable step size is known to this factor, from below
FLAT = (-0.1, 0.1)  # an exponent of H in between is hardly a dependence
CAREFUL = 10  # times smaller than needed; below this factor it counts as nearly right
BOUNDS = {"ours": "our 1/b₂(M)", "printed": "the paper's 1/β₂(M)"}
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
        "seeds": Scaled(3, 8),
        "cell": "manyheads.studies.step_size.cells:largest_steps",
    }
    made = {
        name: {**common, "data": data, "axes": {f"data.{norm}": NORMS, "model.num_heads": COUNTS}}
        for name, (_, norm, data) in DATA.items()
    }
    return grids("step_size", scale, **made)


def finding(results: Results) -> Finding:
    numbers, trends = Numbers(), {}
    ends: dict[str, list[tuple[float, str]]] = {bound: [] for bound in BOUNDS}
    capped: dict[str, list[str]] = {}
    for name, data in results.items():
        on, norm, _ = DATA[name]
        for bound, label in BOUNDS.items():
            for size, factor in _factors(data, bound, norm).items():
                caption = f"stable step / {label}, mean over H, {on}, {LETTERS[norm]} {size:g}"
                found = numbers.add(f"over_{bound}.{name}.{size:g}", caption, factor)
                ends[bound].append((found.value, f"{on}, {LETTERS[norm]} {size:g}"))
        endless = data["capped"].astype(float) == 1
        sizes = data[norm].values[endless.any(["num_heads", "seed"]).values]
        if len(sizes):
            capped[f"the {on} with {LETTERS[norm]}"] = [f"{size:g}" for size in sizes]
        growth = NONE if bool(endless.any()) else power("num_heads", data["stable"])
        numbers.add(f"exponent.{name}", f"exponent of the stable step in H, {on}", growth)
        trends[f"the {on}".replace("the random", "random")] = choose(
            growth,
            within=FLAT,
            inside="hardly depends on H",
            above="grows with H",
            below="falls with H",
            undecided="shows no clear trend in H",
            missing="is not measured",
        )
    sentences = [_range(found, BOUNDS[bound]) for bound, found in ends.items()]
    largest = max(float(data["num_heads"].max()) for data in results.values())
    fewest = min(float(data["num_heads"].min()) for data in results.values())
    details = [
        f"From {heads_text(fewest)} to {heads_text(largest)} heads the stable step size {once(trends, 'on')}."
    ]
    if capped:
        where = listed([f"{on} {listed(sizes)}" for on, sizes in capped.items()])
        details.append(
            f"No largest step size was found on {where}: in some runs even {LARGEST:,} descends."
        )
    notes = [
        "Each factor is a geometric mean over H and seeds; other data would widen the range.",
        "The Section 6.1 value 1/ρ of the paper, drawn for the mixtures, is for a target with loss 1/K.",
    ]
    cells = [data["stable"] for data in results.values()]
    setting = (
        f"; first-phase start, {heads_text(fewest)} to {heads_text(largest)} heads, {STEPS} steps"
    )
    answer = _answer(results, ends)
    if capped and ends["ours"]:
        endless = f"{sum(map(len, capped.values()))} of {len(ends['ours'])} data sets"
        setting = f"; on {endless} some runs descend at every step size tried{setting}"
    return conclude(
        answer + setting if ends["ours"] else answer, [*sentences, *details], numbers, cells, notes
    )


def _factors(data: xarray.Dataset, bound: str, norm: str) -> dict[float, Estimate]:
    """By the norm of the tokens: stable step over the bound, the geometric mean over H for each seed, then over seeds.

    Seeds that lack a run are left out; if a run was stable at the largest step size tried there is no factor.
    """
    found = _over(data, bound)
    return {float(size): ratio(found.sel({norm: size}).values) for size in data[norm].values}


def _over(data: xarray.Dataset, bound: str) -> xarray.DataArray:
    endless = (data["capped"].astype(float) == 1).any(["num_heads", "seed"])
    found = data["stable"] / data[bound]
    logs = found.copy(data=np.log(found.values)).mean("num_heads", skipna=False)
    return logs.copy(data=np.exp(logs.values)).where(~endless)


def _known(found: list[tuple[float, str]]) -> list[tuple[float, str]]:
    return sorted(item for item in found if np.isfinite(item[0]))


def _range(found: list[tuple[float, str]], label: str) -> str:
    """The smallest and the largest factor, and on which data."""
    if not (known := _known(found)):
        return f"How far {label} is from the stable step size was not measured."
    (least, here), (most, there) = known[0], known[-1]
    return f"The loss falls at every step up to {number(least, 2)} ({here}) to {number(most, 2)} ({there}) times {label}."


def _answer(results: Results, ends: dict[str, list[tuple[float, str]]]) -> str:
    """Safe means safe in every run; the factor is a range over the data."""
    ratios = np.concatenate(
        [(data["stable"] / data["ours"]).values.ravel() for data in results.values()]
    )
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) == 0:
        ends["ours"] = []
        return "Not measured"
    if failing := int((ratios * FOUND_TO < 1).sum()):
        return f"Our step size is too large: in {failing} of {len(ratios)} runs it does not always descend"
    if (ratios < 1).any():
        return "Undecided: the largest stable step size is ours, to the accuracy of the search"
    said = [
        f"{number(known[0][0], 2)} to {number(known[-1][0], 2)}"
        for known in map(_known, ends.values())
    ]
    safe = f"Safe in all {len(ratios)} runs"
    if _known(ends["ours"])[-1][0] < CAREFUL:
        return f"{safe}, and ours is nearly right ({said[0]} times smaller than needed)"
    return f"{safe} and, depending on the data, {said[0]} times smaller than needed (ours) or {said[1]} (as printed)"


def figures(results: Results) -> list[Figure]:
    factors = []
    for bound, label in BOUNDS.items():
        marks = []
        for name, data in results.items():
            on, norm, _ = DATA[name]
            marks.append(over_seeds(ROLES[name], on, norm, _over(data, bound), log=True))
        axis = Axis("stable step / bound", "factor", log=True)
        factors.append(
            Panel(f"Over {label}", Axis("norm of a pattern or token", "1", log=True), axis, marks)
        )
    panels = []
    for name, data in results.items():
        on, norm, _ = DATA[name]
        one = data.sel({norm: 2.0}, method="nearest")
        drawn = {route: look for route, look in ROUTES.items() if bool(one[route].notnull().any())}
        marks = [
            over_seeds(*look, "num_heads", one[route], log=True) for route, look in drawn.items()
        ]
        panels.append(
            Panel(on.capitalize(), HEADS, Axis("step size", "dimensionless", log=True), marks)
        )
    measured = f"Largest step size at which the loss never rises in {STEPS} steps, "
    start = "First-phase start; geometric means and 95% intervals over seeds."
    return [
        Figure(
            "step_size-data",
            "Measured step size over the bounds",
            f"{measured}over the bound, mean over H. The bounds are worst cases over tokens of a norm. {start}",
            factors,
        ),
        Figure(
            "step_size-heads",
            "Step size: measured and allowed",
            f"{measured}beside what the theory allows; patterns or tokens of norm 2. {start}",
            panels,
        ),
    ]


STUDY = Study(
    name="step_size",
    title="Step size",
    question="How far is the theory's step size from the largest one that still descends?",
    claim="Theorem 1 requires a step size of at most 1/ρ, with ρ of the order d^(3/2) T^(3/2) R^13 times norms of "
    "the target; descent itself needs 1/β₂.",
    settings=[
        stated("descent", tasks.DESCENT),
        stated("start", tasks.FIRST_PHASE),
        stated("the paper's bound", "1/β₂(M), M = ‖U_0‖ + 1, as printed"),
        chosen("our bound", "1/b₂(M), the same with constants that are proved and smaller"),
        chosen("signs", "balanced, half of the heads each"),
        *(
            chosen(on, f"{tasks.describe(data)}; S or norm {NORMS}")
            for on, _, data in DATA.values()
        ),
        chosen(
            "stable", f"the loss never rises in {STEPS} steps; found to a factor {FOUND_TO:.2g}"
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="theory",
    order=3,
)
