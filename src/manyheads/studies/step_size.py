"""How far is the theory's step size from the largest one that still descends?"""

from __future__ import annotations

import numpy as np

from manyheads.studies import tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, power, ratio
from manyheads.studies.figure import Axis, Figure, Panel, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.step_size:largest_steps"
NAMES = {"mixture": "the mixture", "random": "random labels"}
FOUND_TO = 2 ** (1 / 8)  # the stable step size is known to this factor, from below
FLAT = 0.1  # an exponent of H between this and its negative is hardly a dependence


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    heads = [1, 16, 256, 1e6] if quick else [1, 2, 4, 16, 64, 256, 4096, 1e6, 1e9]
    common = {
        "start": {"kind": "first_phase"},
        "train": {"num_steps": 200},
        "axes": {"model.num_heads": heads},
        "seeds": 4 if quick else 10,
        "cell": CELL,
    }
    data = {"mixture": {**tasks.HARD_MIXTURE, "num_examples": 100, "num_test": 0}, "random": tasks.RANDOM_LABELS}
    return {name: grid(name=f"step_size-{name}", data=spec, **common) for name, spec in data.items()}


def finding(results: Results) -> Finding:
    numbers: dict[str, Estimate] = {}
    parts, trends = [], {}
    for name, data in results.items():
        stable = data["stable"].transpose("num_heads", "seed").values
        ours, printed = (stable / data[v].transpose("num_heads", "seed").values for v in ("ours", "printed"))
        capped = bool((data["capped"].values == 1).any())
        factor = numbers[f"stable step / ours, mean over H, {NAMES[name]}"] = _over_heads(ours)
        numbers[f"stable step / ours, least over H, {NAMES[name]}"] = ratio(ours.min(axis=0), np.ones(ours.shape[1]))
        numbers[f"stable step / printed, mean over H, {NAMES[name]}"] = _over_heads(printed)
        growth = mean([]) if capped else power(data["num_heads"], stable)
        numbers[f"exponent of the stable step in H, {NAMES[name]}"] = growth
        trends[name] = "is not measured" if growth.count == 0 else _trend(growth)
        parts.append(
            f"On {NAMES[name]} the loss falls at every step up to {factor} times our 1/b₂(M) (geometric mean over H; "
            f"the least of all runs is {number(_least(ours))}), "
            f"{number(numbers[f'stable step / printed, mean over H, {NAMES[name]}'].value)} times the printed 1/β₂(M)."
        )
        if capped:
            parts.append(f"Some of these runs were stable at the largest step size tried: on {NAMES[name]} these are "
                         "lower bounds, and there is no exponent of H.")  # fmt: skip
    largest = max(float(data["num_heads"].max()) for data in results.values())
    if len(set(trends.values())) == 1:
        trend = f"From 1 to {heads_text(largest)} heads the stable step size {trends.popitem()[1]}."
    else:
        said = " and ".join(f"{word} on {NAMES[name]}" for name, word in trends.items())
        trend = f"From 1 to {heads_text(largest)} heads the stable step size {said}."
    gone = lacking(*(data["stable"] for data in results.values()))
    note = "The Section 6.1 value 1/ρ of the paper, drawn for the mixture, is for a target with loss 1/K."
    return Finding(_answer(results, numbers), " ".join([*parts, trend, gone]).strip(), numbers, (note,))


def _answer(results: Results, numbers: dict[str, Estimate]) -> str:
    """Safe means safe in every run; how careful is an estimate over seeds."""
    ratios = np.concatenate([(data["stable"] / data["ours"]).values.ravel() for data in results.values()])
    ratios = ratios[np.isfinite(ratios)]
    factors = [e for k, e in numbers.items() if k.startswith("stable step / ours, mean")]
    if len(ratios) == 0:
        return "Not measured"
    if failing := int((ratios * FOUND_TO < 1).sum()):
        return f"The theory's step size is too large: in {failing} of {len(ratios)} runs it does not always descend"
    if (ratios < 1).any():
        return "Undecided: the largest stable step size is the theory's, to the accuracy of the search"
    if all(e.above(10) for e in factors):
        least, most = min(e.value for e in factors), max(e.value for e in factors)
        return f"The theory is safe in every run and {number(least, 2)} to {number(most, 2)} times too careful"
    if all(e.below(10) for e in factors):
        return "The theory is safe in every run and nearly right"
    return "The theory is safe in every run; by how much it is too careful is undecided or depends on the data"


def _over_heads(ratios: np.ndarray) -> Estimate:
    """The geometric mean over H for each seed, then over seeds; seeds that lack a run are left out."""
    return ratio(np.exp(np.log(ratios).mean(axis=0)), np.ones(ratios.shape[1]))


def _least(ratios: np.ndarray) -> float:
    return float(np.nanmin(ratios)) if np.isfinite(ratios).any() else np.nan


def _trend(growth: Estimate) -> str:
    if growth.above(-FLAT) and growth.below(FLAT):
        return "hardly depends on H"
    return "grows with H" if growth.above(0) else "falls with H" if growth.below(0) else "shows no clear trend in H"


def figures(results: Results) -> list[Figure]:
    panels = []
    for name, data in results.items():
        marks = [
            over_seeds(
                role, label, data["num_heads"].values, data[variable].transpose("num_heads", "seed").values, log=True
            )
            for role, label, variable in (
                ("measured", "largest stable, measured", "stable"),
                ("ours", "ours, 1/b₂(M)", "ours"),
                ("printed", "printed, 1/β₂(M)", "printed"),
                ("explicit", "Section 6.1, 1/ρ", "explicit"),
            )
            if bool(data[variable].notnull().any())
        ]
        title = NAMES[name].removeprefix("the ")
        panels.append(
            Panel(
                title[0].upper() + title[1:],
                Axis("heads", "count", log=True),
                Axis("step size", "dimensionless", log=True),
                marks,
            )
        )
    caption = "Largest step size at which the loss never rises in 200 steps, beside what the theory allows. "
    caption += "First-phase start; means and 95% intervals over seeds."
    return [Figure("step_size-heads", "Step size: measured and allowed", caption, panels)]


STUDY = Study(
    name="step_size",
    title="Step size",
    question="How far is the theory's step size from the largest one that still descends?",
    claim="Theorem 1 asks for a step size of at most 1/ρ, with ρ of the order d^(3/2) T^(3/2) R^13 times norms of "
    "the target; descent itself needs 1/β₂.",
    settings=[
        stated("descent", "full batch, constant step size, logistic loss"),
        stated("start", "first phase: one step from zero on fresh data, heads with signs +1 and -1"),
        chosen("signs", "balanced, half of the heads each"),
        chosen("data", tasks.HARD_TEXT + "; 100 sequences"),
        chosen("second data", tasks.RANDOM_TEXT),
        chosen("stable", "the loss never rises in 200 steps; found to a factor 2^(1/8)"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
