"""Does a random start separate the data in the tangent kernel, and with what margin?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, mean, number, power, ratio, rows
from manyheads.studies.kit.figure import (
    HEADS,
    TANGENT_MARGIN,
    Axis,
    Figure,
    MapPanel,
    Panel,
    by_heads,
    over_seeds,
)
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
from manyheads.studies.kit.words import capital, choose, heads, listed
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.random_start.cells"
EASY = {**tasks.MIXTURE, "num_examples": 100, "num_test": 0}
HARD = {**tasks.HARD_MIXTURE, "num_test": 0}
LABELS = {**tasks.RANDOM_LABELS, "num_examples": 160}
NUM_HEADS, DRAWS, FRESH = 16, Scaled(32, 128), 200
SIZES = Scaled([50, 100, 200, 400], [50, 100, 200, 400, 800, 1600, 3200, 6400, 10000])
LIMIT_SIZES = Scaled([200], [400, 1600])
FIXED = Scaled(200, 1600)  # sequences where heads and scales vary
PARTS = {"key_query_scale": "W", "readout_scale": "U"}
EQUAL = (1 / 1.05, 1.05)  # ratios in between count as equal
NEARLY = 0.9  # of the margin: if a linear model has more, margins say nothing about attention
FLAT = (-0.05, 0.05)  # exponents in between are hardly a dependence
LATE = 4  # exponents in n are those from a quarter of the largest n on


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "data": HARD,
        "start": {"kind": "gaussian"},
        "model": {"num_heads": NUM_HEADS},
        "seeds": Scaled(3, 4),
    }

    def along(sizes: Scaled, **changed) -> dict:
        most = Scaled(max(sizes.quick), max(sizes.full))
        cell = {"cell": f"{CELLS}:along", "parameters": {"sizes": sizes}}
        return {**common, **cell, "data": {**HARD, "num_examples": most}, **changed}

    single = {"cell": f"{CELLS}:separation", "seeds": Scaled(4, 6)}
    scales = Scaled([0.1, 1, 10], [0.01, 0.1, 1, 10])
    fixed = Scaled([FIXED.quick], [FIXED.full])
    return grids(
        "random_start",
        scale,
        easy={**common, **single, "data": EASY, "parameters": {"compare": True}},
        hard=along(SIZES, axes={"model.num_heads": Scaled([1, NUM_HEADS], [1, 4, NUM_HEADS, 64])}),
        zero=along(SIZES, start={"kind": "zero"}, model={"num_heads": 2}),
        first=along(
            SIZES, start={"kind": "first_phase", "num_examples": FRESH}, model={"num_heads": 2}
        ),
        limit={
            **along(LIMIT_SIZES, cell=f"{CELLS}:infinite", seeds=2),
            "parameters": {"sizes": LIMIT_SIZES, "draws": DRAWS},
        },
        heads=along(
            fixed, axes={"model.num_heads": Scaled([1, 4, 16, 64], [1, 2, 4, 8, 16, 64, 256, 1024])}
        ),
        labels={
            **common,
            **single,
            "data": LABELS,
            "axes": {"model.num_heads": Scaled([1, 4, 16], [1, 2, 4, 16, 64, 256])},
        },
        scale=along(fixed, seeds=Scaled(2, 3), axes={f"start.{part}": scales for part in PARTS}),
    )


def finding(results: Results) -> Finding:
    numbers, hard, first = Numbers(), results["hard"], results["first"]["margin"]
    sizes = hard["sizes"].values
    n, late = int(sizes[-1]), sizes >= sizes[-1] / LATE
    for h in hard["num_heads"].values:
        for k, size in enumerate(sizes):
            caption = f"margin, {heads(h)} drawn at random, hard mixture, n = {size:,}"
            numbers.add(
                f"margin.{h:g}.{size}", caption, mean(hard["margin"].sel(num_heads=h).isel(size=k))
            )
    for name, caption in (("first", "first phase"), ("zero", "zero start")):
        for k, size in enumerate(sizes):
            value = mean(results[name]["margin"].isel(size=k))
            numbers.add(
                f"margin.{name}.{size}", f"margin, {caption}, hard mixture, n = {size:,}", value
            )
    easy = results["easy"]
    linear = numbers.add(
        "linear_share",
        "zero / Gaussian margin, easy mixture, n = 100",
        ratio(easy["zero_margin"], easy["margin"]),
    )
    over, crossings = {}, {}
    for h in hard["num_heads"].values:
        mine = hard["margin"].sel(num_heads=h)
        caption = f"Gaussian / first-phase margin, {heads(h)}, hard mixture, n = {n:,}"
        both = bool((first.isel(size=-1) > 0).all() and (mine.isel(size=-1) > 0).all())
        value = ratio(mine.isel(size=-1), first.isel(size=-1)) if both else NONE
        over[h] = numbers.add(f"over_first_phase.{h:g}", caption, value)
        caption = f"n from which on the first phase has the larger margin, {heads(h)}, hard mixture"
        crossings[h] = numbers.add(f"crossing.{h:g}", caption, _crossing(sizes, mine, first))
    limit = results["limit"]
    same = [int(np.flatnonzero(sizes == size)[0]) for size in limit["sizes"].values]
    wide = numbers.add(
        "over_limit",
        f"margin, {NUM_HEADS} Gaussian heads / infinitely many, hard mixture, n = {int(limit['sizes'][-1]):,}",
        ratio(
            _drawn(hard).isel(size=same[-1]).sel(seed=limit["seed"].values),
            limit["margin"].isel(size=-1),
        ),
    )
    caption = f"limit, all draws / half of them, n = {int(limit['sizes'][-1]):,}"
    numbers.add(
        "limit_draws", caption, ratio(limit["margin"].isel(size=-1), limit["half"].isel(size=-1))
    )
    fixed = int(results["heads"]["sizes"][-1])
    exponents = {
        "n": (
            f"exponent of the Gaussian margin in n, {NUM_HEADS} heads",
            _late(sizes, late, _drawn(hard)),
        ),
        "first": ("exponent of the first-phase margin in n", _late(sizes, late, first)),
        "hard": (
            f"exponent of the margin in H, n = {fixed:,}",
            _power(results["heads"].isel(size=-1), "num_heads"),
        ),
        "labels": (
            "exponent of the margin in H, random labels",
            _power(results["labels"], "num_heads"),
        ),
    }
    for name, (caption, estimate) in exponents.items():
        words = caption if name == "labels" else f"{caption}, hard mixture"
        numbers.add(
            f"exponent.{name}",
            words if name in ("hard", "labels") else f"{words}, n >= {sizes[late][0]:,}",
            estimate,
        )
    slope = {name: estimate for name, (_, estimate) in exponents.items()}
    starts = {
        "zero": ("the zero start", results["zero"]),
        "first": ("the first phase", results["first"]),
    }
    starts |= {f"{h:g}": (f"{heads(h)} drawn at random", hard.sel(num_heads=h)) for h in over}
    edges = {}
    for name, (words, data) in starts.items():
        caption = f"n at which it stops separating, {words}, hard mixture"
        edges[words] = numbers.add(f"edge.{name}", caption, _edge(data))
    zero = results["zero"]["margin"]
    sentences = [
        f"On the hard mixture with n = {n:,} the margin is {mean(_drawn(hard).isel(size=-1))} from {NUM_HEADS} "
        f"Gaussian heads, {mean(first.isel(size=-1))} from the first phase and {mean(zero.isel(size=-1))} from zero.",
        _edges(edges, n),
        f"From n = {sizes[late][0]:,} on the margin of {NUM_HEADS} Gaussian heads {_trend(slope['n'])} with n "
        f"(exponent {slope['n']}) and that of the first phase {_trend(slope['first'])} (exponent {slope['first']}).",
        f"{NUM_HEADS} heads have {wide} times the margin of infinitely many (n = {int(limit['sizes'][-1]):,}); the "
        f"margin {_trend(slope['hard'])} with H (exponent {slope['hard']}, n = {fixed:,}).",
        f"On the easy mixture (n = 100) the zero start, a linear model, has {_percent(linear)} of the Gaussian margin"
        f"{', so the two hardly differ there' if linear.above(NEARLY) else ''}.",
        f"Random labels are separated {_enough(results['labels'])}; there the margin {_trend(slope['labels'])} "
        f"with H (exponent {slope['labels']}).",
        _by_scale(results["scale"].isel(size=-1), fixed, numbers),
    ]
    note = "Every margin is a lower bound proved by a direction, tight to 1%; zero means that no margin was proved."
    cells = [
        data["margin"].isel(size=-1) if "size" in data.dims else data["margin"]
        for data in results.values()
    ]
    return conclude(
        _answer(hard, over, crossings, edges["the zero start"]), sentences, numbers, cells, [note]
    )


def _drawn(hard: xarray.Dataset) -> xarray.DataArray:
    """The margins of the usual number of Gaussian heads."""
    return hard["margin"].sel(num_heads=NUM_HEADS)


def _answer(hard: xarray.Dataset, over: dict, crossings: dict, edge: Estimate) -> str:
    """Whether random starts separate the largest sample, how they compare there, and where the order turns."""
    n, last = (
        int(hard["sizes"][-1]),
        hard["separable"].sel(num_heads=NUM_HEADS).isel(size=-1).values.astype(float),
    )
    known = last[np.isfinite(last)]
    if not len(known):
        return "Not measured"
    count = int(known.sum())
    if count == 0:
        separated = f"No: none of {len(known)} Gaussian starts separates the hard mixture"
    elif count < len(known):
        separated = f"Sometimes: {count} of {len(known)} Gaussian starts separate the hard mixture"
    else:
        separated = f"Yes: all {len(known)} Gaussian starts separate the hard mixture"
    linear = (
        f"a linear model separates up to n = {number(edge.value, 2)}"
        if edge.count
        else "a linear model does too"
    )
    compared = choose(
        over[NUM_HEADS],
        at=EQUAL,
        above=f"with {number(over[NUM_HEADS].value, 2)} times the margin of the first phase",
        below=f"with {number(over[NUM_HEADS].value, 2)} times the margin of the first phase",
        inside="with the margin of the first phase, within 5%",
        undecided="with a margin not clearly different from that of the first phase",
        missing="while not every first phase does",
    )
    turns = [
        f"{heads(h)} from n = {number(e.value, 2)} on" for h, e in crossings.items() if e.count
    ]
    order = f"; the first phase has the larger margin against {listed(turns)}" if turns else ""
    return f"{separated} (n = {n:,}, {NUM_HEADS} heads of norm 1), {compared}{order}; {linear}"


def _crossing(sizes: np.ndarray, mine: xarray.DataArray, first: xarray.DataArray) -> Estimate:
    """The n from which the first phase has the larger margin: for each seed the last change of order.

    Interpolated in logarithms between two sizes; empty unless the first phase has the larger margin at the end for all
    seeds.
    """
    found = []
    for seed in mine["seed"].values:
        a, b = mine.sel(seed=seed).values, first.sel(seed=seed).values
        known = np.isfinite(a) & np.isfinite(b)
        ahead = np.flatnonzero(known & (a >= b))
        if not known.any():
            continue
        if not known[-1] or not len(ahead) or ahead[-1] == len(sizes) - 1:
            return NONE
        k = ahead[-1]
        if a[k + 1] <= 0:
            found.append(np.log(sizes[k] * sizes[k + 1]) / 2)
            continue
        gap = np.log(a[[k, k + 1]] / b[[k, k + 1]])
        found.append(np.interp(0.0, -gap, np.log(sizes[[k, k + 1]])))
    return ratio(np.exp(found))


def _edge(data: xarray.Dataset) -> Estimate:
    """The n at which a start stops separating, between the two that bracket it; empty unless all draws have one."""
    low, high = (data[name].values for name in ("last_separable", "first_inseparable"))
    known = ~np.isnan(low) & ~np.isnan(high)
    inside = known.any() and np.isfinite(high[known]).all() and (low[known] > 0).all()
    return ratio(np.sqrt(low[known] * high[known])) if inside else NONE


def _edges(edges: dict[str, Estimate], n: int) -> str:
    """Where each start stops separating."""
    ends = [
        f"{name} separates up to n = {number(e.value, 2)}" for name, e in edges.items() if e.count
    ]
    never = [name for name, e in edges.items() if not e.count]
    if never:
        ends.append(f"for {listed(never)} not every draw stops separating by n = {n:,}")
    return capital(f"{listed(ends)}.")


def _late(sizes: np.ndarray, late: np.ndarray, margins: xarray.DataArray) -> Estimate:
    """The exponent in n over the largest n, where every draw is separated."""
    table = margins.transpose("size", "seed").values[late]
    return power(sizes[late], table) if late.sum() > 1 and not (table == 0).any() else NONE


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.0f}%" if share.count else "an amount that was not measured"


def _by_scale(data: xarray.Dataset, size: int, numbers: Numbers) -> str:
    """The margin at the largest over that at the smallest scale of W and of U, the other nearest to 1.

    Not measured if a draw is not separated: then there is no ratio.
    """
    parts = []
    for axis, letter in PARTS.items():
        (other,) = set(PARTS) - {axis}
        nearest = float(
            data[other].values[np.argmin(np.abs(np.log(data[other].values)))]
        )  # to 1, in ratio
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
    return f"Over the scale of the start (hard mixture, n = {size:,}), with the other norm near 1: {'; '.join(parts)}."


def _enough(data: xarray.Dataset) -> str:
    """From which number of heads on all draws are separated, at that and at every larger number tried."""
    counts, flags = rows("num_heads", data["separable"].sortby("num_heads"))
    known = np.isfinite(flags).any(axis=1)
    always = known & np.all((flags == 1) | np.isnan(flags), axis=1)
    onward = np.flip(np.logical_and.accumulate(np.flip(always[known])))
    if not known.any():
        return "in no draw that was run"
    if not onward.any():
        return (
            "in all draws at some H, not at larger ones"
            if always.any()
            else "in all draws at no number of heads"
        )
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
    size, scale = Axis("sequences n", "count", log=True), results["scale"].isel(size=-1)
    by_size = by_heads("sizes", results["hard"]["margin"], "P3")
    others = (
        ("reference", "infinitely many", "limit"),
        ("first phase", "first phase", "first"),
        ("zero", "zero", "zero"),
    )
    by_size += [
        over_seeds(role, label, "sizes", results[name]["margin"], "P3")
        for role, label, name in others
    ]
    heads_data, fixed = results["heads"].isel(size=-1), int(results["heads"]["sizes"][-1])
    by_count = [
        over_seeds(
            "construction", f"hard mixture, n = {fixed:,}", "num_heads", heads_data["margin"], "P3"
        ),
        over_seeds(
            "random labels",
            "random labels, n = 160",
            "num_heads",
            results["labels"]["margin"],
            "P3",
        ),
    ]
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
            "Best tangent margin at the start (proved lower bounds; 0 if none is proved), for heads of norm about 1. "
            "@1: hard mixture over the number of sequences, Gaussian heads, the first phase and zero. @2: Gaussian "
            "starts over the number of heads, where zero means that a draw is not separated. Means and 95% intervals "
            "over seeds.",
            [
                Panel("Hard mixture", size, TANGENT_MARGIN, by_size),
                Panel("Over the number of heads", HEADS, TANGENT_MARGIN, by_count),
            ],
        ),
        Figure(
            "random_start-scale",
            "What the scale does",
            f"Mean tangent margin of {NUM_HEADS} Gaussian heads on the hard mixture, n = {fixed:,}, over the norms "
            "of a head's W and U.",
            [picture],
        ),
    ]


STUDY = Study(
    name="random_start",
    title="Random start",
    question="Does a random start separate the data in the tangent kernel, and with what margin?",
    claim="Open in the paper: does random initialization satisfy NTK separability (P3), and with what margin?",
    settings=[
        stated(
            "margin",
            "that of P3: the best direction of norm √2 in the tangent features at the start",
        ),
        chosen(
            "Gaussian start",
            f"{tasks.UNIT_GAUSSIAN}, unless stated; {NUM_HEADS} heads, unless stated",
        ),
        chosen("hard mixture", tasks.describe(HARD) + f"; the first n = {SIZES} of a sample"),
        chosen("easy mixture", tasks.describe(EASY)),
        chosen("random labels", tasks.describe(LABELS)),
        chosen(
            "compared with",
            f"zero, and the first phase on {FRESH} fresh sequences, whose margins do not depend on H",
        ),
        chosen(
            "infinitely many heads",
            f"the mean kernel, readout integrated out, {DRAWS} draws of W; n = {LIMIT_SIZES}",
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=5,
    seconds=5,
)
