"""Does a random start separate the data in the tangent kernel, and with what margin?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import NONE, Estimate, mean, number, power, ratio, rows
from manyheads.studies.kit.figure import HEADS, TANGENT_MARGIN, Axis, Figure, MapPanel, Panel, over_seeds
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.words import choose, heads, heads_text
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.random_start.cells:separation"
MIXTURE = {**tasks.MIXTURE, "num_examples": Scaled(60, 100), "num_test": 0}
LABELS = {**tasks.RANDOM_LABELS, "num_examples": 160}
NUM_HEADS = 16  # where the number of heads is not varied
PARTS = {"key_query_scale": "W", "readout_scale": "U"}
EQUAL = (1 / 1.05, 1.05)  # ratios in between count as equal
FLAT = (-0.05, 0.05)  # exponents in between are hardly a dependence
DATA = {"heads": "mixture", "labels": "random labels"}
STARTS = (
    ("gaussian", "Gaussian", "margin"),
    ("first phase", "first phase", "first_phase_margin"),
    ("zero", "zero", "zero_margin"),
)


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "data": MIXTURE,
        "start": {"kind": "gaussian"},
        "model": {"num_heads": NUM_HEADS},
        "cell": CELL,
        "seeds": Scaled(4, 10),
    }
    counts = {"model.num_heads": Scaled([1, 4, 16, 64, 256], [1, 2, 4, 8, 16, 64, 256, 1024])}
    scales = Scaled([0.1, 1, 10], [0.01, 0.1, 0.3, 1, 3, 10])
    dims = {"data.dim": Scaled([6, 10, 20, 40], [6, 8, 10, 20, 40, 80, 160])}
    return grids(
        "random_start",
        scale,
        heads={**common, "axes": counts},
        labels={**common, "data": LABELS, "axes": counts},
        scale={**common, "axes": {f"start.{part}": scales for part in PARTS}},
        dim={**common, "axes": dims},
    )


def finding(results: Results) -> Finding:
    numbers, at_heads = Numbers(), results["heads"]
    known = np.concatenate(
        [results[name]["separable"].values.astype(float).ravel() for name in ("heads", "scale", "dim")]
    )
    known = known[np.isfinite(known)] > 0
    last = at_heads.sel(num_heads=at_heads["num_heads"].max())
    many = heads_text(float(last["num_heads"]))
    compared, _ = (
        numbers.add(
            f"over_{start}",
            f"Gaussian / {start.replace('_', '-')} margin, mixture, H = {many}",
            ratio(last["margin"], last[f"{start}_margin"]),
        )
        for start in ("first_phase", "zero")
    )
    flat = numbers.add("exponent.mixture", "exponent of the margin in H, mixture", _power(at_heads, "num_heads"))
    growth = _power(results["labels"], "num_heads")
    numbers.add("exponent.labels", "exponent of the margin in H, random labels", growth)
    by_dim = numbers.add("exponent.dim", "exponent of the margin in d, mixture", _power(results["dim"], "dim"))
    by_scale = _by_scale(results["scale"], numbers)
    for name, on in DATA.items():
        for h in results[name]["num_heads"].values:
            margin = mean(results[name]["margin"].sel(num_heads=h))
            numbers.add(f"margin.{name}.{h:g}", f"margin, {on}, H = {heads_text(h)}", margin)
    answer = _separated(int(known.sum()), len(known))
    if known.any() and compared.count:
        answer += ", " + choose(
            compared,
            at=EQUAL,
            above="with a larger margin than the first phase",
            below="with a smaller margin than the first phase",
            inside="with the margin of the first phase, within 5%",
            undecided="with a margin not clearly different from that of the first phase",
        )
    sentences = [
        f"On the mixture the margin with {many} heads is {compared} times that of the first phase.",
        f"Random labels are separated {_enough(results['labels'])}; there the margin {_trend(growth)} with H (exponent "
        f"{growth}).",
        f"On the mixture it {_trend(flat)} with H (exponent {flat}) and {_trend(by_dim)} with the dimension (exponent "
        f"{by_dim}).",
        by_scale,
    ]
    note = "Every margin is a lower end that a direction proves; a margin of zero means that none was proved."
    return conclude(answer, sentences, numbers, [data["separable"] for data in results.values()], [note])


def _separated(count: int, total: int) -> str:
    if total == 0:
        return "Not measured"
    if count == total:
        return f"Yes: all {total} Gaussian starts separate the mixture"
    if count == 0:
        return f"No: none of {total} Gaussian starts separates the mixture"
    return f"Sometimes: {count} of {total} Gaussian starts separate the mixture"


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
    return f"Over the scale of the start, with the other norm near 1: {'; '.join(parts)}."


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
    def margins(name: str, axis: str, starts=STARTS):
        return [over_seeds(role, label, axis, results[name][variable], "P3") for role, label, variable in starts]

    shares = [over_seeds(on, on, "num_heads", results[name]["separable"], truth=True) for name, on in DATA.items()]
    scale = results["scale"]
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
    dims = Axis("dimension of a token", "count", log=True)
    return [
        Figure(
            "random_start-heads",
            "Does a Gaussian start separate the data?",
            "Over the number of heads, for heads of norm about 1. @1 and @2: best tangent margin at the start (proved "
            "lower ends; 0 where none is proved). @3: the share of draws that are separated. Means and 95% intervals "
            "over seeds.",
            [
                Panel("Mixture", HEADS, TANGENT_MARGIN, margins("heads", "num_heads")),
                Panel("Random labels", HEADS, TANGENT_MARGIN, margins("labels", "num_heads", STARTS[:1])),
                Panel("Separated", HEADS, Axis("draws separated", "share", limits=(-0.05, 1.05)), shares),
            ],
        ),
        Figure(
            "random_start-scale",
            "What the scale does",
            f"Mean tangent margin of {NUM_HEADS} Gaussian heads on the mixture, over the norms of a head's W and U.",
            [picture],
        ),
        Figure(
            "random_start-dim",
            "What the dimension does",
            f"Tangent margin of {NUM_HEADS} Gaussian heads on the mixture over the dimension, other starts beside it.",
            [Panel("", dims, TANGENT_MARGIN, margins("dim", "dim"))],
        ),
    ]


STUDY = Study(
    name="random_start",
    title="Random start",
    question="Does a random start separate the data in the tangent kernel, and with what margin?",
    claim="Open in the paper: does random initialization satisfy NTK separability (P3), and with what margin?",
    settings=[
        stated("margin", "that of P3: the best direction of norm √2 in the tangent features at the start"),
        chosen("Gaussian start", f"{tasks.UNIT_GAUSSIAN}, unless said"),
        chosen("data", tasks.describe(MIXTURE)),
        chosen("random labels", tasks.describe(LABELS)),
        chosen("compared with", "zero, and the first phase on 200 fresh sequences, whose margins do not depend on H"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=5,
)
