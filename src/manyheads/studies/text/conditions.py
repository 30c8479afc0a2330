"""The paper's hypotheses on sentences: P1, P2 and P3 at the start, and the heads that Theorem 1 asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray

from manyheads.studies.kit import tasks
from manyheads.studies.kit.estimate import mean, number, ratio
from manyheads.studies.kit.figure import TANGENT_MARGIN, Axis, Figure, Panel, over_seeds
from manyheads.studies.kit.palette import heads as by_count
from manyheads.studies.kit.study import Numbers, Scaled
from manyheads.studies.kit.words import heads, heads_text, listed
from manyheads.theory.deora2023.regime import MOST_HEADS

STARTS = ["first_phase", "gaussian"]
NUM_HEADS = Scaled([1, 8], [1, 16])
COUNT = Scaled(100, 400)  # training sentences, the first of each seed
SEEDS = Scaled(2, 5)
LOSS, STEPS = 0.3, 10**9  # the mean train loss to be certified, and the most steps
WIDTHS = {"linear": "", "linear_full": " at full width"}


def sweep(cells: str, corpus: dict[str, Any], layers: Scaled) -> dict[str, Any]:
    """The sweep, over starts, layers and numbers of heads."""
    return {
        "seeds": SEEDS,
        "axes": {"start.kind": STARTS, "parameters.layer": layers, "model.num_heads": NUM_HEADS},
        "cell": f"{cells}:conditions",
        "parameters": {**corpus, "count": COUNT, "loss": LOSS, "num_steps": STEPS},
    }


def sentences(data: xarray.Dataset, numbers: Numbers) -> list[str]:
    """Whether P1 to P3 hold at the starts, with which constants, and how many heads Theorem 1 asks for then."""
    layers, parts = data["layer"].values.tolist(), []
    for kind in data["start"].values.tolist():
        for h in data["num_heads"].values.tolist():
            found, where = data.sel(start=kind, num_heads=h), f"{heads(h)}, {tasks.STARTS[kind][1]}"
            for layer in layers:
                one, at = found.sel(layer=layer), f"{kind}.{layer}.{h:g}"
                numbers.add(
                    f"p1.{at}",
                    f"norm of a head (P1), {where}, layer {layer}",
                    mean(one["parameter_bound"]),
                )
                numbers.add(
                    f"p2.{at}",
                    f"score at the start (P2), {where}, layer {layer}",
                    mean(one["model_bound"]),
                )
                numbers.add(
                    f"p3.{at}", f"tangent margin (P3), {where}, layer {layer}", mean(one["margin"])
                )
            parts.append(f"{_separated(found['margin'])} ({where})")
    linear = {name: data[name].isel(start=0, num_heads=0) for name in WIDTHS}  # the same for all
    for name, width in WIDTHS.items():
        for layer in layers:
            caption = f"margin of the mean token{width}, direction of norm √2, layer {layer}"
            numbers.add(f"p3.{name}.{layer}", caption, mean(linear[name].sel(layer=layer)))
    if not bool(data["margin"].notnull().any()):
        return []
    count = int(data["num_sentences"].max())
    norm, score = (
        number(float(data[name].max()), 2) for name in ("parameter_bound", "model_bound")
    )
    return [
        f"P3 on {count:,} training sentences, layers {listed([str(layer) for layer in layers])}: the tangent features "
        f"at the start are proved to separate {listed(parts)}; mean tokens are separated in "
        f"{_separated(linear['linear'])}, and in "
        f"{_separated(linear['linear_full'])} at full width. No head has a norm above {norm} (P1), no score at "
        f"the start exceeds {score} (P2).",
        _asked(data["heads_asked"]),
    ]


def _separated(margins: xarray.DataArray) -> str:
    """In how many draws there is a margin, and its geometric mean over these."""
    known = margins.values[np.isfinite(margins.values)]
    apart = known[known > 0]
    size = f" with margin {number(ratio(apart).value, 2)}" if len(apart) else ""
    return f"{len(apart)} of {len(known)} draws{size}"


def _asked(asked: xarray.DataArray) -> str:
    """The fewest heads over layers and numbers of heads, for each start, where there is a margin."""
    least = {kind: asked.sel(start=kind).values for kind in asked["start"].values.tolist()}
    least = {
        tasks.STARTS[kind][1]: np.nanmin(v) for kind, v in least.items() if not np.isnan(v).all()
    }
    parts = [
        f"{heads_text(h)} heads or more from the {name}"
        for name, h in least.items()
        if np.isfinite(h)
    ]
    none = [f"from the {name}" for name, h in least.items() if np.isinf(h)]
    texts = [f"our version of Theorem 1 asks for {listed(parts)}"] if parts else []
    texts += [f"{listed(none)} no number up to {heads_text(MOST_HEADS)} was found"] if none else []
    goal = f"For a certified mean train loss of {LOSS:g} on these within {heads_text(STEPS)} steps"
    return f"{goal}, {'; '.join(texts)}." if texts else ""


def figure(data: xarray.Dataset) -> Figure:
    """Tangent margins of the starts over the layers, beside those of the mean token."""
    few, many = data["num_heads"].values.min(), data["num_heads"].values.max()
    series = [
        ("first phase", "first phase", data["margin"].sel(start="first_phase", num_heads=many))
    ]
    series += [
        (by_count(h), f"Gaussian, {heads(h)}", data["margin"].sel(start="gaussian", num_heads=h))
        for h in (few, many)
    ]
    series += [
        (role, f"mean token{WIDTHS[name]}", data[name].isel(start=0, num_heads=0))
        for role, name in (("linear", "linear"), ("reference", "linear_full"))
    ]
    marks = [
        over_seeds(role, label, "layer", values, "P3", log=True) for role, label, values in series
    ]
    axis = Axis(TANGENT_MARGIN.label, TANGENT_MARGIN.unit, log=True, scale=TANGENT_MARGIN.scale)
    drawn = [mark for mark in marks if mark.rows()]
    return Figure(
        "text-margins",
        "Margins before training",
        f"Best margins at the start on {COUNT} training sentences, proved lower ends. That of the first phase does not "
        "depend on the number of heads. Geometric means with 95% intervals over the seeds with a margin; what no seed "
        "separates is not drawn.",
        [Panel("", Axis("layer", "0: word embeddings"), axis, drawn)],
    )
