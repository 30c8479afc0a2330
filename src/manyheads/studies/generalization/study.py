"""Does what was learned carry over, and what do the bounds say about it?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import palette, tasks
from manyheads.studies.kit.estimate import (
    NONE,
    Estimate,
    at_level,
    mean,
    number,
    power,
    quotient,
    ratio,
    rows,
)
from manyheads.studies.kit.figure import Axis, Figure, Mark, Panel, by_heads, over_seeds
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
from manyheads.studies.kit.words import choose_all, heads, heads_text
from manyheads.sweeps.spec import Sweep
from manyheads.theory.finding import half_width

CELLS = "manyheads.studies.generalization.cells"
DATA = {
    **tasks.MIXTURE,
    "dim": 14,
    "num_patterns": 6,
    "noise_mu": 0.3,
    "noise_nu": 0.3,
    "noise_norm": 1.2,
}
SIZES = Scaled([40, 80, 160, 320], [20, 40, 80, 160, 320, 640, 1280])
LARGE = 80  # the law is fitted from this n on; below it n times the gap is not yet flat
LAW = (-1.15, -0.85)  # an exponent whose interval lies in between is the law 1/n
WIDER = (-1.4, -0.6)  # one that contains -1 and lies in between is consistent with it
STEP_SIZE, STEPS, FRESH = 0.2, 100, 100
RECORDS = [
    10,
    20,
    30,
    40,
    50,
    60,
    70,
    80,
    90,
]  # and the last step; here runs are compared at equal train loss
UNTRAINED = 0.8  # of log 2: a train loss above this has hardly fallen
LOOKS = {
    "test_loss": ("test", "test loss"),
    "left_out_loss": ("reference", "left-out loss"),
    "certificate": ("ours", "certificate"),
    "gap": ("measured", "measured gap"),
    "lemma3": ("ours", "Lemma 3"),
    "theorem2": ("printed", "Theorem 2, (5)"),
}
LITERAL_HEADS, LITERAL_STEP = 1e12, 0.004  # where Theorem 2's hypotheses hold


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "start": {"kind": "first_phase", "num_examples": FRESH},
        "train": {"step_size": STEP_SIZE, "num_steps": STEPS},
    }
    gap = {
        "data": {
            **DATA,
            "num_examples": Scaled(max(SIZES.quick), max(SIZES.full)),
            "num_test": Scaled(500, 2000),
        },
        "axes": {"model.num_heads": Scaled([2, 1e6], [2, 16, 256, 1e6])},
        "seeds": Scaled(8, 12),
        "cell": f"{CELLS}:gap",
        "parameters": {"sizes": SIZES, "records": RECORDS},
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
    last, cover = loo.isel(num_heads=-1, num_examples=-1), literal.isel(num_examples=-1)
    law, levels = _law(gaps, numbers)
    confounded = _heads(gaps, numbers)
    most = loo.isel(num_heads=-1)
    caption = f"exponent of the stability in n, H = {heads_text(float(most['num_heads']))}"
    spread = numbers.add("stability_exponent", caption, power("num_examples", most["stability"]))
    test = last["test_loss"]
    numbers.add("test_loss", "test loss, leave-one-out runs", mean(test))
    left_out = numbers.add(
        "left_out_ratio", "left-out loss / test loss", ratio(last["left_out_loss"], test)
    )
    certificate = numbers.add(
        "certificate_ratio", "certificate / test loss", ratio(last["certificate"], test)
    )
    lemma3 = numbers.add(
        "lemma3_ratio", "Lemma 3 / mean gap", _over_mean(last["lemma3"], last["gap"])
    )
    verdict, about = _theorem2(cover, numbers)
    exceeded = {
        "Lemma 3": _exceeded(loo, "lemma3"),
        "Theorem 2": _exceeded(literal, "theorem2", hypotheses=True),
    }
    if broken := [name for name, places in exceeded.items() if places]:
        answer = f"{' and '.join(broken)}: the measured gap exceeds the bound"
    else:
        measured = any(
            bool(values.notnull().any())
            for values in (cover["hypotheses"], gaps["gap"], loo["gap"])
        )
        setting = f"mixture, {STEPS} steps of {STEP_SIZE:g}"
        answer = f"{law} ({setting}{levels}); {verdict}" if measured else "Not measured"
    details = [
        f"Leaving one sequence out moves the parameters by n to the power {spread}, at small n.",
        f"At n = {int(last['num_examples']):,} the left-out loss is {left_out} times the test loss, the certificate "
        f"made from it {certificate} times, Lemma 3 {lemma3} times the gap.",
    ]
    details += [
        f"{name} is exceeded by more than half of a 95% interval at {'; '.join(exceeded[name])}."
        for name in broken
    ]
    notes = (
        "Start, step size, heads and steps do not depend on the training sample, as Theorem 2 and Lemma 3 need.",
        "The certificate and Lemma 3 hold in expectation over samples; verdicts allow half of a 95% interval.",
        "To reduce noise, the gap of a run on other sequences, zero in expectation, is subtracted from every gap.",
    )
    cells = [
        gaps["gap"].isel(size=-1, record=-1),
        loo["gap"].isel(sample=0),
        literal["gap"].isel(sample=0),
    ]
    return conclude(answer, [confounded, about, *details], numbers, cells, notes)


def _law(gaps: xarray.Dataset, numbers: Numbers) -> tuple[str, str]:
    """How the gap falls with n from LARGE on, and n times the gap at the largest n."""
    laws, levels = [], []
    for h in gaps["num_heads"].values:
        sizes, values = rows("sizes", gaps["gap"].isel(record=-1).sel(num_heads=h))
        name, where = f"{h:g}".replace("+", ""), f"H = {heads_text(h)}"
        for part, kept, text in (
            ("", sizes >= LARGE, f"n >= {LARGE}"),
            ("_small", sizes <= LARGE, f"n <= {LARGE}"),
        ):
            exponent = exponent_of_mean(sizes[kept], values[kept]) if kept.sum() > 1 else NONE
            numbers.add(
                f"gap_exponent{part}.{name}", f"exponent of the gap in n, {text}, {where}", exponent
            )
        laws.append(numbers[f"gap_exponent.{name}"].estimate)
        caption = f"n times the gap, n = {sizes[-1]:,}, {where}"
        level = numbers.add(f"gap_times_n.{name}", caption, mean(sizes[-1] * values[-1]))
        if h in (gaps["num_heads"].values[0], gaps["num_heads"].values[-1]) and level.count:
            levels.append(f"{level} nats with {heads_text(h)} heads")
    return _law_words(laws), f"; n × gap = {' and '.join(levels)}" if levels else ""


def _law_words(laws: list[Estimate]) -> str:
    """The law of the gap, from its exponents at all numbers of heads."""
    if not any(law.count for law in laws):
        return "The law of the gap in n was not measured"
    known = [law for law in laws if law.count]
    ends = sorted(law.value for law in known)
    span = (
        number(ends[0])
        if number(ends[0]) == number(ends[-1])
        else f"{number(ends[0])} to {number(ends[-1])}"
    )
    start = f"From n = {LARGE} on the gap"
    if all(law.above(LAW[0]) and law.below(LAW[1]) for law in known):
        return f"{start} falls like 1/n"
    if all(
        law.above(WIDER[0]) and law.below(WIDER[1]) and law.low <= -1 <= law.high for law in known
    ):
        return f"{start} falls, consistent with 1/n (exponent {span})"
    said = choose_all(
        known,
        above=f"{start} grows with n",
        below=f"{start} falls with n, exponent {span}",
        undecided=f"{start} has no clear trend in n",
    )
    away = any(law.above(-1) or law.below(-1) for law in known)
    return f"{said}: not 1/n" if away and said.endswith(span) else said


def _heads(gaps: xarray.Dataset, numbers: Numbers) -> str:
    """The gap of the most heads over that of the fewest: after equal steps, at equal train loss, over the test loss."""
    largest = gaps.isel(size=-1).transpose(..., "seed", "record")
    few, many = (heads_text(float(h)) for h in (gaps["num_heads"][0], gaps["num_heads"][-1]))
    ends = [largest.isel(num_heads=0), largest.isel(num_heads=-1)]
    low, high = (data["gap"].isel(record=-1).values for data in ends)
    at, caption = f"H = {many} / H = {few}, n = {int(gaps['sizes'][-1]):,}", "gap"
    equal = numbers.add("gap_ratio", f"{caption}, after equal steps, {at}", quotient(high, low))
    levels = np.maximum(*(data["train_loss"].isel(record=-1).values for data in ends))
    matched = [at_level(data["train_loss"], data["gap"], levels) for data in ends]
    fair = numbers.add(
        "gap_ratio_matched",
        f"{caption}, at equal train loss, {at}",
        quotient(matched[1], matched[0]),
    )
    tests = [data["test_loss"].isel(record=-1).mean("seed").item() for data in ends]
    share = numbers.add(
        "gap_share_ratio", f"gap / test loss, {at}", quotient(high / tests[1], low / tests[0])
    )
    if not (equal.count and fair.count):
        return "The gaps of few and many heads could not be compared."
    return (
        f"After equal steps {many} heads have {equal} times the gap of {few}, at equal train loss "
        f"({number(float(levels.mean()))} nats) {fair} times, and {share} times the share of the test loss."
    )


def _theorem2(cover: xarray.Dataset, numbers: Numbers) -> tuple[str, str]:
    """Theorem 2 on the runs set up for it: a few words for the answer, and a sentence."""
    caption = "Theorem 2 / mean gap, where its hypotheses hold"
    factor = numbers.add("theorem2_ratio", caption, _over_mean(cover["theorem2"], cover["gap"]))
    bound = numbers.add("theorem2_bound", "Theorem 2's bound, nats", mean(cover["theorem2"]))
    loss = numbers.add(
        "theorem2_train_loss",
        "train loss of the runs of Theorem 2, nats",
        mean(cover["train_loss"]),
    )
    if float(cover["hypotheses"].mean()) == 1:
        state = "an almost untrained run" if loss.value > UNTRAINED * np.log(2) else "a trained run"
        words = f"Theorem 2 allows {bound} nats on {state}"
        return words, (
            f"Theorem 2's hypotheses hold with {heads_text(LITERAL_HEADS)} heads and step size {LITERAL_STEP:g}: "
            f"there {STEPS} steps reach a train loss of {loss} (log 2 = 0.693 is chance), the gap is "
            f"{mean(cover['gap'])} and the bound {bound} nats, {factor} times as much."
        )
    if bool(cover["hypotheses"].notnull().any()):
        return "Theorem 2 is silent", "Theorem 2's hypotheses failed on the runs set up for it."
    return "Theorem 2 was not measured", "The runs set up for Theorem 2 are missing."


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

    With `hypotheses` only where they hold for every sample. One sample has no interval and decides nothing.
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
            heads = (
                f"H = {heads_text(float(one['num_heads']))}, " if "num_heads" in one.coords else ""
            )
            places.append(f"{heads}n = {int(one['num_examples']):,}")
    return places


def _over_mean(bound: xarray.DataArray, gap: xarray.DataArray) -> Estimate:
    """The mean bound over the mean gap, with the interval of the mean gap: single gaps may be negative."""
    top, bottom = float(bound.mean()), mean(gap)
    if not bottom.value > 0:
        return NONE
    return Estimate(
        top / bottom.value,
        top / bottom.high,
        top / bottom.low if bottom.low > 0 else np.inf,
        bottom.count,
    )


def figures(results: Results) -> list[Figure]:
    gaps, loo, literal = (results[name] for name in ("gap", "loo", "literal"))
    most = loo.isel(num_heads=-1)
    size, gap = Axis("sequences n", "count", log=True), Axis("gap", "nats", log=True)
    times_n = gaps["gap"].isel(record=-1) * gaps["sizes"]

    def series(data: xarray.Dataset, *names: str) -> list[Mark]:
        return [
            over_seeds(LOOKS[n][0], LOOKS[n][1], "num_examples", data[n], floor=0.0) for n in names
        ]

    return [
        Figure(
            "generalization-gap",
            "Gap and stability, times n",
            f"@1: test loss minus train loss. @2: the same along the run, n = {int(gaps['sizes'][-1]):,}. @3: the "
            "distance caused by leaving one sequence out. Flat in n means the law 1/n. "
            f"Step size {STEP_SIZE:g}, {STEPS} steps; means and 95% intervals.",
            [
                Panel(
                    "Gap times n",
                    size,
                    Axis("n × gap", "nats", limits=_from_zero(times_n)),
                    by_heads("sizes", times_n),
                ),
                Panel(
                    "Gap over train loss", Axis("train loss", "nats", log=True), gap, _along(gaps)
                ),
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
            f"{LITERAL_STEP:g}, where Theorem 2's hypotheses hold.",
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


def _from_zero(values: xarray.DataArray) -> tuple[float, float]:
    """Limits that show how flat a line is."""
    top = float(values.mean("seed").max())
    return 0.0, 1.3 * top if np.isfinite(top) and top > 0 else 1.0


def _along(gaps: xarray.Dataset) -> list[Mark]:
    """The mean gap over the mean train loss along the run, for the largest n."""
    marks = []
    for h in gaps["num_heads"].values.tolist():
        one = gaps.isel(size=-1, record=slice(1, None)).sel(num_heads=h)
        losses = one["train_loss"].mean("seed").values
        mark = over_seeds(
            palette.heads(h),
            heads(h),
            losses,
            one["gap"].transpose("record", "seed").values,
            floor=0.0,
        )
        marks.append(mark)
    return marks


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
            "descent",
            f"step size {STEP_SIZE:g}, {STEPS} steps; {LITERAL_STEP:g} and {heads_text(LITERAL_HEADS)} heads where "
            "Theorem 2's hypotheses hold",
        ),
        chosen("targets", "along the paper's direction, the one with the smallest bound"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="generalization",
    order=1,
    in_story=True,
    seconds=1.5,
)
