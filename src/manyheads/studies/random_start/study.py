"""Does a random start separate the data in the tangent kernel, and with what margin?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, mean, number, power, ratio, rows
from manyheads.studies.kit.figure import HEADS, TANGENT_MARGIN, Axis, Figure, MapPanel, Panel, over_seeds
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import choose, heads
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.random_start.cells"
EASY = {**tasks.MIXTURE, "num_examples": 100, "num_test": 0}
HARD = {**tasks.HARD_MIXTURE, "num_examples": 100, "num_test": 0}
LABELS = {**tasks.RANDOM_LABELS, "num_examples": 160}
NUM_HEADS, DRAWS = 16, Scaled(64, 256)
SIZES = Scaled([50, 100, 200, 400], [50, 100, 200, 400, 800, 1600])
PARTS = {"key_query_scale": "W", "readout_scale": "U"}
EQUAL = (1 / 1.05, 1.05)  # ratios in between count as equal
NEARLY = 0.9  # of the margin: where a linear model has more, margins say nothing about attention
FLAT = (-0.05, 0.05)  # exponents in between are hardly a dependence
STARTS = (
    ("gaussian", f"Gaussian, {NUM_HEADS} heads", "margin"),
    ("first phase", "first phase", "first_phase_margin"),
    ("zero", "zero", "zero_margin"),
)


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "data": HARD,
        "start": {"kind": "gaussian"},
        "model": {"num_heads": NUM_HEADS},
        "cell": f"{CELLS}:separation",
        "seeds": Scaled(4, 6),
    }
    sizes = {"data.num_examples": SIZES}
    scales = Scaled([0.1, 1, 10], [0.01, 0.1, 0.3, 1, 3, 10])
    alone = {**common, "parameters": {"compare": False}}
    return grids(
        "random_start",
        scale,
        easy={**common, "data": EASY},
        hard={**common, "axes": sizes},
        limit={**common, "axes": sizes, "cell": f"{CELLS}:infinite", "parameters": {"draws": DRAWS}},
        heads={**alone, "axes": {"model.num_heads": Scaled([1, 4, 16, 64], [1, 2, 4, 8, 16, 64, 256, 1024])}},
        labels={**alone, "data": LABELS, "axes": {"model.num_heads": Scaled([1, 4, 16], [1, 2, 4, 16, 64, 256])}},
        scale={**alone, "axes": {f"start.{part}": scales for part in PARTS}},
    )


def finding(results: Results) -> Finding:
    numbers, hard, easy = Numbers(), results["hard"], results["easy"]
    for n in hard["num_examples"].values:
        here = hard.sel(num_examples=n)
        for _, label, variable in STARTS:
            name = f"{variable}.{n:g}"
            numbers.add(name, f"margin, {label}, hard mixture, n = {n:g}", mean(here[variable]))
    last = hard.isel(num_examples=-1)
    linear = numbers.add(
        "linear_share", "zero / Gaussian margin, easy mixture, n = 100", ratio(easy["zero_margin"], easy["margin"])
    )
    both = bool((last["first_phase_margin"] > 0).all())
    over = ratio(last["margin"], last["first_phase_margin"]) if both else NONE
    n = int(hard["num_examples"][-1])
    numbers.add("over_first_phase", f"Gaussian / first-phase margin, hard mixture, n = {n}", over)
    wide = numbers.add(
        "over_limit",
        f"margin, {NUM_HEADS} Gaussian heads / infinitely many, hard mixture, n = {n}",
        ratio(last["margin"], results["limit"]["margin"].isel(num_examples=-1)),
    )
    precise = results["limit"].isel(num_examples=-1)
    numbers.add("limit_draws", f"limit, all draws / half of them, n = {n}", ratio(precise["margin"], precise["half"]))
    exponents = {
        "n": ("exponent of the Gaussian margin in n, hard mixture", _power(hard, "num_examples")),
        "hard": ("exponent of the margin in H, hard mixture, n = 100", _power(results["heads"], "num_heads")),
        "labels": ("exponent of the margin in H, random labels", _power(results["labels"], "num_heads")),
    }
    for name, (caption, estimate) in exponents.items():
        numbers.add(f"exponent.{name}", caption, estimate)
    beyond = _beyond(hard)
    sentences = [
        f"On the hard mixture with n = {n} the margin is {mean(last['margin'])} from {NUM_HEADS} Gaussian heads, "
        f"{mean(last['first_phase_margin'])} from the first phase and {mean(last['zero_margin'])} from zero; "
        f"{NUM_HEADS} heads have {wide} times the margin of infinitely many.",
        f"On the easy mixture (n = 100) the zero start, a linear model, has {_percent(linear)} of the Gaussian margin"
        f"{'; there is hardly anything to compare' if linear.above(NEARLY) else ''}.",
        f"On the hard mixture the Gaussian margin {_trend(exponents['n'][1])} with n (exponent {exponents['n'][1]}) "
        f"and {_trend(exponents['hard'][1])} with H (exponent {exponents['hard'][1]}, n = 100).",
        f"Random labels are separated {_enough(results['labels'])}; there the margin {_trend(exponents['labels'][1])} "
        f"with H (exponent {exponents['labels'][1]}).",
        _by_scale(results["scale"], numbers),
    ]
    note = "Every margin is a lower end that a direction proves; a margin of zero means that none was proved."
    cells = [data["margin"] for data in results.values()]
    return conclude(_answer(hard, over, beyond), sentences, numbers, cells, [note])


def _answer(hard: xarray.Dataset, over: Estimate, beyond: float) -> str:
    """What the largest sample says: a linear model separates nothing there, or else the comparison is about those."""
    last, n = hard.isel(num_examples=-1), int(hard["num_examples"][-1])
    known = last["separable"].values.astype(float)
    known = known[np.isfinite(known)]
    if not len(known):
        return "Not measured"
    count = int(known.sum())
    if count == 0:
        separated = f"No: none of {len(known)} Gaussian starts separates the hard mixture"
    elif count < len(known):
        separated = f"Sometimes: {count} of {len(known)} Gaussian starts separate the hard mixture"
    else:
        separated = f"Yes: all {len(known)} Gaussian starts separate the hard mixture"
    where = f" (n = {n}, {NUM_HEADS} heads of norm 1)"
    if not np.isfinite(beyond):
        return f"{separated}{where}, which a linear model separates too: margins there say little about attention"
    if not over.count:
        return f"{separated}{where}; not every first phase does, and a linear model does not from n = {beyond:g} on"
    compared = choose(
        over,
        at=EQUAL,
        above=f"with {number(over.value, 2)} times the margin of the first phase",
        below=f"with {number(over.value, 2)} times the margin of the first phase",
        inside="with the margin of the first phase, within 5%",
        undecided="with a margin not clearly different from that of the first phase",
    )
    return f"{separated}{where}, {compared}; a linear model does not from n = {beyond:g} on"


def _beyond(hard: xarray.Dataset) -> float:
    """From which n on the zero start, a linear model, separates no draw; NaN where it does at the largest n."""
    sizes, margins = rows("num_examples", hard["zero_margin"].sortby("num_examples"))
    never = np.isfinite(margins).any(axis=1) & np.all((margins == 0) | np.isnan(margins), axis=1)
    onward = np.flip(np.logical_and.accumulate(np.flip(never)))
    return float(sizes[onward].min()) if onward.any() else np.nan


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.0f}%" if share.count else "an amount that was not measured"


def _by_scale(data: xarray.Dataset, numbers: Numbers) -> str:
    """The margin at the largest over that at the smallest scale of W and of U, the other nearest to 1.

    Not measured where a draw is not separated: then there is no ratio.
    """
    parts = []
    for axis, letter in PARTS.items():
        (other,) = set(PARTS) - {axis}
        nearest = float(data[other].values[np.argmin(np.abs(np.log(data[other].values)))])  # to 1, in ratio
        scales, margins = rows(axis, data["margin"].sel({other: nearest}).sortby(axis))
        ends = margins[[0, -1]]
        change = numbers.add(
            f"scale.{axis}",
            f"margin, norm of a head's {letter} {scales[-1]:g} / {scales[0]:g}, that of {PARTS[other]} {nearest:g}",
            NONE if np.any(ends == 0) else ratio(ends[1], ends[0]),
        )
        word = choose(
            change,
            at=EQUAL,
            above=f"grows {change} times",
            below=f"falls to {change} times",
            inside=f"hardly changes, {change} times",
            undecided=f"does not clearly change, {change} times",
            missing="has no measured ratio, as not every draw is separated or was run",
        )
        parts.append(
            f"as the norm of a head's {letter} goes from {number(scales[0])} to {number(scales[-1])} it {word}"
        )
    return f"Over the scale of the start (hard mixture, n = 100), with the other norm near 1: {'; '.join(parts)}."


def _enough(data: xarray.Dataset) -> str:
    """From which number of heads on all draws are separated, at that and at every larger number tried."""
    counts, flags = rows("num_heads", data["separable"].sortby("num_heads"))
    known = np.isfinite(flags).any(axis=1)
    always = known & np.all((flags == 1) | np.isnan(flags), axis=1)
    onward = np.flip(np.logical_and.accumulate(np.flip(always[known])))
    if not known.any():
        return "in no draw that was run"
    if not onward.any():
        return "always at some numbers of heads, not at larger ones" if always.any() else "in no number of heads always"
    return f"from {heads(counts[known][onward].min())} on in every draw"


def _trend(exponent: Estimate) -> str:
    return choose(
        exponent,
        within=FLAT,
        inside="hardly changes",
        above="grows",
        below="falls",
        undecided="shows no clear trend",
        missing="could not be measured",
    )


def _power(data: xarray.Dataset, axis: str) -> Estimate:
    """The exponent over the values for which every draw that was run is separated."""
    x, margins = rows(axis, data["margin"])
    kept = (np.isnan(margins) | (margins > 0)).all(axis=1) & np.isfinite(margins).any(axis=1)
    return power(x[kept], margins[kept]) if kept.sum() > 1 else NONE


def figures(results: Results) -> list[Figure]:
    sizes, scale = Axis("sequences n", "count", log=True), results["scale"]
    by_size = [over_seeds(*look[:2], "num_examples", results["hard"][look[2]], "P3") for look in STARTS]
    by_size.append(
        over_seeds("reference", "Gaussian, infinitely many", "num_examples", results["limit"]["margin"], "P3")
    )
    counts = {"heads": ("construction", "hard mixture, n = 100"), "labels": ("random labels", "random labels, n = 160")}
    by_count = [over_seeds(*look, "num_heads", results[name]["margin"], "P3") for name, look in counts.items()]
    values = scale["margin"].mean("seed").transpose("key_query_scale", "readout_scale").values
    picture = MapPanel(
        "",
        Axis("norm of a head's U", "1"),
        Axis("norm of a head's W", "1"),
        TANGENT_MARGIN,
        tuple(map(tuple, values.tolist())),
        limits=(0.0, float(np.ceil(np.nanmax(values, initial=0.1) * 10) / 10)),
        row_labels=tuple(f"{v:g}" for v in scale["key_query_scale"].values),
        column_labels=tuple(f"{v:g}" for v in scale["readout_scale"].values),
    )
    return [
        Figure(
            "random_start-margin",
            "The tangent margin of three starts",
            "Best tangent margin at the start (proved lower ends; 0 where none is proved), for heads of norm about 1. "
            "@1: hard mixture over the number of sequences. @2: Gaussian starts over the number of heads, where zero "
            "says that a draw is not separated. Means and 95% intervals over seeds.",
            [
                Panel("Hard mixture", sizes, TANGENT_MARGIN, by_size),
                Panel("Over the number of heads", HEADS, TANGENT_MARGIN, by_count),
            ],
        ),
        Figure(
            "random_start-scale",
            "What the scale does",
            f"Mean tangent margin of {NUM_HEADS} Gaussian heads on the hard mixture, n = 100, over the norms of a "
            "head's W and U.",
            [picture],
        ),
    ]


STUDY = Study(
    name="random_start",
    title="Random start",
    question="Does a random start separate the data in the tangent kernel, and with what margin?",
    claim="Open in the paper: does random initialization satisfy NTK separability (P3), and with what margin?",
    settings=[
        stated("margin", "that of P3: the best direction of norm √2 in the tangent features at the start"),
        chosen("Gaussian start", f"{tasks.UNIT_GAUSSIAN}, unless said; {NUM_HEADS} heads, unless said"),
        chosen("hard mixture", tasks.describe({**HARD, "num_examples": 0}) + f"; n = {SIZES}"),
        chosen("easy mixture", tasks.describe(EASY)),
        chosen("random labels", tasks.describe(LABELS)),
        chosen("compared with", "zero, and the first phase on 200 fresh sequences, whose margins do not depend on H"),
        chosen("infinitely many heads", f"the mean kernel, readout integrated out, {DRAWS} draws of W"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=5,
)
