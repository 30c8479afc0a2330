"""Does what was learned carry over, and what do the bounds say about it?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.certificates.finding import half_width
from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, mean, number, power, ratio, rows
from manyheads.studies.kit.figure import Axis, Figure, Mark, Panel, by_heads, over_seeds
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import choose, choose_all, heads_text
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.generalization.cells"
DATA = {**tasks.MIXTURE, "dim": 14, "num_patterns": 6, "noise_mu": 0.3, "noise_nu": 0.3, "noise_norm": 1.2}
SIZES = Scaled([10, 20, 40, 80], [10, 20, 40, 80, 160])
STEP_SIZE, STEPS, FRESH = 0.2, 100, 100
LOOKS = {
    "test_loss": ("test", "test loss"),
    "left_out_loss": ("reference", "left-out loss"),
    "certificate": ("ours", "certificate"),
    "gap": ("measured", "measured gap"),
    "lemma3": ("ours", "Lemma 3"),
    "theorem2": ("printed", "Theorem 2, (5)"),
}
LITERAL_HEADS, LITERAL_STEP = 1e12, 0.004  # where Theorem 2's hypotheses are true


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "start": {"kind": "first_phase", "num_examples": FRESH},
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
    }
    gap = {
        "data": {**DATA, "num_examples": Scaled(max(SIZES.quick), max(SIZES.full)), "num_test": Scaled(1000, 4000)},
        "axes": {"model.num_heads": Scaled([2, 16, 256, 1e6], [1, 2, 4, 16, 64, 256, 1e6])},
        "seeds": Scaled(6, 12),
        "cell": f"{CELLS}:gap",
        "parameters": {"sizes": SIZES},
    }
    left_out = {
        "data": {**DATA, "num_test": Scaled(500, 2000)},
        "cell": f"{CELLS}:leave_one_out",
        "parameters": {"samples": Scaled(5, 12)},
    }
    few = {"data.num_examples": Scaled([10, 20], [10, 20, 40])}
    literal = {
        "model": {"num_heads": LITERAL_HEADS},
        "train": {"step_size": LITERAL_STEP, "num_steps": STEPS},
        "axes": few,
    }
    return grids(
        "generalization",
        scale,
        gap=common | gap,
        loo=common | left_out | {"axes": {"model.num_heads": [2, 256], **few}},
        literal=common | left_out | literal,
    )


def finding(results: Results) -> Finding:
    numbers = Numbers()
    gaps, loo, literal = (results[name] for name in ("gap", "loo", "literal"))
    heads = gaps["num_heads"].values
    few, many = heads_text(heads[0]), heads_text(heads[-1])
    law = []
    for h in heads:
        sizes, values = rows("sizes", gaps["gap"].sel(num_heads=h))
        name, where = f"{h:g}".replace("+", ""), f"H = {heads_text(h)}"
        exponent = exponent_of_mean(sizes, values)
        law.append(numbers.add(f"gap_exponent.{name}", f"exponent of the gap in n, {where}", exponent))
        caption = f"n times the gap, n = {sizes[-1]}, {where}"
        numbers.add(f"gap_times_n.{name}", caption, mean(sizes[-1] * values[-1]))
    by_number = rows("num_heads", gaps["gap"].mean("size", skipna=False))[1]
    caption = f"gap, H = {many} / H = {few}, mean over n"
    more = numbers.add("gap_ratio", caption, ratio(by_number[-1], by_number[0]))
    most = loo.isel(num_heads=-1)
    caption = f"exponent of the stability in n, H = {heads_text(float(most['num_heads']))}"
    spread = numbers.add("stability_exponent", caption, power("num_examples", most["stability"]))
    last, cover = most.isel(num_examples=-1), literal.isel(num_examples=-1)
    test = last["test_loss"]
    numbers.add("test_loss", "test loss, leave-one-out runs", mean(test))
    left_out = numbers.add("left_out_ratio", "left-out loss / test loss", ratio(last["left_out_loss"], test))
    certificate = numbers.add("certificate_ratio", "certificate / test loss", ratio(last["certificate"], test))
    lemma3 = numbers.add("lemma3_ratio", "Lemma 3 / mean gap", _over_mean(last["lemma3"], last["gap"]))
    caption = "Theorem 2 / mean gap, where its hypotheses are true"
    theorem2 = numbers.add("theorem2_ratio", caption, _over_mean(cover["theorem2"], cover["gap"]))
    shrinks = choose_all(
        law,
        above="The gap grows with n",
        below=f"The gap falls with n, like n to the power {number(law[0].value)} to {number(law[-1].value)}",
        undecided="The gap has no clear trend in n",
        missing="The law of the gap in n was not measured",
    )
    unclear = "does not clearly change"
    grows = choose(more, at=1, above="grows", below="falls", undecided=unclear, missing=unclear)
    verdict, about = _theorem2(cover, theorem2)
    exceeded = {"Lemma 3": _exceeded(loo, "lemma3"), "Theorem 2": _exceeded(literal, "theorem2", hypotheses=True)}
    if broken := [name for name, places in exceeded.items() if places]:
        answer = f"{' and '.join(broken)}: the measured gap exceeds the bound"
    else:
        measured = any(bool(values.notnull().any()) for values in (cover["hypotheses"], gaps["gap"], loo["gap"]))
        answer = f"{shrinks}; {verdict}" if measured else "Not measured"
    sentences = [f"{shrinks}; with {many} heads instead of {few} it {grows}: {more} times.", about]
    details = [
        f"Leaving one sequence out moves the parameters by n to the power {spread}.",
        f"The left-out loss is {left_out} times the test loss, the certificate made from it {certificate} times, "
        f"Lemma 3 {lemma3} times the gap.",
    ]
    details += [
        f"{name} is exceeded by more than half of a 95% interval at {'; '.join(exceeded[name])}." for name in broken
    ]
    notes = (
        "Start, step size, heads and steps do not depend on the training sample, as Theorem 2 and Lemma 3 need.",
        "The certificate and Lemma 3 hold in expectation over samples; verdicts allow half of a 95% interval.",
    )
    cells = [gaps["gap"].isel(size=-1), loo["gap"].isel(sample=0), literal["gap"].isel(sample=0)]
    return conclude(answer, [*sentences, *details], numbers, cells, notes)


def _theorem2(cover: xarray.Dataset, factor: Estimate) -> tuple[str, str]:
    """Theorem 2 on the runs made for it: a few words for the answer, and a sentence."""
    if float(cover["hypotheses"].mean()) == 1:
        words = f"Theorem 2 is {number(factor.value, 2)} times above it" if factor.count else "Theorem 2 holds"
        return words, (
            f"With {heads_text(LITERAL_HEADS)} heads and step size {LITERAL_STEP:g} Theorem 2's hypotheses are true; "
            f"its bound is {factor} times the gap there."
        )
    if bool(cover["hypotheses"].notnull().any()):
        return "Theorem 2 is silent", "Theorem 2's hypotheses were not true of the runs made for it."
    return "Theorem 2 was not measured", "The runs made for Theorem 2 are missing."


def exponent_of_mean(x, values) -> Estimate:
    """The exponent p of the mean over seeds ~ x^p, with a jackknife over seeds: single gaps may be negative."""
    y = np.asarray(values, float)
    y = y[:, np.isfinite(y).all(axis=0)]  # seeds that lack a run are left out
    total, seeds = y.sum(axis=1), y.shape[1]
    without = [total, *(total - y.T)]  # all seeds, then all but one
    if seeds < 2 or any((row <= 0).any() for row in without):
        return NONE
    slopes = [np.polyfit(np.log(x), np.log(row), 1)[0] for row in without]
    return mean([seeds * slopes[0] - (seeds - 1) * slope for slope in slopes[1:]])


def _exceeded(data: xarray.Dataset, bound: str, hypotheses: bool = False) -> list[str]:
    """Where the mean gap over samples exceeds the mean bound by more than half of a 95% interval.

    With `hypotheses` only where they are true of every sample. One sample has no interval and decides nothing.
    """
    places = []
    stacked = data.stack(place=[dim for dim in data["gap"].dims if dim != "sample"])
    for i in range(stacked.sizes["place"]):
        one = stacked.isel(place=i)
        excess = (one["gap"] - one[bound]).values
        excess = excess[np.isfinite(excess)]
        silent = hypotheses and not bool((one["hypotheses"] == 1).all())
        if not len(excess) or silent:
            continue
        if excess.mean() > half_width(excess):
            heads = f"H = {heads_text(float(one['num_heads']))}, " if "num_heads" in one.coords else ""
            places.append(f"{heads}n = {int(one['num_examples'])}")
    return places


def _over_mean(bound: xarray.DataArray, gap: xarray.DataArray) -> Estimate:
    """The mean bound over the mean gap, with the interval of the mean gap: single gaps may be negative."""
    top, bottom = float(bound.mean()), mean(gap)
    if not bottom.value > 0:
        return NONE
    return Estimate(top / bottom.value, top / bottom.high, top / bottom.low if bottom.low > 0 else np.inf, bottom.count)


def figures(results: Results) -> list[Figure]:
    gaps, loo, literal = (results[name] for name in ("gap", "loo", "literal"))
    most = loo.isel(num_heads=-1)
    size, gap = Axis("sequences n", "count", log=True), Axis("gap", "nats", log=True)

    def series(data: xarray.Dataset, *names: str) -> list[Mark]:
        return [over_seeds(LOOKS[n][0], LOOKS[n][1], "num_examples", data[n], floor=0.0) for n in names]

    return [
        Figure(
            "generalization-gap",
            "Gap and stability, times n",
            "@1: test loss minus train loss. @2: the distance that leaving one sequence out makes. Each times n: flat "
            f"is the law 1/n. Step size {STEP_SIZE:g}, {STEPS} steps; means and 95% intervals.",
            [
                Panel("Gap times n", size, Axis("n × gap", "nats"), by_heads("sizes", gaps["gap"] * gaps["sizes"])),
                Panel(
                    "Stability times n",
                    size,
                    Axis("n × stability", "distance of parameters"),
                    by_heads("num_examples", loo["stability"] * loo["num_examples"]),
                ),
            ],
        ),
        Figure(
            "generalization-bounds",
            "What is certified",
            f"@1: {heads_text(float(most['num_heads']))} heads, step size {STEP_SIZE:g}, the test loss and its "
            f"certificate. @2: its gap and Lemma 3. @3: {heads_text(LITERAL_HEADS)} heads, step size "
            f"{LITERAL_STEP:g}, Theorem 2 made literal.",
            [
                Panel(
                    "Test loss and certificate",
                    size,
                    Axis("loss", "nats", log=True),
                    series(most, "test_loss", "left_out_loss", "certificate"),
                ),
                Panel("Gap and Lemma 3", size, gap, series(most, "gap", "lemma3")),
                Panel("Gap and Theorem 2", size, gap, series(literal, "gap", "lemma3", "theorem2")),
            ],
        ),
    ]


STUDY = Study(
    name="generalization",
    title="Generalization",
    question="Does what was learned carry over, and what do the bounds say about it?",
    claim="Theorem 2: the expected gap between test and train loss is at most (4/n)(2K·loss(θ) + 9‖θ-θ_0‖²/(4η)), by "
    "leave-one-out stability (Lemma 3).",
    settings=[
        stated("descent", tasks.DESCENT),
        stated("start", tasks.FIRST_PHASE),
        chosen("data", f"{tasks.describe(DATA)}; {FRESH} sequences of the first phase"),
        chosen(
            "descent's numbers",
            f"step size {STEP_SIZE:g}, {STEPS} steps; {LITERAL_STEP:g} and {heads_text(LITERAL_HEADS)} heads where "
            "Theorem 2 is made literal",
        ),
        chosen("targets", "along the paper's direction, the one with the least bound"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="generalization",
    order=1,
    in_story=True,
)
