"""Which statements of the paper hold, which are misprinted, and how tight are the bounds?"""

from __future__ import annotations

import numpy as np

from manyheads.certificates.ledger import ledger
from manyheads.studies import tasks
from manyheads.studies.estimate import Estimate, lacking, mean, number
from manyheads.studies.figure import Axis, Figure, Panel, bars
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.cells.ledger"


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    return {
        "checks": grid(
            name="ledger-checks",
            axes={"parameters.statement": list(ledger())},
            cell=f"{CELLS}:check",
            parameters={"quick": quick},
        ),
        "run": grid(
            name="ledger-run",
            data={**tasks.MIXTURE, "num_examples": 100, "num_test": 300},
            model={"num_heads": 64},
            train={"step_size": 0.2, "num_steps": 150},
            cell=f"{CELLS}:run",
        ),
    }


def finding(results: Results) -> Finding:
    checks = results["checks"].isel(seed=0)
    errata = np.array([ledger()[name].is_erratum for name in checks["statement"].values.tolist()])
    real = np.array([ledger()[name].weight == "real" for name in checks["statement"].values.tolist()])
    told = checks["holds"].values.astype(float)  # NaN where a check is missing, which is no verdict
    holds, known = told > 0, np.isfinite(told)
    statements, kept = int((~errata & known).sum()), int(holds[~errata].sum())
    shown, wrong = int(holds[errata].sum()), int(holds[real].sum())
    trials = int(np.nansum(checks["trials"].values))
    ours, printed = _shares(checks, errata)
    reached = mean(ours)
    numbers: dict[str, Estimate] = {
        "largest share of our bound reached, mean over statements": reached,
        "the same share of the printed bound": mean(printed),
    }
    if int(results["run"]["violated"].sum()):
        answer = "A statement is violated on an ordinary run although its hypotheses hold"
    elif statements == 0:
        answer = "Not measured"
    elif kept == statements:
        answer = f"All {statements} hold once corrected; {wrong} are wrong as printed"
        if unknown := int((~errata & ~known).sum()):
            answer = answer.replace(f"All {statements}", f"All {statements} that were checked ({unknown} were not)")
    else:
        failed = checks["statement"].values[~holds & known & ~errata].tolist()
        answer = f"{statements - kept} of {statements} fail even when corrected: {', '.join(failed)}"
    sentence = (
        f"{kept} of {statements} statements hold in their corrected form on {trials:,} random, adversarial and "
        f"extremal inputs, and {shown} of {int((errata & known).sum())} errata are reproduced, {wrong} of them "
        f"real errors. Where a bound can be compared, the inputs reach {reached} of ours and "
        f"{number(mean(printed).value)} of the printed one. {_ordinary(results['run'].isel(seed=0))}"
    )
    if gone := lacking(told, results["run"]["violated"]):
        sentence += f" {gone}"
    return Finding(answer, sentence, numbers, ("The interval is over statements, not over seeds.",))


def _ordinary(run) -> str:
    if not np.isfinite(float(run["holds"])):
        return "The ordinary run with 64 heads is missing."
    said = {word: int(run[word]) for word in ("holds", "silent", "violated")}
    return (
        f"About an ordinary run with 64 heads, {said['holds']} statements hold, {said['silent']} are silent because a "
        f"hypothesis fails, and {said['violated']} are violated."
    )


def _shares(checks, errata) -> tuple[np.ndarray, np.ndarray]:
    """Largest shares of the bounds, ours and printed, where both exist."""
    ours, printed = checks["ours"].values.astype(float), checks["printed"].values.astype(float)
    both = ~errata & np.isfinite(ours) & np.isfinite(printed)
    return ours[both], printed[both]


def figures(results: Results) -> list[Figure]:
    checks = results["checks"].isel(seed=0)
    names = checks["statement"].values.tolist()
    errata = np.array([ledger()[name].is_erratum for name in names])
    ours, printed = _shares(checks, errata)
    values = checks["ours"].values.astype(float), checks["printed"].values.astype(float)
    both = ~errata & np.isfinite(values[0]) & np.isfinite(values[1])
    labels = [name for name, keep in zip(names, both, strict=True) if keep]
    marks = [bars("ours", "ours", labels, ours), bars("printed", "as printed", labels, printed)]
    share = Axis("most of the bound used", "measured / bound")
    panel = Panel("", Axis("statement", "ledger id"), share, marks, sideways=True)
    caption = "How much of each bound the worst input found uses; 1 means that it is attained. Random, adversarial "
    caption += "(gradient ascent) and extremal inputs."
    return [Figure("ledger-tightness", "How tight the bounds are", caption, [panel])]


STUDY = Study(
    name="ledger",
    title="Statements",
    question="Which statements of the paper hold, which are misprinted, and how tight are the bounds?",
    claim="Lemmas 1 to 3, Propositions 1 to 4, Theorems 1 and 2, their corollaries and the numbered equations.",
    settings=[
        stated("statements", "as numbered in the paper"),
        chosen("corrections", "26 errata, each with the check that reproduces it"),
        chosen("inputs", "random, adversarial (gradient ascent) and extremal; quick or full depth"),
        chosen("ordinary run", tasks.MIXTURE_TEXT + "; 100 sequences, 64 heads, step size 0.2, 150 steps"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
