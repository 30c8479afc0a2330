"""Does a random start separate the data in the tangent kernel, and with what margin?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies import tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, power, ratio
from manyheads.studies.figure import Axis, Figure, MapPanel, Panel, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.random_start:separation"
SCALE = "P3"  # directions of norm sqrt 2
MARGIN = Axis("tangent margin", "direction of norm √2", scale=SCALE)
PARTS = {"key_query_scale": "W", "readout_scale": "U"}
CLOSE = 1.05  # ratios between 1/CLOSE and CLOSE count as equal


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    common = {"start": {"kind": "gaussian"}, "cell": CELL, "seeds": 4 if quick else 10}
    mixture = {**tasks.MIXTURE, "num_examples": 60 if quick else 100, "num_test": 0}
    labels = {**tasks.RANDOM_LABELS, "num_examples": 160}
    heads = [1, 4, 16, 64, 256] if quick else [1, 2, 4, 8, 16, 64, 256, 1024]
    scales = [0.1, 1, 10] if quick else [0.01, 0.1, 0.3, 1, 3, 10]
    dims = [6, 10, 20, 40] if quick else [6, 8, 10, 20, 40, 80, 160]
    axes = {
        "heads": (mixture, {"model.num_heads": heads}),
        "labels": (labels, {"model.num_heads": heads}),
        "scale": (mixture, {"start.key_query_scale": scales, "start.readout_scale": scales}),
        "dim": (mixture, {"data.dim": dims}),
    }
    return {
        name: grid(name=f"random_start-{name}", data=data, model={"num_heads": 16}, axes=values, **common)
        for name, (data, values) in axes.items()
    }


def finding(results: Results) -> Finding:
    heads, labels, scale, dim = (results[name] for name in ("heads", "labels", "scale", "dim"))
    on_mixture = np.concatenate([_known(data["separable"]) for data in (heads, scale, dim)])
    count, total = int(on_mixture.sum()), len(on_mixture)
    many = float(heads["num_heads"].max())
    last = heads.sel(num_heads=many)
    numbers: dict[str, Estimate] = {
        f"Gaussian / first-phase margin, mixture, H = {heads_text(many)}": ratio(
            last["margin"], last["first_phase_margin"]
        ),
        f"Gaussian / zero-start margin, mixture, H = {heads_text(many)}": ratio(last["margin"], last["zero_margin"]),
        "exponent of the margin in H, mixture": _power(heads, "num_heads"),
        "exponent of the margin in H, random labels": _power(labels, "num_heads"),
        "exponent of the margin in d, mixture": _power(dim, "dim"),
    }
    by_scale = _scale_numbers(scale)
    numbers |= by_scale
    for data, name in ((heads, "mixture"), (labels, "random labels")):
        numbers |= {
            f"margin, {name}, H = {heads_text(h)}": mean(data["margin"].sel(num_heads=h))
            for h in data["num_heads"].values
        }
    compared = numbers[f"Gaussian / first-phase margin, mixture, H = {heads_text(many)}"]
    if total == 0:
        answer = "Not measured"
    elif count == total:
        answer = f"Yes: all {total} Gaussian starts separate the mixture"
    elif count == 0:
        answer = f"No: none of {total} Gaussian starts separates the mixture"
    else:
        answer = f"Sometimes: {count} of {total} Gaussian starts separate the mixture"
    if compared.above(CLOSE):
        words = "with a larger margin than the first phase"
    elif compared.below(1 / CLOSE):
        words = "with a smaller margin than the first phase"
    elif compared.above(1 / CLOSE) and compared.below(CLOSE):
        words = "with the margin of the first phase, within 5%"
    else:
        words = "with a margin not clearly different from that of the first phase"
    answer += f", {words}" if count and compared.count else ""
    growth, by_dim = (
        numbers["exponent of the margin in H, random labels"],
        numbers["exponent of the margin in d, mixture"],
    )
    flat = numbers["exponent of the margin in H, mixture"]
    sentence = (
        f"On the mixture the margin with {heads_text(many)} heads is {compared} times that of the first phase. It "
        f"{_trend(flat)} with H (exponent {flat}) and {_trend(by_dim)} with the dimension (exponent {by_dim}). "
        f"{_scale_words(scale, by_scale)} Random labels are separated {_enough(labels)}; there the margin "
        f"{_trend(growth)} with H (exponent {growth})."
    )
    if gone := lacking(*(data["separable"] for data in results.values())):
        sentence += f" {gone}"
    note = "Every margin is a lower end that a direction proves; a margin of zero means that none was proved."
    return Finding(answer, sentence, numbers, (note,))


def _scale_key(data: xarray.Dataset, axis: str) -> str:
    (other,) = set(PARTS) - {axis}
    values = data[axis].values
    return (
        f"margin, norm of a head's {PARTS[axis]} {values.max():g} / {values.min():g}, "
        f"that of {PARTS[other]} {_middle(data, other):g}"
    )


def _scale_numbers(data: xarray.Dataset) -> dict[str, Estimate]:
    """The margin at the largest over that at the smallest scale of W and of U, the other nearest to 1.

    Not measured where a draw is not separated: then there is no ratio.
    """
    numbers = {}
    for axis in PARTS:
        (other,) = set(PARTS) - {axis}
        margins = data["margin"].sel({other: _middle(data, other)}).sortby(axis)
        last, first = margins.isel({axis: -1}).values, margins.isel({axis: 0}).values
        separated = not (np.any(last == 0) or np.any(first == 0))
        numbers[_scale_key(data, axis)] = ratio(last, first) if separated else mean([])
    return numbers


def _scale_words(data: xarray.Dataset, numbers: dict[str, Estimate]) -> str:
    parts = []
    for axis, letter in PARTS.items():
        change, (least, most) = numbers[_scale_key(data, axis)], (data[axis].values.min(), data[axis].values.max())
        if change.count == 0:
            word = "has no measured ratio, as not every draw is separated or was run"
        elif change.above(CLOSE):
            word = f"grows {change} times"
        elif change.below(1 / CLOSE):
            word = f"falls to {change} times"
        elif change.above(1 / CLOSE) and change.below(CLOSE):
            word = f"hardly changes, {change} times"
        else:
            word = f"does not clearly change, {change} times"
        parts.append(f"as the norm of a head's {letter} goes from {number(least)} to {number(most)} it {word}")
    return f"Over the scale of the start, with the other norm near 1: {'; '.join(parts)}."


def _middle(data: xarray.Dataset, axis: str) -> float:
    """The value of an axis nearest to 1, in ratio."""
    values = data[axis].values
    return float(values[np.argmin(np.abs(np.log(values)))])


def _enough(data: xarray.Dataset) -> str:
    """From which number of heads on all draws are separated, at that and at every larger number tried."""
    flags = data["separable"].sortby("num_heads").transpose("num_heads", "seed").values.astype(float)
    heads, known = np.sort(data["num_heads"].values), np.isfinite(flags).any(axis=1)
    always = known & np.all((flags == 1) | np.isnan(flags), axis=1)
    onward = np.flip(np.logical_and.accumulate(np.flip(always[known])))
    if not known.any():
        return "in no draw that was run"
    if not onward.any():
        return "always at some numbers of heads, not at larger ones" if always.any() else "in no number of heads always"
    least = float(heads[known][onward].min())
    return f"from {heads_text(least)} {'head' if least == 1 else 'heads'} on in every draw"


def _trend(exponent: Estimate) -> str:
    if exponent.count == 0:
        return "could not be measured"
    if exponent.above(-0.05) and exponent.below(0.05):
        return "hardly changes"
    return "grows" if exponent.above(0) else "falls" if exponent.below(0) else "shows no clear trend"


def _known(flags: xarray.DataArray) -> np.ndarray:
    """The answers of the cells that have one."""
    values = np.asarray(flags.values, float).ravel()
    return values[np.isfinite(values)] > 0


def _power(data: xarray.Dataset, dim: str) -> Estimate:
    """The exponent over the values for which every draw that was run is separated."""
    margins = data["margin"].transpose(dim, "seed").values
    kept = (np.isnan(margins) | (margins > 0)).all(axis=1) & np.isfinite(margins).any(axis=1)
    return power(data[dim].values[kept], margins[kept]) if kept.sum() > 1 else mean([])


def _curve(role: str, label: str, data: xarray.Dataset, dim: str, variable: str):
    values = data[variable].transpose(dim, "seed").values.astype(float)
    return over_seeds(role, label, data[dim].values, values, SCALE)


def figures(results: Results) -> list[Figure]:
    heads, labels, scale, dim = (results[name] for name in ("heads", "labels", "scale", "dim"))
    count = Axis("heads", "count", log=True)
    starts = [
        ("gaussian", "Gaussian", "margin"),
        ("first phase", "first phase", "first_phase_margin"),
        ("zero", "zero", "zero_margin"),
    ]
    shares = over_seeds(
        "random labels",
        "random labels",
        labels["num_heads"].values,
        labels["separable"].transpose("num_heads", "seed").values,
        truth=True,
    )
    on_mixture = over_seeds(
        "mixture",
        "mixture",
        heads["num_heads"].values,
        heads["separable"].transpose("num_heads", "seed").values,
        truth=True,
    )
    by_heads = [
        Panel("Mixture", count, MARGIN, [_curve(role, label, heads, "num_heads", v) for role, label, v in starts]),
        Panel("Random labels", count, MARGIN, [_curve("gaussian", "Gaussian", labels, "num_heads", "margin")]),
        Panel("Separated", count, Axis("draws separated", "share", limits=(-0.05, 1.05)), [on_mixture, shares]),
    ]
    values = scale["margin"].mean("seed").transpose("key_query_scale", "readout_scale").values
    picture = MapPanel(
        "",
        Axis("norm of a head's U", "1"),
        Axis("norm of a head's W", "1"),
        Axis("tangent margin", "direction of norm √2", scale=SCALE),
        tuple(map(tuple, values.tolist())),
        limits=(0.0, float(np.ceil(np.nanmax(values, initial=0.1) * 10) / 10)),
        row_labels=tuple(f"{v:g}" for v in scale["key_query_scale"].values),
        column_labels=tuple(f"{v:g}" for v in scale["readout_scale"].values),
    )
    dims = Panel(
        "",
        Axis("dimension of a token", "count", log=True),
        MARGIN,
        [_curve(role, label, dim, "dim", v) for role, label, v in starts],
    )
    return [
        Figure(
            "random_start-heads",
            "Does a Gaussian start separate the data?",
            "Best tangent margin at the start (proved lower ends; 0 where none is proved) over the number of heads, "
            "for heads of norm about 1, and the share of draws that are separated. Means and 95% intervals over seeds.",
            by_heads,
        ),
        Figure(
            "random_start-scale",
            "What the scale does",
            "Mean tangent margin of 16 Gaussian heads on the mixture, over the norms of a head's W and U.",
            [picture],
        ),
        Figure(
            "random_start-dim",
            "What the dimension does",
            "Tangent margin of 16 Gaussian heads on the mixture over the dimension, other starts beside it.",
            [dims],
        ),
    ]


STUDY = Study(
    name="random_start",
    title="Random start",
    question="Does a random start separate the data in the tangent kernel, and with what margin?",
    claim="Open in the paper: does random initialization satisfy NTK separability (P3), and with what margin?",
    settings=[
        stated("margin", "that of P3: the best direction of norm √2 in the tangent features at the start"),
        chosen("Gaussian start", "independent entries; a head's W and U have root mean square norm 1 unless said"),
        chosen("data", tasks.MIXTURE_TEXT + "; 60 sequences (quick) or 100 (full)"),
        chosen("random labels", "160 sequences, T=d=6, tokens of norm 2 in random directions"),
        chosen("compared with", "zero, and the first phase on 200 fresh sequences, whose margins do not depend on H"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
