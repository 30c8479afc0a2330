"""Does training get faster, or more convex, with more heads?"""

from __future__ import annotations

import numpy as np

from manyheads.studies import palette, tasks
from manyheads.studies.estimate import Estimate, heads_text, lacking, mean, number, power, ratio
from manyheads.studies.figure import Axis, Figure, Panel, line, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid, stated
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.cells.heads"
STARTS = {"first_phase": ("first phase", "first-phase start"), "gaussian": ("gaussian", "Gaussian start")}
MATTERS = 0.02  # an exponent of H below this is no effect: 9% from 1 to 64 heads
SEEN = 1e-6  # a convexity gap below this share of the loss counts as none


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    heads = [1, 4, 16, 64] if quick else [1, 2, 4, 8, 16, 64, 256]
    few = [1, 2, 4, 8, 16] if quick else [1, 2, 4, 8, 16, 32, 64]
    seeds = 4 if quick else 10
    mixture = {**tasks.HARD_MIXTURE, "num_examples": 60, "num_test": 300}
    starts = {"start.kind": list(STARTS)}
    gaussian = {"kind": "gaussian", "key_query_scale": 3.0, "readout_scale": 3.0}
    return {
        "speed": grid(
            name="heads-speed",
            data=mixture,
            train={"step_size": 0.1, "num_steps": 150},
            axes={**starts, "model.num_heads": heads},
            seeds=seeds,
            cell=f"{CELLS}:speed",
            parameters={"doublings": 6},
        ),
        "convexity_mixture": grid(
            name="heads-convexity_mixture",
            data={**mixture, "num_test": 0},
            train={"step_size": 0.1, "num_steps": 150},
            axes={"model.num_heads": few},
            seeds=seeds,
            cell=f"{CELLS}:convexity",
        ),
        "convexity_random": grid(
            name="heads-convexity_random",
            data=tasks.RANDOM_LABELS,
            start=gaussian,
            train={"step_size": 0.1, "num_steps": 200},
            axes={"model.num_heads": few},
            seeds=2 * seeds,  # a run from a Gaussian start depends much on the draw
            cell=f"{CELLS}:convexity",
        ),
        "curvature": grid(
            name="heads-curvature",
            data={**mixture, "num_test": 0},
            axes={**starts, "model.num_heads": heads},
            seeds=seeds,
            cell=f"{CELLS}:curvature",
        ),
    }


def finding(results: Results) -> Finding:
    speed = results["speed"]
    H = speed["num_heads"].values
    last = speed["train_loss"].isel(record=-1)
    labels = [label for _, label in STARTS.values()]
    numbers: dict[str, Estimate] = {}
    for kind, (_, label) in STARTS.items():
        numbers[f"exponent of the final loss in H, equal step size, {label}"] = power(H, _grid(last, kind))
        numbers[f"exponent of the final loss in H, best step size, {label}"] = power(H, _grid(speed["best_loss"], kind))
        few, many = (last.sel(start=kind, num_heads=h) for h in (H.min(), H.max()))
        numbers[f"final loss, {heads_text(H.max())} heads over 1, {label}"] = ratio(many, few)
    factor = numbers[f"final loss, {heads_text(H.max())} heads over 1, first-phase start"]
    equal, best = (
        {label: _speed(numbers[f"exponent of the final loss in H, {which} step size, {label}"]) for label in labels}
        for which in ("equal", "best")
    )
    words = f"With {heads_text(H.max())} heads the loss after 150 steps is {factor} times that of one head"
    if set(equal.values()) == set(best.values()) and set(best.values()) in ({"slower"}, {"faster"}):
        words += "; the order stays the same when every number of heads has its best step size."
    elif set(best.values()) in ({"slower"}, {"faster"}):
        words += f"; with the best step size for each, more heads are {next(iter(best.values()))}."
    else:
        words += f"; with the best step size for each, more heads are {_each(best)}."
    curvature = _curvature_words(results["curvature"], numbers)
    gone = lacking(
        last,
        *(results[name]["gap"] for name in ("convexity_mixture", "convexity_random")),
        results["curvature"]["smallest"],
    )
    return Finding(
        f"{_speed_answer(equal)}; {_convexity_answer(results, numbers)}",
        " ".join([words, _convexity_words(results, numbers), curvature, gone]).strip(),
        numbers,
        (
            "Each head moves its attention by a step of order 1/√H; the second figure shows how much attention ends on "
            "the relevant tokens.",
        ),
    )


