"""How far is the best tangent margin from the best margin of the model?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies import tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, power, ratio
from manyheads.studies.figure import Axis, Figure, Panel, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.cells.global_margin:compare"
STARTS = {
    "zero": ("zero", "zero start"),
    "first_phase": ("first phase", "first phase"),
    "gaussian": ("gaussian", "Gaussian"),
}
CLOSE = 0.95  # a larger share of the model's margin counts as no gap


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    common = {
        "data": {**tasks.MIXTURE, "num_examples": 40 if quick else 60, "num_test": 0},
        "model": {"num_heads": 1},
        "seeds": 4 if quick else 6,
        "cell": CELL,
        "parameters": {"ascents": 3 if quick else 4, "steps": 250 if quick else 800},
    }
    axes = {
        "heads": {"model.num_heads": [1, 2, 4, 8] if quick else [1, 2, 4, 8, 16]},
        "sparsity": {"data.sparsity": [0.125, 0.25, 0.5] if quick else [0.125, 0.25, 0.375, 0.5, 0.75]},
        "signal": {"data.signal": [1.0, 1.5, 2.0, 3.0] if quick else [0.75, 1.0, 1.5, 2.0, 3.0, 4.0]},
    }
    return {name: grid(name=f"global_margin-{name}", axes=values, **common) for name, values in axes.items()}


def finding(results: Results) -> Finding:
    shares = {name: _shares(data, dim) for name, (data, dim) in _by_name(results).items()}
    heads = results["heads"]["num_heads"].values
    numbers: dict[str, Estimate] = {
        f"best tangent margin / best margin found, H = {heads_text(h)}": share
        for h, share in zip(heads, shares["heads"], strict=True)
    }
    for name in ("sparsity", "signal"):
        values = results[name][name].values
        numbers |= {
            f"best tangent margin / best margin found, H = 1, {name} {v:g}": share
            for v, share in zip(values, shares[name], strict=True)
        }
    found = results["heads"]["found"].transpose("num_heads", "seed").values
    growth = power(heads, found)
    numbers["exponent of the best margin found in H"] = growth
    numbers["squared norm given to W, H = 1"] = mean(results["heads"]["key_query_share"].sel(num_heads=1))
    one, many = shares["heads"][0], shares["heads"][-1]
    least, most = heads_text(heads[0]), heads_text(heads[-1])
    words = "falls" if growth.below(0) else "grows" if growth.above(0) else "does not clearly change"
    sparse, dense = shares["sparsity"][0], shares["sparsity"][-1]
    by_signal = [(e, s) for e, s in zip(shares["signal"], results["signal"]["signal"].values, strict=True) if e.count]
    sentence = (
        f"The best tangent margin of the starts is {one} of the best margin found with {least} head and {many} with "
        f"{most}. The model's own margin {words} with H at equal norm (exponent {growth}). With one head the gap is "
        f"{_compare(sparse, dense)} where few tokens are relevant (share {number(sparse.value)} against "
        f"{number(dense.value)}); "
    )
    if by_signal:
        smallest, signal = min(by_signal, key=lambda pair: pair[0].value)
        sentence += f"over the signal the share is least, {smallest}, at S = {signal:g}."
    else:
        sentence += "over the signal it was not measured."
    if gone := lacking(*(data["found"] for data in results.values())):
        sentence += f" {gone}"
    notes = (
        "The best margin found is attained by the model: the true one is as large or larger, shares are upper bounds.",
        "Both margins are at norm √2, one of the direction in the linearized model, one of the parameters; a start of "
        "larger norm has larger tangent features, so a share above 1 is possible.",
    )
    return Finding(_answer(shares["heads"], least, most), sentence, numbers, notes)


def _answer(shares: list[Estimate], least: str, most: str) -> str:
    """The gap with the fewest and with the most heads, each only as far as it is decided."""
    said = [_gap(share) for share in shares]
    one, many = shares[0], shares[-1]
    if set(said) == {"not measured"}:
        return "Not measured"
    if set(said) == {"below"}:
        below = f"{_percent(1 - one.value)} with {least} head, {_percent(1 - many.value)} with {most}"
        return f"Below it at every H: by {below}"
    if set(said) == {"none"}:
        return "No gap: the best tangent margin is as large as the best margin found"
    if (said[0], said[-1]) == ("below", "none"):
        return f"With {least} head {_percent(1 - one.value)} below it; with {most} heads the gap is gone"
    if (said[0], said[-1]) == ("none", "below"):
        return f"No gap with {least} head, but {_percent(1 - many.value)} with {most} heads"
    words = {"none": "no gap", "undecided": "undecided", "not measured": "not measured"}
    ends = [words.get(word, f"{_percent(1 - e.value)} below it") for word, e in ((said[0], one), (said[-1], many))]
    between = "" if set(said[1:-1]) <= {said[0], said[-1]} else "; otherwise in between"
    return f"With {least} head {ends[0]}, with {most} heads {ends[1]}{between}"


def _gap(share: Estimate) -> str:
    if share.count == 0:
        return "not measured"
    return "below" if share.below(CLOSE) else "none" if share.above(CLOSE) else "undecided"


def _by_name(results: Results) -> dict[str, tuple[xarray.Dataset, str]]:
    return {name: (data, "num_heads" if name == "heads" else name) for name, data in results.items()}


def _best_tangent(data: xarray.Dataset) -> xarray.DataArray:
    return data["zero"].clip(min=data["first_phase"]).clip(min=data["gaussian"])


def _shares(data: xarray.Dataset, dim: str) -> list[Estimate]:
    """Best tangent margin over the best margin found, paired by seed, at each value of `dim`."""
    tangent, found = (v.transpose(dim, "seed").values for v in (_best_tangent(data), data["found"]))
    return [ratio(a, b) for a, b in zip(tangent, found, strict=True)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _compare(first: Estimate, second: Estimate) -> str:
    """Whether the gap below 1 is larger for the first than for the second."""
    if first.high < second.low:
        return "larger"
    return "smaller" if first.low > second.high else "not clearly different"


def figures(results: Results) -> list[Figure]:
    data = results["heads"]
    heads = Axis("heads", "count", log=True)
    own = over_seeds(
        "measured", "best found", data["num_heads"].values, data["found"].transpose("num_heads", "seed").values, "norm"
    )
    starts = [
        over_seeds(role, label, data["num_heads"].values, data[name].transpose("num_heads", "seed").values, "P3")
        for name, (role, label) in STARTS.items()
    ]
    share = Axis("best tangent / best found", "share")
    panels = [
        Panel("Margin of the model", heads, Axis("margin", "parameters of norm √2", scale="norm"), [own]),
        Panel("Tangent margin", heads, Axis("tangent margin", "direction of norm √2", scale="P3"), starts),
        Panel("Best tangent margin as a share", heads, share, [_share_mark(data, "num_heads")]),
    ]
    others = [
        Panel(
            "Share of relevant tokens",
            Axis("sparsity ζ", "share"),
            share,
            [_share_mark(results["sparsity"], "sparsity")],
        ),
        Panel(
            "Strength of the signal",
            Axis("signal S", "norm of a pattern"),
            share,
            [_share_mark(results["signal"], "signal")],
        ),
    ]
    return [
        Figure(
            "global_margin-heads",
            "The model's margin and the tangent margins",
            "The margin that ascent finds at parameter norm √2, the best tangent margin of three starts, and "
            "the best of those as a share of the first. Means and 95% intervals over seeds.",
            panels,
        ),
        Figure(
            "global_margin-data",
            "The share over sparsity and signal",
            "One head: the best tangent margin as a share of the best margin found, over the share of relevant tokens "
            "and the norm of the patterns.",
            others,
        ),
    ]


def _share_mark(data: xarray.Dataset, dim: str):
    values = (_best_tangent(data) / data["found"]).transpose(dim, "seed").values
    return over_seeds("measured", "best tangent / best found", data[dim].values, np.asarray(values))


STUDY = Study(
    name="global_margin",
    title="Global margin",
    question="How far is the best tangent margin from the best margin of the model?",
    claim="Open in the paper: how suboptimal is the best NTK margin of natural starts beside the global margin?",
    settings=[
        stated(
            "margins", "tangent: directions of norm √2 (P3); global: the model's smallest margin at parameter norm √2"
        ),
        chosen("search", "Adam ascent of a soft minimum that sharpens, from the paper's optimum and Gaussian points"),
        chosen("starts", "zero, first phase (200 fresh sequences), Gaussian with heads of norm about 1"),
        chosen("data", tasks.MIXTURE_TEXT + "; 40 sequences (quick) or 60 (full)"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
