"""How far is the best tangent margin from the best margin of the model?"""

from __future__ import annotations

import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import Estimate, mean, number, power, ratio, rows
from manyheads.studies.kit.figure import HEADS, TANGENT_MARGIN, Axis, Figure, Panel, over_seeds
from manyheads.studies.kit.study import Finding, Numbers, Results, Scaled, Study, chosen, conclude, grids, stated
from manyheads.studies.kit.tasks import STARTS
from manyheads.studies.kit.words import choose, heads, heads_text
from manyheads.sweeps.spec import Sweep

CELL = "manyheads.studies.global_margin.cells:compare"
AXES = {"heads": "num_heads", "sparsity": "sparsity", "signal": "signal"}
DATA = {**tasks.MIXTURE, "num_examples": Scaled(40, 60), "num_test": 0}
CLOSE = 0.95  # a larger share of the model's margin counts as no gap


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "data": DATA,
        "model": {"num_heads": 1},
        "seeds": Scaled(4, 6),
        "cell": CELL,
        "parameters": {"ascents": Scaled(3, 4), "steps": Scaled(250, 800)},
    }
    axes = {
        "heads": {"model.num_heads": Scaled([1, 2, 4, 8], [1, 2, 4, 8, 16])},
        "sparsity": {"data.sparsity": Scaled([0.125, 0.25, 0.5], [0.125, 0.25, 0.375, 0.5, 0.75])},
        "signal": {"data.signal": Scaled([1.0, 1.5, 2.0, 3.0], [0.75, 1.0, 1.5, 2.0, 3.0, 4.0])},
    }
    return grids("global_margin", scale, **{name: {**common, "axes": axis} for name, axis in axes.items()})


def finding(results: Results) -> Finding:
    numbers, shares = Numbers(), {}
    for name, axis in AXES.items():
        data = results[name]
        values, tangent = rows(axis, _best_tangent(data))
        found = rows(axis, data["found"])[1]
        shares[name] = [
            numbers.add(
                f"share.{name}.{value:g}",
                f"best tangent margin / best margin found, {_where(name, value)}",
                ratio(tangent[i], found[i]),
            )
            for i, value in enumerate(values)
        ]
    at_heads = results["heads"]
    growth = numbers.add("growth", "exponent of the best margin found in H", power("num_heads", at_heads["found"]))
    given = mean(at_heads["key_query_share"].sel(num_heads=1))
    numbers.add("key_query_share", "squared norm given to W, H = 1", given)
    one, *_, many = shares["heads"]
    least, most = at_heads["num_heads"].values[[0, -1]]
    sparse, *_, dense = shares["sparsity"]
    trend = choose(
        growth,
        above="grows",
        below="falls",
        undecided="does not clearly change",
        missing="does not clearly change",
    )
    smaller = "larger" if sparse.high < dense.low else "smaller" if sparse.low > dense.high else "not clearly different"
    by_signal = [(e, s) for e, s in zip(shares["signal"], results["signal"]["signal"].values, strict=True) if e.count]
    signal = "over the signal it was not measured."
    if by_signal:
        weakest, strength = min(by_signal, key=lambda pair: pair[0].value)
        signal = f"over the signal the share is least, {weakest}, at S = {strength:g}."
    sentences = [
        f"The best tangent margin of the starts is {one} of the best margin found with {heads(least)} and {many} with "
        f"{heads_text(most)}.",
        f"With one head the gap is {smaller} where few tokens are relevant (share {number(sparse.value)} against "
        f"{number(dense.value)}); {signal}",
        f"The model's own margin {trend} with H at equal norm (exponent {growth}).",
    ]
    notes = (
        "The best margin found is attained by the model: the true one is as large or larger, shares are upper bounds.",
        "Both margins are at norm √2, one of the direction in the linearized model, one of the parameters; a start of "
        "larger norm has larger tangent features, so a share above 1 is possible.",
    )
    cells = [data["found"] for data in results.values()]
    return conclude(_answer(shares["heads"], heads(least), heads_text(most)), sentences, numbers, cells, notes)


def _where(name: str, value: float) -> str:
    return f"H = {heads_text(value)}" if name == "heads" else f"H = 1, {name} {value:g}"


def _answer(shares: list[Estimate], least: str, most: str) -> str:
    """The gap with the fewest and with the most heads, each only as far as it is decided."""
    said = [choose(e, at=CLOSE, above="no gap", below="below", undecided="undecided") for e in shares]
    by = [f"{100 * (1 - e.value):.0f}%" for e in (shares[0], shares[-1])]
    if set(said) == {"not measured"}:
        return "Not measured"
    if set(said) == {"below"}:
        return f"Below it at every H: by {by[0]} with {least}, {by[1]} with {most}"
    if set(said) == {"no gap"}:
        return "No gap: the best tangent margin is as large as the best margin found"
    if (said[0], said[-1]) == ("below", "no gap"):
        return f"With {least} {by[0]} below it; with {most} heads the gap is gone"
    if (said[0], said[-1]) == ("no gap", "below"):
        return f"No gap with {least}, but {by[1]} with {most} heads"
    first, last = (
        f"{b} below it" if word == "below" else word for word, b in zip((said[0], said[-1]), by, strict=True)
    )
    between = "" if set(said[1:-1]) <= {said[0], said[-1]} else "; otherwise in between"
    return f"With {least} {first}, with {most} heads {last}{between}"


def _best_tangent(data: xarray.Dataset) -> xarray.DataArray:
    return data["zero"].clip(min=data["first_phase"]).clip(min=data["gaussian"])


def figures(results: Results) -> list[Figure]:
    data = results["heads"]
    shares = {
        name: [
            over_seeds(
                "measured", "best tangent / best found", axis, _best_tangent(results[name]) / results[name]["found"]
            )
        ]
        for name, axis in AXES.items()
    }
    own = over_seeds("measured", "best found", "num_heads", data["found"], "norm")
    starts = [over_seeds(*look, "num_heads", data[name], "P3") for name, look in STARTS.items()]
    share = Axis("best tangent / best found", "share")
    return [
        Figure(
            "global_margin-heads",
            "The model's margin and the tangent margins",
            "@1: the margin that ascent finds at parameter norm √2. @2: the best tangent margin of three starts. @3: "
            "the best of those as a share of the first. Means and 95% intervals over seeds.",
            [
                Panel("Margin of the model", HEADS, Axis("margin", "parameters of norm √2", scale="norm"), [own]),
                Panel("Tangent margin", HEADS, TANGENT_MARGIN, starts),
                Panel("Best tangent margin as a share", HEADS, share, shares["heads"]),
            ],
        ),
        Figure(
            "global_margin-data",
            "The share over sparsity and signal",
            "One head: the best tangent margin as a share of the best margin found. @1: over the share of relevant "
            "tokens. @2: over the norm of the patterns.",
            [
                Panel("Share of relevant tokens", Axis("sparsity ζ", "share"), share, shares["sparsity"]),
                Panel("Strength of the signal", Axis("signal S", "norm of a pattern"), share, shares["signal"]),
            ],
        ),
    ]


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
        chosen("starts", f"zero, first phase (200 fresh sequences), {tasks.UNIT_GAUSSIAN}"),
        chosen("data", tasks.describe(DATA)),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    order=9,
)