def _speed(exponent: Estimate) -> str:
    """What more heads are, by the exponent of the final loss in H."""
    if exponent.count == 0:
        return "not measured"
    if exponent.above(MATTERS):
        return "slower"
    if exponent.below(-MATTERS):
        return "faster"
    return "equally fast" if exponent.above(-MATTERS) and exponent.below(MATTERS) else "not clearly different"


def _each(words: dict[str, str]) -> str:
    """What holds from each start, once if it is the same from all."""
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return " and ".join(f"{word} from the {label}" for label, word in words.items())


def _speed_answer(words: dict[str, str]) -> str:
    said = set(words.values())
    if said == {"not measured"}:
        return "Not measured"
    if said == {"slower"}:
        return "No: on the mixture more heads train slower at equal step size"
    if said == {"faster"}:
        return "Yes: on the mixture more heads train faster at equal step size"
    if said == {"equally fast"}:
        return "No effect of heads on speed at equal step size"
    if said & {"not clearly different", "not measured"}:
        return f"Undecided: at equal step size more heads are {_each(words)}"
    return f"It depends on the start: at equal step size more heads are {_each(words)}"


def _grid(values, kind: str) -> np.ndarray:
    return values.sel(start=kind).transpose("num_heads", "seed").values


def _curve(speed, num_heads: float) -> np.ndarray:
    return speed["train_loss"].sel(start="first_phase", num_heads=num_heads).transpose("record", "seed").values


def _share(data) -> np.ndarray:
    return (data["gap"] / data["mean_loss"]).transpose("num_heads", "seed").values


def _convexity_answer(results: Results, numbers: dict[str, Estimate]) -> str:
    changes = []
    for name, label in (("convexity_mixture", "mixture"), ("convexity_random", "random labels")):
        share = _share(results[name])
        half = len(share) // 2
        few, many = share[:half].mean(axis=0), share[half:].mean(axis=0)
        difference = mean(few - many)
        numbers[f"convexity gap / mean loss, few heads, {label}"] = mean(few)
        numbers[f"convexity gap / mean loss, many heads, {label}"] = mean(many)
        numbers[f"few minus many, {label}"] = difference
        none = mean(few).value < SEEN and mean(many).value < SEEN
        word = "more" if difference.above(0) else "less" if difference.below(0) else "undecided"
        changes.append("always" if none else word if difference.count else "not measured")
    if set(changes) == {"always"}:
        return "it is convex along the run at every number of heads"
    decided = set(changes) - {"always"}
    if decided == {"more"} or decided == {"less"}:
        return f"descent gets {decided.pop()} convex with heads"
    if decided == {"more", "less"}:
        return "the effect on convexity depends on the data"
    return "the effect on convexity is " + ("not measured" if decided == {"not measured"} else "undecided")


def _convexity_words(results: Results, numbers: dict[str, Estimate]) -> str:
    parts = []
    for name, label in (("convexity_mixture", "the mixture"), ("convexity_random", "random labels")):
        data = results[name]
        H, share = data["num_heads"].values, np.array([mean(row).value for row in _share(data)])
        if np.isnan(share).all():
            parts.append(f"on {label} an amount that was not measured")
            continue
        top = int(np.nanargmax(share))
        last = (
            f"{number(100 * share[-1])}% at {heads_text(H[-1])}"
            if not share[-1] < SEEN
            else f"none at {heads_text(H[-1])}"
        )
        most = f"at most {number(100 * share[top])}% of the mean loss (at H = {heads_text(H[top])})"
        more = numbers[f"few minus many, {label.removeprefix('the ')}"]
        parts.append(f"on {label} {most} and {last}, few heads losing a share of {more} more than many")
    return f"Non-convexity costs descent {'; '.join(parts)}."


def _curvature_words(data, numbers: dict[str, Estimate]) -> str:
    H = data["num_heads"].values
    several = H >= 4  # two heads of each sign: from there on the first phase's curvature is 1/√H exactly
    parts = []
    for kind, (_, label) in STARTS.items():
        depth = -_grid(data["smallest"] / data["loss"], kind)
        found = power(H[several], depth[several])
        numbers[f"exponent of -λ_min/loss in H, {label}"] = found
        parts.append(f"{found} from the {label}")
    words = " and ".join(parts)
    return (
        f"From 4 heads on the most negative curvature over the loss is like a power of H: {words}; the bound has -0.5."
    )


