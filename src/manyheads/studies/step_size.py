"""How far is the theory's step size from the largest one that still descends?"""

from __future__ import annotations

from manyheads.studies import tasks
from manyheads.studies.estimate import heads_text, number, power, ratio
from manyheads.studies.figure import Axis, Figure, Panel, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.step_size:largest_steps"
NAMES = {"mixture": "the mixture", "random": "random labels"}


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
    numbers, parts = {}, []
    for name, data in results.items():
        stable, ours = (data[v].transpose("num_heads", "seed") for v in ("stable", "ours"))
        factor, printed = ratio(stable, ours), ratio(stable, data["printed"].transpose("num_heads", "seed"))
        growth = power(data["num_heads"], stable)
        numbers |= {
            f"stable step / ours, {NAMES[name]}": factor,
            f"stable step / printed, {NAMES[name]}": printed,
            f"exponent of the stable step in H, {NAMES[name]}": growth,
        }
        if bool(data["capped"].any()):
            parts.append(
                f"On {NAMES[name]} some runs were stable at the largest step size tried, so this is a lower bound."
            )
        parts.append(
            f"On {NAMES[name]} the loss falls at every step up to {factor} times our 1/b₂(M), "
            f"{number(printed.value)} times the printed 1/β₂(M)."
        )
    factors = [e for k, e in numbers.items() if "/ ours" in k]
    slopes = [e for k, e in numbers.items() if "exponent" in k]
    largest = max(float(data["num_heads"].max()) for data in results.values())
    if any(e.below(1) for e in factors):
        answer = "The theory's step size is too large: it does not always descend"
    elif all(e.above(10) for e in factors):
        least, most = min(e.value for e in factors), max(e.value for e in factors)
        answer = f"The theory is safe and {number(least, 2)} to {number(most, 2)} times too careful"
    elif all(e.above(1) for e in factors):
        answer = "The theory is safe and nearly right"
    else:
        answer = "Undecided at this number of seeds"
    if all(abs(e.value) < 0.1 for e in slopes):
        trend = f"The stable step size hardly depends on H, from 1 to {heads_text(largest)} heads."
    elif all(e.above(0) for e in slopes):
        trend = "The stable step size grows with H."
    elif all(e.below(0) for e in slopes):
        trend = "The stable step size falls with H."
    else:
        trend = "How the stable step size depends on H differs between the data."
    note = "The Section 6.1 value 1/ρ of the paper, drawn for the mixture, is for a target with loss 1/K."
    return Finding(answer, " ".join([*parts, trend]), numbers, (note,))


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
            if data[variable].notnull().any()
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
