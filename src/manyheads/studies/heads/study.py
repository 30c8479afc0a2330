"""Does training get faster, or more convex, with more heads?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.kit import palette, tasks
from manyheads.studies.kit.estimate import NONE, mean, number, power, ratio, rows
from manyheads.studies.kit.figure import (
    FOCUS,
    HEADS,
    Axis,
    Figure,
    Mark,
    Panel,
    line,
    over_seeds,
    rule,
)
from manyheads.studies.kit.selection import bracketed
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
from manyheads.studies.kit.words import capital, choose, heads, heads_text, listed
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.heads.cells"
DATA = {"convexity_mixture": "the mixture", "convexity_random": "random labels"}
# Sweep -> its role in figures, and its data and start in words.
SPEED = {
    "first_phase": ("first phase", "the hard mixture from the first phase"),
    "gaussian": ("gaussian", "the hard mixture from a Gaussian start"),
    "random": ("random labels", "random labels from a Gaussian start"),
}
# What is held equal when numbers of heads are compared.
EQUAL = {
    "step": "equal step size",
    "time": "equal step size times curvature",
    "distance": "equal distance traveled",
    "edge": "the edge of stability",
    "best": "the best step size on noisy labels",
}
MIXTURE = {**tasks.HARD_MIXTURE, "num_examples": 32, "num_test": 0}
LABELS = {**tasks.RANDOM_LABELS, "num_tokens": 8, "dim": 10, "num_examples": 32}
STEP_SIZE, RUNGS, STEPS = 0.4, 7, Scaled(40, 150)
NOISE = 0.1  # share of every label's weight on the other label, so that a best step size exists
GAUSSIAN_SCALE = 3.0  # of the starts on random labels
ROUNDING = 1e-13  # nats; the excess loss is a difference of losses near 1
MATTERS = 0.02  # an exponent of H below this counts as no effect: 9% from 1 to 64 heads
SEEN = 1e-6  # a convexity gap below this share of the loss counts as none


def sweeps(scale: str) -> dict[str, Sweep]:
    few = {"model.num_heads": Scaled([2, 4, 16], [1, 2, 4, 8, 16, 32, 64])}
    drawn = {"model.num_heads": Scaled([2, 8], [1, 2, 4, 16, 64])}
    equal = {"model.num_heads": Scaled([2, 16, 256], [1, 2, 4, 8, 16, 64, 256, 1024])}
    scaled = {
        "kind": "gaussian",
        "key_query_scale": GAUSSIAN_SCALE,
        "readout_scale": GAUSSIAN_SCALE,
    }
    train = {"step_size": STEP_SIZE, "num_steps": STEPS}
    common = {"train": train, "seeds": Scaled(6, 10)}
    speed = {**common, "cell": f"{CELLS}:speed", "parameters": {"rungs": RUNGS, "noise": NOISE}}
    convexity = {**common, "axes": few, "cell": f"{CELLS}:convexity", "seeds": Scaled(4, 10)}
    return grids(
        "heads",
        scale,
        first_phase={**speed, "data": MIXTURE, "start": {"kind": "first_phase"}, "axes": equal},
        gaussian={**speed, "data": MIXTURE, "start": {"kind": "gaussian"}, "axes": drawn},
        random={**speed, "data": LABELS, "start": scaled, "axes": drawn},
        convexity_mixture={**convexity, "data": MIXTURE},
        convexity_random={
            **convexity,
            "data": LABELS,
            "start": scaled,
            "axes": drawn,
            "seeds": Scaled(6, 20),  # runs from a Gaussian start vary a lot between draws
        },
    )


def finding(results: Results) -> Finding:
    numbers, parts, conclusions, ladders = Numbers(), [], [], []
    steps = int(results["first_phase"]["step"].values[-1])
    for name, (_, label) in SPEED.items():
        compared = comparisons(results[name])
        said = {}
        for what, losses in compared.items():
            caption = f"exponent of the loss in H at {EQUAL[what]}, {label}"
            exponent = power("num_heads", losses) if bool(losses.notnull().any()) else NONE
            numbers.add(f"loss_exponent.{what}.{name}", caption, exponent)
            said[what] = choose(
                exponent,
                at=(-MATTERS, MATTERS),
                above="slower",
                below="faster",
                inside="equally fast",
                undecided="not clearly different",
                missing="not compared",
            )
            ends = losses.isel(num_heads=0), losses.isel(num_heads=-1)
            few, most = (
                heads_text(float(h)) for h in (losses["num_heads"].min(), losses["num_heads"].max())
            )
            caption = f"loss, {most} heads over {few}, at {EQUAL[what]}, {label}"
            numbers.add(f"loss_ratio.{what}.{name}", caption, ratio(ends[1], ends[0]))
        few, most = (
            heads_text(float(h)) for h in np.sort(results[name]["num_heads"].values)[[0, -1]]
        )
        parts.append(f"on {label} ({few} to {most} heads) they {_by_word(said)}")
        conclusions.append(said)
        ladders.append(_ladders(results[name], label))
    convexity, cost, losing = _convexity(results, numbers)
    cells = [results[name]["train_loss"].isel(record=-1) for name in SPEED] + [
        results[name]["gap"] for name in DATA
    ]
    lead = _lead(conclusions)
    first = [f"More heads: {'; '.join(parts)}."] if lead != "Not measured" else []
    sentences = [*first, *filter(None, ladders), cost, *losing, _curvature(results, numbers)]
    notes = [
        f"Step size {STEP_SIZE:g} times 1, 2, ..., {2 ** (RUNGS - 1)}; {steps} steps. The best one is chosen on half "
        "of the seeds and its loss measured on the others; a best at either end of the ladder does not count.",
        "Each head moves its attention by a step of order 1/√H.",
    ]
    setting = f" ({steps} steps, {MIXTURE['num_examples']} sequences)" if first else ""
    without_question = f"{capital(lead.rpartition(': ')[2])}; {convexity}."
    return conclude(
        f"{lead}{setting}; {convexity}", sentences, numbers, cells, notes, without_question
    )


def comparisons(data: xarray.Dataset) -> dict[str, xarray.DataArray]:
    """The loss by number of heads and seed for each quantity held equal; NaN where nothing can be compared."""
    loss, final = data["train_loss"].transpose("num_heads", "seed", "record"), data["final"]
    steps = data["step"].values
    time = data["largest"] * data["step_sizes"].values[0] * xarray.DataArray(steps, dims="record")
    falling = (
        (data["falls"].transpose("num_heads", "seed", "rung").values == 1)
        .cumprod(axis=-1)
        .sum(axis=-1)
    )
    found = (falling > 0) & (falling < data.sizes["rung"])  # the ladder brackets the edge
    edge = np.take_along_axis(
        final.transpose("num_heads", "seed", "rung").values,
        np.maximum(falling - 1, 0)[..., None],
        axis=-1,
    )[..., 0]
    like = loss.isel(record=-1, drop=True)
    return {
        "step": like,
        "time": _at_equal(time.transpose("num_heads", "seed", "record"), loss),
        "distance": _at_equal(data["distance"].transpose("num_heads", "seed", "record"), loss),
        "edge": like.copy(data=np.where(found, edge, np.nan)),
        "best": _best(data["noisy"]),
    }


def _at_equal(progress: xarray.DataArray, loss: xarray.DataArray) -> xarray.DataArray:
    """The loss where `progress` reaches the largest value common to all numbers of heads, for each seed."""
    p, v = np.maximum.accumulate(progress.values, axis=-1), np.log(loss.values)
    common = p.max(axis=-1).min(axis=0)  # one per seed; NaN where a run is missing
    values = [
        [np.interp(common[s], p[h, s], v[h, s]) for s in range(p.shape[1])] for h in range(len(p))
    ]
    return loss.isel(record=-1, drop=True).copy(
        data=np.exp(np.where(np.isfinite(common), values, np.nan))
    )


def _best(excess: xarray.DataArray) -> xarray.DataArray:
    """The excess loss at the best step size of each number of heads, on seeds that were not used to choose it."""
    table = excess.transpose("num_heads", "rung", "seed")
    rows = [bracketed(one)[1] for one in table.values]
    odd = table.isel(rung=0, drop=True).isel(seed=slice(1, None, 2))
    best = np.array(rows)[:, : odd.sizes["seed"]]
    return odd.copy(
        data=np.where(best > ROUNDING, best, np.nan)
    )  # the infimum to rounding is no comparison


def _ladders(data: xarray.Dataset, label: str) -> str:
    """For how many numbers of heads a best step size was found, with and without noise in the labels."""

    def found(values: xarray.DataArray) -> int:
        return sum(
            bracketed(one)[0] is not None
            for one in values.transpose("num_heads", "rung", "seed").values
        )

    if not bool(data["final"].notnull().any()):
        return ""
    total = data.sizes["num_heads"]
    plain, noisy = found(data["final"]), found(data["noisy"])
    clean = f"no best step size was found for {total - plain} of {total} numbers of heads"
    noise = "for all of them" if noisy == total else f"for {noisy} of them"
    return f"On {label} {clean}: the best is an end of the ladder; with {100 * NOISE:g}% label noise it was {noise}."


def _by_word(said: dict[str, str]) -> str:
    """slower at equal step size and the edge of stability, faster at ..."""
    words = dict.fromkeys(said.values())
    if len(words) == 1 and len(said) > 1:
        return f"are {next(iter(words))} in all {len(said)} comparisons"
    parts = [
        f"{word} at {listed([EQUAL[what] for what, w in said.items() if w == word])}"
        for word in words
    ]
    return f"are {', '.join(parts)}"


def _lead(each: list[dict[str, str]]) -> str:
    """The answer about speed: unconditional only if all comparisons on all data agree."""
    decided = [{w for w in said.values() if w in ("slower", "faster")} for said in each]
    together = set().union(*decided)
    if all(word == "not compared" for said in each for word in said.values()):
        return "Not measured"
    if not together:
        same = all(word == "equally fast" for said in each for word in said.values())
        return (
            "No: no effect of heads on speed"
            if same
            else "Undecided: no comparison of speeds is clear"
        )
    if together == {"slower"}:
        return "No: more heads train slower wherever the comparison is clear"
    if together == {"faster"}:
        return "Yes: more heads train faster wherever the comparison is clear"
    mixture, labels = (_speeds(words) for words in (set().union(*decided[:2]), decided[2]))
    return f"It depends on the data: more heads train {mixture} on the hard mixture and {labels} on random labels"


def _speeds(words: set[str]) -> str:
    if len(words) == 2:
        return "slower or faster, depending on what is held equal,"
    return next(iter(words), "neither clearly slower nor faster")


def _convexity(results: Results, numbers: Numbers) -> tuple[str, str, list[str]]:
    """The answer about convexity, what non-convexity costs, and how much more it costs few heads."""
    changes, parts, losing = [], [], []
    for name, label in DATA.items():
        data = results[name]
        H, share = rows("num_heads", data["gap"] / data["mean_loss"])
        half, short = len(share) // 2, label.removeprefix("the ")
        few, many = share[:half].mean(axis=0), share[half:].mean(axis=0)
        numbers.add(f"{name}.few", f"convexity gap / mean loss, few heads, {short}", mean(few))
        numbers.add(f"{name}.many", f"convexity gap / mean loss, many heads, {short}", mean(many))
        more = numbers.add(f"{name}.difference", f"few minus many, {short}", mean(few - many))
        none = mean(few).value < SEEN and mean(many).value < SEEN
        changes.append(
            "always" if none else choose(more, above="more", below="less", undecided="undecided")
        )
        by_number = np.array([mean(row).value for row in share])
        if np.isnan(by_number).all():
            parts.append(f"on {label} an amount that was not measured")
            continue
        top = int(np.nanargmax(by_number))
        end = "none" if by_number[-1] < SEEN else f"{number(100 * by_number[-1])}%"
        parts.append(
            f"on {label} at most {number(100 * by_number[top])}% of the mean loss (at H = {heads_text(H[top])}) and "
            f"{end} at {heads_text(H[-1])}"
        )
        losing.append(f"On {label} few heads lose a share of {more} more than many.")
    said = {
        (): "it is convex along the run at every number of heads",
        ("more",): "descent gets more convex with heads",
        ("less",): "descent gets less convex with heads",
        ("less", "more"): "the effect on convexity depends on the data",
        ("not measured",): "the effect on convexity is not measured",
    }
    answer = said.get(
        tuple(sorted(set(changes) - {"always"})), "the effect on convexity is undecided"
    )
    return answer, f"Non-convexity costs descent {'; '.join(parts)}.", losing


def _depth(data: xarray.Dataset) -> xarray.DataArray:
    """The most negative eigenvalue over the loss, without its sign."""
    return -(data["smallest"] / data["loss"])


def _curvature(results: Results, numbers: Numbers) -> str:
    parts = []
    for name in ("first_phase", "gaussian"):
        depth = _depth(results[name])
        several = depth.sel(
            num_heads=depth["num_heads"] >= 4
        )  # two heads of each sign: from there on 1/√H exactly
        label = SPEED[name][1].removeprefix("the hard mixture ")
        found = power("num_heads", several) if several.sizes["num_heads"] > 1 else NONE
        numbers.add(
            f"curvature_exponent.{name}",
            f"exponent of -λ_min/loss in H, hard mixture {label}",
            found,
        )
        parts.append(f"{found} {label}")
    return (
        "On the hard mixture the most negative curvature over the loss is, from 4 heads on, like a power of H: "
        f"{' and '.join(parts)}; the bound has -0.5."
    )


def figures(results: Results) -> list[Figure]:
    every = {name: comparisons(results[name]) for name in SPEED}
    steps = int(results["first_phase"]["step"].values[-1])
    relative = Axis("loss / loss of fewest heads", "factor", log=True)
    shown = {
        "step": "Equal step size",
        "time": "Equal step × curvature",
        "edge": "Edge of stability",
    }
    panels = []
    for what, title in {**shown, "best": "Best step, noisy labels"}.items():
        marks = [_relative(*SPEED[name], every[name][what]) for name in SPEED]
        panels.append(
            Panel(title, HEADS, relative, [*marks, rule("reference", "fewest heads", 1.0)])
        )
    first = results["first_phase"]
    focus = [
        over_seeds(*SPEED[n], "num_heads", results[n]["focus"]) for n in ("first_phase", "gaussian")
    ]
    caption = f"Hard mixture from the first phase, after {steps} steps, over the step size. "
    return [
        Figure(
            "heads-speed",
            "Loss over the number of heads, four comparisons",
            f"Train loss after {steps} steps over that of the fewest heads: below 1 more heads are faster. The last: "
            "excess loss at the best step size, chosen by other seeds. Geometric means and 95% intervals over seeds.",
            panels,
        ),
        Figure(
            "heads-ladder",
            "Where a best step size exists",
            f"{caption}@1: on the true labels. @2: with {100 * NOISE:g}% label noise, loss above the entropy of "
            "the noise. Geometric means and 95% intervals.",
            [
                Panel(
                    "Separable",
                    STEP_AXIS,
                    Axis("train loss", "nats", log=True),
                    _by_step(first, "final"),
                ),
                Panel(
                    "Noisy labels",
                    STEP_AXIS,
                    Axis("excess loss", "nats", log=True),
                    _by_step(first, "noisy"),
                ),
            ],
        ),
        Figure(
            "heads-focus",
            "Focus over the number of heads",
            f"The attention on relevant tokens after {steps} steps of size {STEP_SIZE:g} on the hard mixture "
            f"(focus; {MIXTURE['sparsity']:g} if uniform). Means and 95% intervals.",
            [Panel("", HEADS, FOCUS, focus)],
        ),
        _convexity_figure(results),
    ]


STEP_AXIS = Axis("step size", "dimensionless", log=True)


def _relative(role: str, label: str, losses: xarray.DataArray) -> Mark:
    """The loss over that of the fewest heads on the same seed."""
    return over_seeds(
        role, label, "num_heads", losses / losses.isel(num_heads=0, drop=True), log=True
    )


def _by_step(data: xarray.Dataset, variable: str) -> list[Mark]:
    """Over the step size, one line per number of heads; values that underflow are left out."""
    floor = np.finfo(float).tiny
    return [
        over_seeds(palette.heads(h), heads(h), "step_sizes", one.where(one > floor), log=True)
        for h in data["num_heads"].values.tolist()
        for one in [data[variable].sel(num_heads=h)]
    ]


def _convexity_figure(results: Results) -> Figure:
    marks = []
    for name, label in DATA.items():
        role = label.removeprefix("the ")
        marks.append(
            over_seeds(
                role, role, "num_heads", 100 * (results[name]["gap"] / results[name]["mean_loss"])
            )
        )
    depth = {name: _depth(results[name]) for name in ("first_phase", "gaussian")}
    H, first = rows("num_heads", depth["first_phase"])
    slope = line("reference", "slope -1/2", H, mean(first[-1]).value * np.sqrt(H[-1] / H))
    curves = [
        over_seeds(*SPEED[name], "num_heads", values, log=True) for name, values in depth.items()
    ]
    curvature = Axis("-λ_min / loss", "dimensionless", log=True)
    return Figure(
        "heads-convexity",
        "Non-convexity over the number of heads",
        "@1: the share of the mean train loss that is due to non-convexity along the run (proximal target). @2: "
        "the most negative eigenvalue of the Hessian at the start over the loss; Corollary 1 bounds it by b3/√H.",
        [
            Panel("Cost of non-convexity", HEADS, Axis("convexity gap", "% of mean loss"), marks),
            Panel("Negative curvature", HEADS, curvature, [*curves, slope]),
        ],
    )


STUDY = Study(
    name="heads",
    title="Heads",
    question="Does training get faster, or more convex, with more heads?",
    claim="The landscape gets less non-convex, λ_min >= -β3·loss/√H (Corollary 1); the theorems need many heads. "
    "Nothing is claimed about speed, but readers expect more heads to be faster.",
    settings=[
        stated("descent", f"{tasks.DESCENT}, scores scaled by 1/√H"),
        stated("first-phase start", tasks.FIRST_PHASE),
        chosen("data", tasks.describe(MIXTURE)),
        chosen("second data", tasks.describe(LABELS)),
        chosen("noisy labels", f"{100 * NOISE:g}% of the weight of every label on the other one"),
        chosen(
            "Gaussian start",
            f"E|W_h|^2 = E|U_h|^2 = 1 on the mixture, {GAUSSIAN_SCALE**2:g} on random labels",
        ),
        chosen(
            "step size", f"{STEP_SIZE:g}, and {STEP_SIZE:g} times 1, 2, ..., {2 ** (RUNGS - 1)}"
        ),
        chosen("steps", STEPS),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=2,
    in_story=True,
    seconds=0.5,
)
