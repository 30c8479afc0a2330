"""Which statements of the paper hold, which are misprinted, and how tight are the bounds?"""

from __future__ import annotations

import numpy as np

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number
from manyheads.studies.kit.figure import Axis, Figure, Panel, bars
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
from manyheads.studies.kit.words import MISSING, listed, setting
from manyheads.sweeps.spec import Sweep
from manyheads.theory.ledger import ledger

CELLS = "manyheads.studies.ledger.cells"
DATA = {**tasks.MIXTURE, "num_examples": 100, "num_test": 300}
NUM_HEADS, STEP_SIZE, STEPS = 64, 0.2, 150


def sweeps(scale: str) -> dict[str, Sweep]:
    return grids(
        "ledger",
        scale,
        checks={
            "axes": {"parameters.statement": list(ledger())},
            "cell": f"{CELLS}:check",
            "parameters": {"quick": Scaled(True, False)},
        },
        run={
            "data": DATA,
            "model": {"num_heads": NUM_HEADS},
            "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
            "cell": f"{CELLS}:run",
        },
    )


def finding(results: Results) -> Finding:
    checks = results["checks"].isel(seed=0)
    names = checks["statement"].values
    errata, real = (
        np.array([_is(name, kind) for name in names.tolist()]) for kind in ("erratum", "real")
    )
    told = checks["holds"].values.astype(float)  # NaN where a check is missing
    holds, known = told > 0, np.isfinite(told)
    statements, kept = int((~errata & known).sum()), int(holds[~errata].sum())
    wrong, unknown = int(holds[real].sum()), int((~errata & ~known).sum())
    _, ours, printed = _shares(checks)
    numbers = Numbers()
    depth = _depth(checks)
    for name, trials in depth.items():
        numbers.add(
            f"depth.{name.lower().replace('-', '_')}", f"inputs tried, {name}", mean([trials])
        )
    reached = numbers.add(
        "reached_ours", "largest share of our bound reached, mean over statements", mean(ours)
    )
    numbers.add("reached_printed", "the same share of the printed bound", mean(printed))
    if int(results["run"]["violated"].sum()):
        answer = "A statement is violated on an ordinary run although its hypotheses hold"
    elif statements == 0:
        answer = MISSING
    elif kept == statements:
        checked = f" that were checked ({unknown} were not)" if unknown else ""
        answer = f"All {statements} statements{checked} hold once corrected; {wrong} are wrong as printed"
        answer = setting(answer, f"{_inputs(min(depth.values()))} or more for each statement")
    else:
        failed = names[~holds & known & ~errata].tolist()
        answer = (
            f"{statements - kept} of {statements} fail even when corrected: {', '.join(failed)}"
        )
    conclusion = f"{answer}." if kept and kept == statements else ""
    sentence = (
        f"{kept} of {statements} statements hold in their corrected form on random, adversarial and extremal inputs"
        f"{_depth_text(depth)}, and {int(holds[errata].sum())} of {int((errata & known).sum())} "
        f"errata are reproduced, {wrong} of them real errors."
    )
    tight = (
        f"Where a bound can be compared, the inputs reach {reached} of ours and {number(mean(printed).value)} of the "
        "printed one."
    )
    note = "The interval is over statements, not over seeds."
    cells = [told, results["run"]["violated"]]
    ordinary = _ordinary(results["run"].isel(seed=0))
    return conclude(answer, [sentence, ordinary, tight], numbers, cells, [note], conclusion)


def _depth(checks) -> dict[str, float]:
    """How many inputs each statement was tried on; errata are left out, since a counterexample is one input."""
    pairs = zip(
        checks["statement"].values.tolist(),
        checks["trials"].values.astype(float).tolist(),
        strict=True,
    )
    return {
        name: trials for name, trials in pairs if np.isfinite(trials) and not _is(name, "erratum")
    }


def _inputs(count: float) -> str:
    return f"{count:,.0f} {'input' if count == 1 else 'inputs'}"


def _depth_text(depth: dict[str, float]) -> str:
    """How many inputs, fewest and most; a sum would be dominated by the statement that is cheapest to try."""
    if not depth:
        return ""
    least, most = min(depth.values()), max(depth.values())
    fewest = [name for name, trials in depth.items() if trials == least]
    shown = (
        f"{', '.join(fewest[:3])} and {len(fewest) - 3} others"
        if len(fewest) > 4
        else listed(fewest)
    )
    top = next(name for name, trials in depth.items() if trials == most)
    middle = number(float(np.median(list(depth.values()))))
    return f" (from {least:,.0f}, of {shown}, to {most:,.0f}, of {top}; the median is {middle})"


def _is(name: str, kind: str) -> bool:
    entry = ledger()[name]
    return entry.is_erratum if kind == "erratum" else entry.weight == kind


def _ordinary(run) -> str:
    if not np.isfinite(float(run["holds"])):
        return f"The ordinary run with {NUM_HEADS} heads is missing."
    return (
        f"About an ordinary run with {NUM_HEADS} heads, {int(run['holds'])} statements hold, {int(run['silent'])} are "
        f"silent because a hypothesis fails, and {int(run['violated'])} are violated."
    )


def _shares(checks) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The statements for which both bounds can be compared, and the largest shares of ours and of the printed one."""
    names = checks["statement"].values.tolist()
    ours, printed = (checks[which].values.astype(float) for which in ("ours", "printed"))
    both = (
        ~np.array([_is(name, "erratum") for name in names])
        & np.isfinite(ours)
        & np.isfinite(printed)
    )
    return [name for name, keep in zip(names, both, strict=True) if keep], ours[both], printed[both]


def figures(results: Results) -> list[Figure]:
    labels, ours, printed = _shares(results["checks"].isel(seed=0))
    marks = [bars("ours", "ours", labels, ours), bars("printed", "as printed", labels, printed)]
    share = Axis("largest share of the bound", "measured / bound")
    panel = Panel("", Axis("statement", "ledger id"), share, marks, sideways=True)
    caption = "The share of each bound that the worst input found uses; 1 means attained. Random, adversarial "
    caption += "(gradient ascent) and extremal inputs."
    depth = _depth(results["checks"].isel(seed=0))
    tried = Axis("inputs tried", "count", log=True)
    inputs = [bars("measured", "inputs tried", list(depth), list(depth.values()))]
    depths = Panel("", Axis("statement", "ledger id"), tried, inputs, sideways=True)
    figures = [Figure("ledger-tightness", "How tight the bounds are", caption, [panel])]
    if depth:
        caption = "On how many inputs each statement was tried: random and adversarial points, runs, or data sets of "
        caption += "which a mean is taken. Full depth has 200 or more for every statement."
        figures.append(
            Figure("ledger-depth", "How thoroughly each statement was tried", caption, [depths])
        )
    return figures


STUDY = Study(
    name="ledger",
    title="Statements",
    question="Which statements of the paper hold, which are misprinted, and how tight are the bounds?",
    claim="Lemmas 1 to 3, Propositions 1 to 4, Theorems 1 and 2, their corollaries and the numbered equations.",
    settings=[
        stated("statements", "as numbered in the paper"),
        chosen("corrections", "the errata, each with the check that reproduces it"),
        chosen("inputs", "random, adversarial (gradient ascent) and extremal; quick or full depth"),
        chosen("data of the ordinary run", tasks.describe(DATA)),
        chosen("ordinary run", f"{NUM_HEADS} heads, step size {STEP_SIZE:g}, {STEPS} steps"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="truth",
    order=1,
    in_story=True,
    seconds=0.6,
)
