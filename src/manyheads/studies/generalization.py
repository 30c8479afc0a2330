"""Does what was learned carry over, and what do the bounds say about it?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies import palette
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, power, ratio
from manyheads.studies.figure import Axis, Figure, Panel, line, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.cells.generalization"
DATA = {
    "kind": "mixture",
    "num_tokens": 8,
    "dim": 14,
    "num_patterns": 6,
    "sparsity": 0.25,
    "signal": 1.5,
    "noise_mu": 0.3,
    "noise_nu": 0.3,
    "noise_norm": 1.2,
}
DATA_TEXT = "tokenized mixture, T=8, d=14, M=6, S=1.5, zeta=1/4, Z_mu=Z_nu=0.3, Z=1.2"
LITERAL_HEADS, LITERAL_STEP = 1e12, 0.004  # where Theorem 2's hypotheses are true


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    sizes = [10, 20, 40, 80] if quick else [10, 20, 40, 80, 160]
    start = {"kind": "first_phase", "num_examples": 100}
    gaps = grid(
        name="generalization-gap",
        data={**DATA, "num_examples": max(sizes), "num_test": 1000 if quick else 4000},
        start=start,
        train={"step_size": 0.2, "num_steps": 100},
        axes={"model.num_heads": [2, 16, 256, 1e6] if quick else [1, 2, 4, 16, 64, 256, 1e6]},
        seeds=6 if quick else 12,
        cell=f"{CELLS}:gap",
        parameters={"sizes": sizes},
    )
    common = {
        "data": {**DATA, "num_test": 500 if quick else 2000},
        "start": start,
        "cell": f"{CELLS}:leave_one_out",
        "parameters": {"samples": 5 if quick else 12},
    }
    few = {"data.num_examples": [10, 20] if quick else [10, 20, 40]}
    left_out = grid(
        name="generalization-loo",
        train={"step_size": 0.2, "num_steps": 100},
        axes={"model.num_heads": [2, 256], **few},
        **common,
    )
    literal = grid(
        name="generalization-literal",
        model={"num_heads": LITERAL_HEADS},
        train={"step_size": LITERAL_STEP, "num_steps": 100},
        axes=few,
        **common,
    )
    return {"gap": gaps, "loo": left_out, "literal": literal}


def finding(results: Results) -> Finding:
    gaps, loo, literal = (results[name] for name in ("gap", "loo", "literal"))
    sizes, heads = gaps["sizes"].values, gaps["num_heads"].values
    numbers: dict[str, Estimate] = {}
    for h in heads:
        values = gaps["gap"].sel(num_heads=h).transpose("size", "seed").values
        numbers[f"exponent of the gap in n, H = {heads_text(h)}"] = exponent_of_mean(sizes, values)
        numbers[f"n times the gap, n = {sizes[-1]}, H = {heads_text(h)}"] = mean(sizes[-1] * values[-1])
    by_heads = gaps["gap"].mean("size", skipna=False).transpose("num_heads", "seed").values
    few, many = heads_text(heads[0]), heads_text(heads[-1])
    more = ratio(by_heads[-1], by_heads[0])
    numbers[f"gap, H = {many} / H = {few}, mean over n"] = more
    law = [numbers[f"exponent of the gap in n, H = {heads_text(h)}"] for h in heads]
    stable = loo["stability"].squeeze("seed", drop=True).transpose("num_heads", "num_examples", "sample").values
    counts = loo["num_examples"].values
    spread = power(counts, stable.reshape(-1, len(counts), stable.shape[-1])[-1])
    last = loo.isel(num_examples=-1, num_heads=-1)
    cover = literal.isel(num_examples=-1)
    numbers |= {
        f"exponent of the stability in n, H = {heads_text(loo['num_heads'].values[-1])}": spread,
        "test loss, leave-one-out runs": mean(last["test_loss"]),
        "left-out loss / test loss": ratio(last["left_out_loss"], last["test_loss"]),
        "certificate / test loss": ratio(last["certificate"], last["test_loss"]),
        "Lemma 3 / mean gap": _over_mean(last["lemma3"], last["gap"]),
        "Theorem 2 / mean gap, where its hypotheses are true": _over_mean(cover["theorem2"], cover["gap"]),
    }
    grows = "grows" if more.above(1) else "falls" if more.below(1) else "does not clearly change"
    if all(e.count == 0 for e in law):
        shrinks = "The law of the gap in n was not measured"
    elif all(e.below(0) for e in law):
        shrinks = f"The gap falls with n, like n to the power {number(law[0].value)} to {number(law[-1].value)}"
    elif all(e.above(0) for e in law):
        shrinks = "The gap grows with n"
    else:
        shrinks = "The gap has no clear trend in n"
    ran = bool(cover["hypotheses"].notnull().any())
    holds = float(cover["hypotheses"].mean()) == 1
    broken = _exceeded(loo, "lemma3"), _exceeded(literal, "theorem2", hypotheses=True)
    measured = ran or bool(gaps["gap"].notnull().any()) or bool(loo["gap"].notnull().any())
    if any(broken):
        names = [name for name, places in zip(("Lemma 3", "Theorem 2"), broken, strict=True) if places]
        answer = f"{' and '.join(names)}: the measured gap exceeds the bound"
    elif not measured:
        answer = "Not measured"
    else:
        factor = numbers["Theorem 2 / mean gap, where its hypotheses are true"]
        words = "Theorem 2 is silent" if ran else "Theorem 2 was not measured"
        if holds:
            words = f"Theorem 2 is {number(factor.value, 2)} times above it" if factor.count else "Theorem 2 holds"
        answer = f"{shrinks}; {words}"
    sentence = (
        f"{shrinks}. With {many} heads instead of {few} it {grows}: {more} times. Leaving one sequence out moves the "
        f"parameters by n to the power {spread}. The left-out loss is {numbers['left-out loss / test loss']} times "
        f"the test loss, the certificate made from it {numbers['certificate / test loss']} times, Lemma 3 "
        f"{numbers['Lemma 3 / mean gap']} times the gap. "
    )
    if holds:
        sentence += (
            f"With {heads_text(LITERAL_HEADS)} heads and step size {LITERAL_STEP:g} Theorem 2's hypotheses are true; "
            f"its bound is {numbers['Theorem 2 / mean gap, where its hypotheses are true']} times the gap there."
        )
    elif ran:
        sentence += "Theorem 2's hypotheses were not true of the runs made for it."
    else:
        sentence += "The runs made for Theorem 2 are missing."
    for name, places in zip(("Lemma 3", "Theorem 2"), broken, strict=True):
        if places:
            sentence += f" {name} is exceeded by more than two standard errors at {'; '.join(places)}."
    if gone := lacking(gaps["gap"].isel(size=-1), loo["gap"].isel(sample=0), literal["gap"].isel(sample=0)):
        sentence += f" {gone}"
    notes = (
        "Start, step size, heads and steps do not depend on the training sample, as Theorem 2 and Lemma 3 need.",
        "The certificate and Lemma 3 hold in expectation over samples; verdicts allow two standard errors.",
    )
    return Finding(answer, sentence, numbers, notes)


def exponent_of_mean(x, values) -> Estimate:
    """The exponent p of the mean over seeds ~ x^p, with a jackknife over seeds: single gaps may be negative."""
    y = np.asarray(values, float)
    y = y[:, np.isfinite(y).all(axis=0)]  # seeds that lack a run are left out
    total, seeds = y.sum(axis=1), y.shape[1]
    without = [total, *(total - y.T)]  # all seeds, then all but one
    if seeds < 2 or any((row <= 0).any() for row in without):
        return mean([])
    slopes = [np.polyfit(np.log(x), np.log(row), 1)[0] for row in without]
    return mean([seeds * slopes[0] - (seeds - 1) * slope for slope in slopes[1:]])


def _exceeded(data: xarray.Dataset, bound: str, hypotheses: bool = False) -> list[str]:
    """Where the mean gap over samples exceeds the mean bound by more than two standard errors of their difference.

    With `hypotheses` only where they are true of every sample. One sample has no standard error and decides nothing.
    """
    places = []
    stacked = data.stack(place=[dim for dim in data["gap"].dims if dim != "sample"])
    for i in range(stacked.sizes["place"]):
        one = stacked.isel(place=i)
        excess = (one["gap"] - one[bound]).values
        excess = excess[np.isfinite(excess)]
        silent = hypotheses and not bool((one["hypotheses"] == 1).all())
        if len(excess) < 2 or silent:
            continue
        if excess.mean() > 2 * excess.std(ddof=1) / np.sqrt(len(excess)):
            heads = f"H = {heads_text(float(one['num_heads']))}, " if "num_heads" in one.coords else ""
            places.append(f"{heads}n = {int(one['num_examples'])}")
    return places


def _over_mean(bound: xarray.DataArray, gap: xarray.DataArray) -> Estimate:
    """The mean bound over the mean gap, with the interval of the mean gap: single gaps may be negative."""
    top, bottom = float(bound.mean()), mean(gap)
    if not bottom.value > 0:
        return mean([])
    return Estimate(top / bottom.value, top / bottom.high, top / bottom.low if bottom.low > 0 else np.inf, bottom.count)


def figures(results: Results) -> list[Figure]:
    gaps, loo, literal = (results[name] for name in ("gap", "loo", "literal"))
    sizes, size = gaps["sizes"].values, Axis("sequences n", "count", log=True)
    marks = [
        over_seeds(
            palette.heads(h),
            f"{heads_text(h)} {'head' if h == 1 else 'heads'}",
            sizes,
            gaps["gap"].sel(num_heads=h).transpose("size", "seed").values * sizes[:, None],
        )
        for h in gaps["num_heads"].values
    ]
    counts = loo["num_examples"].values
    pick = loo.isel(num_heads=-1).squeeze("seed", drop=True)
    exact = literal.squeeze("seed", drop=True)

    def series(role, label, data, variable):
        return _positive(role, label, counts, data[variable].transpose("num_examples", "sample").values)

    loss, difference = Axis("loss", "nats", log=True), Axis("gap", "nats", log=True)
    test = [
        series("test", "test loss", pick, "test_loss"),
        series("reference", "left-out loss", pick, "left_out_loss"),
        series("ours", "certificate", pick, "certificate"),
    ]
    lemma = [series("measured", "measured gap", pick, "gap"), series("ours", "Lemma 3", pick, "lemma3")]
    theorem = [
        series("measured", "measured gap", exact, "gap"),
        series("ours", "Lemma 3", exact, "lemma3"),
        series("printed", "Theorem 2, (5)", exact, "theorem2"),
    ]
    moved = [
        over_seeds(
            palette.heads(h),
            f"{heads_text(h)} heads",
            counts,
            loo["stability"].sel(num_heads=h).squeeze("seed", drop=True).transpose("num_examples", "sample").values
            * counts[:, None],
        )
        for h in loo["num_heads"].values
    ]
    most = heads_text(loo["num_heads"].values[-1])
    return [
        Figure(
            "generalization-gap",
            "Gap and stability, times n",
            "Test loss minus train loss, and the distance that leaving one sequence out makes, each times n: flat "
            "is the law 1/n. Step size 0.2, 100 steps; means and 95% intervals.",
            [
                Panel("Gap times n", size, Axis("n × gap", "nats"), marks),
                Panel("Stability times n", size, Axis("n × stability", "distance of parameters"), moved),
            ],
        ),
        Figure(
            "generalization-bounds",
            "What is certified",
            f"Top: {most} heads, step size 0.2, the test loss and its certificate; middle: its gap and "
            f"Lemma 3. Bottom: {heads_text(LITERAL_HEADS)} heads, step size {LITERAL_STEP:g}, Theorem 2 made literal.",
            [
                Panel("Test loss and certificate", size, loss, test),
                Panel("Gap and Lemma 3", size, difference, lemma),
                Panel("Gap and Theorem 2", size, difference, theorem),
            ],
        ),
    ]


def _positive(role: str, label: str, x, values):
    """Means with their intervals; what is not positive is not drawn on a logarithmic axis."""
    estimates = [mean(row) for row in np.asarray(values, float)]
    center = [e.value if e.value > 0 else np.nan for e in estimates]
    low = [e.low if e.low > 0 else np.nan for e in estimates]
    return line(role, label, x, center, low, [e.high for e in estimates])


STUDY = Study(
    name="generalization",
    title="Generalization",
    question="Does what was learned carry over, and what do the bounds say about it?",
    claim="Theorem 2: the expected gap between test and train loss is at most (4/n)(2K·loss(θ) + 9‖θ-θ_0‖²/(4η)), by "
    "leave-one-out stability (Lemma 3).",
    settings=[
        stated("descent", "full batch, constant step size, logistic loss"),
        stated("start", "first phase: one step from zero on fresh data, heads with signs +1 and -1"),
        chosen("data", DATA_TEXT + "; 100 sequences of the first phase"),
        chosen("descent's numbers", "step size 0.2, 100 steps; 0.004 and 10^12 heads where Theorem 2 is made literal"),
        chosen("targets", "along the paper's direction, the one with the least bound"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