def figures(results: Results) -> list[Figure]:
    speed = results["speed"]
    H, steps = speed["num_heads"].values, speed["step"].values
    heads, loss = Axis("heads", "count", log=True), Axis("train loss", "nats", log=True)
    curves = [
        over_seeds(palette.heads(h), f"{heads_text(h)} head{'s' if h > 1 else ''}", steps,
                   _curve(speed, h), log=True)
        for h in H
    ]  # fmt: skip
    last = speed["train_loss"].isel(record=-1)
    ends = {"equal step size": last, "best step size": speed["best_loss"]}
    panels = [Panel("Over time, first-phase start", Axis("step", "steps"), loss, curves)]
    for title, values in ends.items():
        marks = [over_seeds(role, label, H, _grid(values, kind), log=True) for kind, (role, label) in STARTS.items()]
        panels.append(Panel(f"After 150 steps, {title}", heads, loss, marks))
    focus = [over_seeds(role, label, H, _grid(speed["focus"], kind)) for kind, (role, label) in STARTS.items()]
    test = [
        over_seeds(r, label, H, _grid(speed["test_loss"].isel(record=-1), k), log=True)
        for k, (r, label) in STARTS.items()
    ]
    share = Axis("focus", "share of attention")
    return [
        Figure(
            "heads-speed",
            "Loss over time and over the number of heads",
            "Loss on the tokenized mixture: over time, and after 150 steps at step size 0.1 and at the best of seven "
            "step sizes from 0.1 to 6.4 for each number of heads. Geometric means and 95% intervals over seeds.",
            panels,
        ),
        Figure(
            "heads-focus",
            "Focus and test loss over the number of heads",
            "After 150 steps at step size 0.1: the attention that falls on relevant tokens (focus; 0.125 if uniform), "
            "and the loss on fresh sequences.",
            [Panel("Focus", heads, share, focus), Panel("Test loss", heads, Axis("test loss", "nats", log=True), test)],
        ),
        _convexity_figure(results),
    ]


def _convexity_figure(results: Results) -> Figure:
    heads = Axis("heads", "count", log=True)
    marks = []
    for name, role in (("convexity_mixture", "mixture"), ("convexity_random", "random labels")):
        data = results[name]
        marks.append(over_seeds(role, role, data["num_heads"].values, 100 * _share(data)))
    data = results["curvature"]
    H = data["num_heads"].values
    depth = {kind: -_grid(data["smallest"] / data["loss"], kind) for kind in STARTS}
    curves = [over_seeds(role, label, H, depth[kind], log=True) for kind, (role, label) in STARTS.items()]
    at = len(H) - 1
    slope = mean(depth["first_phase"][at]).value * np.sqrt(H[at] / H)
    curves.append(line("reference", "slope -1/2", H, slope))
    return Figure(
        "heads-convexity",
        "Non-convexity over the number of heads",
        "First: the share of the mean train loss that is due to non-convexity along the run (proximal target). Second: "
        "the most negative eigenvalue of the Hessian at the start over the loss; Corollary 1 bounds it by b3/√H.",
        [
            Panel("Cost of non-convexity", heads, Axis("convexity gap", "% of mean loss"), marks),
            Panel("Negative curvature", heads, Axis("-λ_min / loss", "dimensionless", log=True), curves),
        ],
    )


STUDY = Study(
    name="heads",
    title="Heads",
    question="Does training get faster, or more convex, with more heads?",
    claim="The landscape gets less non-convex, λ_min >= -β3·loss/√H (Corollary 1); the theorems need many heads. "
    "Nothing is claimed about speed, but readers expect it.",
    settings=[
        stated("descent", "full batch, constant step size, logistic loss, scores scaled by 1/√H"),
        stated("first-phase start", "one step from zero on fresh data with signs +1 and -1"),
        chosen("data", tasks.HARD_TEXT + "; 60 sequences, 300 for testing"),
        chosen("second data", tasks.RANDOM_TEXT),
        chosen("Gaussian start", "E|W_h|^2 = E|U_h|^2 = 1 on the mixture, 9 on random labels"),
        chosen("step size", "0.1, and 0.1 times 1, 2, ..., 64"),
        chosen("steps", "150 on the mixture, 200 on random labels"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
