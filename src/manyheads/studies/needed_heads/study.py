"""Are there data that one head cannot interpolate and several can?"""

from __future__ import annotations

import numpy as np
import xarray
from scipy.special import bdtr

from manyheads.studies.kit.estimate import NONE, Estimate, mean, power, ratio, rows, share
from manyheads.studies.kit.figure import HEADS, Axis, Figure, Panel, line, over_seeds
from manyheads.studies.kit.palette import heads
from manyheads.studies.kit.study import (
    Finding,
    Numbers,
    Results,
    Scaled,
    Study,
    chosen,
    conclude,
    grids,
)
from manyheads.studies.kit.tasks import UNIT_GAUSSIAN, describe
from manyheads.studies.kit.words import capital, choose, listed
from manyheads.studies.kit.words import heads as count_of_heads
from manyheads.sweeps.spec import Sweep
from manyheads.theory.finding import LEVEL
from manyheads.theory.manyheads2026.parity import heads_bound

CELLS = "manyheads.studies.needed_heads.cells"
SHAPE = {"num_tokens": 2, "dim": 3}
DATA = {
    "random_labels": {"kind": "random_labels", "token_norm": 2.0, **SHAPE},
    "planted": {"kind": "planted", "teacher_heads": 4, "teacher_scale": 3.0, **SHAPE},
}
NAMES = {"random_labels": "random labels", "planted": "labels of a planted model"}
SIZES = Scaled([16, 32, 64], [16, 32, 64, 128, 256])
RESTARTS, PARITY_STARTS = Scaled(2, 4), Scaled(4, 8)
PARITY_STEP, PARITY_STEPS = 0.03, Scaled(400, 3000)  # chosen on other seeds than those reported
PLANTED = f"labels of a planted model of {DATA['planted']['teacher_heads']} heads"


def sweeps(scale: str) -> dict[str, Sweep]:
    common = {
        "start": {"kind": "gaussian"},
        "seeds": Scaled(3, 6),
        "train": {
            "optimizer": "adam",
            "step_size": Scaled(0.05, 0.03),
            "num_steps": Scaled(400, 2000),
        },
    }
    memorize = {
        "cell": f"{CELLS}:memorize",
        "parameters": {
            "sizes": SIZES,
            "candidates": Scaled(
                [1, 2, 3, 4, 6, 8, 12], [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
            ),
            "restarts": RESTARTS,
        },
    }
    parity = {
        "cell": f"{CELLS}:parity",
        "train": {"optimizer": "adam", "step_size": PARITY_STEP, "num_steps": PARITY_STEPS},
        "parameters": {
            "lengths": Scaled([3, 4, 5], [2, 3, 4, 5, 6]),
            "heads": Scaled([1, 2, 4, 8], [1, 2, 3, 4, 6, 8, 12, 16, 32]),
            "starts": PARITY_STARTS,
        },
    }
    size = {"num_examples": Scaled(max(SIZES.quick), max(SIZES.full)), "num_test": 0}
    made = {name: {**common, **memorize, "data": {**data, **size}} for name, data in DATA.items()}
    return grids("needed_heads", scale, **made, parity=common | parity)


def finding(results: Results) -> Finding:
    numbers, ends, exponents, per_head = Numbers(), {}, {}, {}
    for name, label in NAMES.items():
        sizes, needed = rows("sizes", results[name]["needed"])
        last, ends[name] = sizes[-1], needed[-1]
        _add_needed(numbers, f"{name}.{last}", f"n = {last}, {label}", results[name], needed[-1])
        known = not np.isinf(
            needed
        ).any()  # a slope or ratio without the hardest draws would be too small
        caption = f"exponent of the heads needed in n, {label}"
        exponents[name] = numbers.add(
            f"exponent.{name}", caption, power(sizes, needed) if known else NONE
        )
        each = _ratio(np.full(len(needed[-1]), last), needed[-1])
        per_head[name] = numbers.add(
            f"per_head.{name}", f"sequences per head at n = {last}, {label}", each
        )
    parity = results["parity"]
    lengths, by_length = rows("lengths", parity["needed"])
    bounds = np.array([heads_bound(int(t)) for t in lengths])
    for t, row in zip(lengths, by_length, strict=True):
        _add_needed(numbers, f"parity.{t}", f"parity of {t} tokens", parity, row)
    hardest = _add_steps(numbers, parity)
    caption = f"heads for random labels / for planted labels, n = {last}"
    compared = numbers.add("random_over_planted", caption, _ratio(*ends.values()))
    versus = choose(
        compared,
        at=1,
        above=f"Random labels need more than the {PLANTED} (factor {compared})",
        below=f"Random labels need fewer than the {PLANTED} (factor {compared})",
        undecided=f"Random labels need as many heads, within the noise, as the {PLANTED} (factor {compared})",
        missing=f"Random labels cannot be compared with the {PLANTED}",
    )
    each = per_head["random_labels"]
    memory = _memory(results["random_labels"], exponents["random_labels"])
    sentences = [
        f"To fit parity, training needed {_heads_for(parity, 0)} and {_heads_for(parity, -1)}; "
        f"{', '.join(map(str, bounds))} are necessary and enough for {', '.join(map(str, lengths))} tokens.",
        hardest,
        f"{memory}{f'; at n = {last} one head per {each} sequences' if each.count else ''}.",
        f"{versus}.",
    ]
    notes = (
        "One head averages the tokens' values, so it cannot give p p and q q one sign and p q, q p the other; a "
        "proof is in docs/theory/needed-heads.md, and that parity of T tokens takes exactly T/2 heads, rounded down "
        "(two for T = 2). Heads that start equal count as one.",
        "No number of heads gives parity a larger margin than 2^(1-T) (odd T) or 2^-T (even T) times the readouts' "
        "weight (Theorem Q there).",
        "Training gives upper bounds: what it does not fit, another start might. Mahdavi et al. (2023) show that of "
        f"the order of n/T heads memorize n sequences in a related model; here T = {SHAPE['num_tokens']}.",
    )
    cells = [data["needed"].isel({data["needed"].dims[-1]: 0}) for data in results.values()]
    return conclude(_answer(parity, by_length, bounds), sentences, numbers, cells, notes)


def _answer(parity: xarray.Dataset, needed: np.ndarray, bounds: np.ndarray) -> str:
    lengths, alone = rows("lengths", parity["one_head"])
    even = lengths % 2 == 0
    beaten = [
        int(t)
        for t, row, b in zip(lengths, needed, bounds, strict=True)
        if np.nanmin(row, initial=np.inf) < b
    ]
    if beaten:
        return f"The proof is contradicted: parity of {beaten[0]} tokens was fitted with fewer heads than it allows"
    if np.isnan(alone[even]).all():
        return "Not measured"
    if (alone[even] == 1).any():
        return "No: one head fits the construction"
    if np.isfinite(needed[even]).any():
        return "Yes: one head never fits the parity of an even number of tokens, several do"
    return "One head does not fit the construction, and neither did any number tried"


def _memory(data: xarray.Dataset, growth: Estimate) -> str:
    """How the heads needed for random labels depend on n; no exponent if a draw needs more than were tried."""
    sizes, needed = rows("sizes", data["needed"])
    if np.isnan(needed).all():
        return "The heads that random labels need were not measured"
    if np.isinf(needed).any():
        beyond = [
            f"n = {n} {_draws(row)}"
            for n, row in zip(sizes, needed, strict=True)
            if np.isinf(row).any()
        ]
        most = f"more than {_largest(data):,.0f} heads at {', '.join(beyond)}"
        return f"Random labels need {most}, the most that were tried, so there is no exponent in n"
    unclear = f"The heads that random labels need show no clear trend in n (exponent {growth})"
    return choose(
        growth,
        above=f"Random labels need more heads the more sequences there are, about n to the power {growth}",
        below=f"Random labels need fewer heads the more sequences there are, about n to the power {growth}",
        undecided=unclear,
        missing=unclear,
    )


def _steps(parity: xarray.Dataset) -> np.ndarray:
    """Steps to fit: lengths by numbers of heads by starts of all seeds; NaN where a cell is missing."""
    steps = parity["steps"].transpose("length", "head", ...).values
    return steps.reshape(*steps.shape[:2], -1)


def _median(values: np.ndarray) -> Estimate:
    """The median with its 95% interval by order statistics; a start that never fits is an infinite value."""
    v = np.sort(values[~np.isnan(values)])
    if not len(v):
        return NONE
    below = int(np.sum(bdtr(np.arange(len(v) + 1), len(v), 0.5) < (1 - LEVEL) / 2))
    low, high = (v[below - 1], v[-below]) if below else (0.0, np.inf)
    return Estimate(
        float(np.quantile(v, 0.5, method="inverted_cdf")), float(low), float(high), len(v)
    )


def _add_steps(numbers: Numbers, parity: xarray.Dataset) -> str:
    """Numbers for the starts that fit and their steps; a sentence on the longest sequences."""
    lengths, counts, steps = parity["lengths"].values, parity["heads"].values, _steps(parity)
    said = []
    for t, by_heads in zip(lengths, steps, strict=True):
        for h, row in zip(counts, by_heads, strict=True):
            if h < heads_bound(int(t)):
                continue
            fitted = np.where(np.isnan(row), np.nan, np.isfinite(row))
            what = f"parity of {t} tokens, {count_of_heads(h)}"
            found = numbers.add(
                f"fitted.{t}.{h}", f"share of starts that fit, {what}", share(fitted)
            )
            median = numbers.add(f"steps.{t}.{h}", f"median steps to fit, {what}", _median(row))
            if t == lengths[-1] and found.count:
                after = f" (median {median} steps)" if np.isfinite(median.value) else ""
                said.append(f"{found} with {count_of_heads(h)}{after}")
    if not said:
        return "Steps to fit parity were not measured."
    within = f"within {int(parity['limit'].max()):,} steps of Adam with step size {PARITY_STEP:g}"
    return f"Share of Gaussian starts that fit {lengths[-1]} tokens {within}: {listed(said)}."


def _heads_for(parity: xarray.Dataset, place: int) -> str:
    """The heads that training needed for one length of parity, in words."""
    lengths, needed = rows("lengths", parity["needed"])
    if np.isinf(needed[place]).any():
        return f"more than {_largest(parity):,.0f} heads for {lengths[place]} tokens {_draws(needed[place])}"
    found = str(mean(needed[place]))
    return f"{found} {'head' if found == '1' else 'heads'} for {lengths[place]} tokens"


def _draws(row: np.ndarray) -> str:
    """In how many draws more heads are needed than were tried."""
    return f"in {int(np.isinf(row).sum())} of {int((~np.isnan(row)).sum())} draws"


def _add_needed(
    numbers: Numbers, name: str, what: str, data: xarray.Dataset, row: np.ndarray
) -> None:
    beyond = int(np.isinf(row).sum())
    caption = f"heads needed, {what}" + (
        f" (lower bound: {beyond} of {len(row)} need more)" if beyond else ""
    )
    numbers.add(f"needed.{name}", caption, mean(_at_least(data, row)))


def _largest(data: xarray.Dataset) -> float:
    """The largest number of heads tried."""
    return float(data["largest"].max())


def _at_least(data: xarray.Dataset, needed: np.ndarray) -> np.ndarray:
    """The heads needed, and the largest number tried where that was not enough: a lower bound."""
    return np.where(np.isinf(needed), _largest(data), needed) if np.isinf(needed).any() else needed


def _ratio(above: np.ndarray, below: np.ndarray) -> Estimate:
    """The ratio over seeds, not measured where a draw needs more heads than were tried."""
    return NONE if np.isinf(above).any() or np.isinf(below).any() else ratio(above, below)


def figures(results: Results) -> list[Figure]:
    def drawn(name: str, along: str) -> np.ndarray:
        return _at_least(results[name], rows(along, results[name]["needed"])[1])

    sizes, lengths = results["random_labels"]["sizes"].values, results["parity"]["lengths"].values
    per_head = SHAPE["num_tokens"] * SHAPE["dim"] + SHAPE["dim"] ** 2
    marks = [
        over_seeds(role, capital(NAMES[name]), sizes, drawn(name, "sizes"))
        for name, role in (("random_labels", "random labels"), ("planted", "planted"))
    ]
    marks.append(line("reference", "One weight per sequence", sizes, sizes / per_head))
    names = [str(t) for t in lengths]
    parity = [
        line(
            "ours", "Necessary and enough (proved)", names, [heads_bound(int(t)) for t in lengths]
        ),
        over_seeds("construction", "Needed by training", names, drawn("parity", "lengths")),
    ]
    panels = [
        Panel("Memorizing", Axis("sequences", "count", log=True), HEADS, marks),
        Panel("Parity of the tokens", Axis("tokens", "count"), Axis("heads", "count"), parity),
    ]
    caption = (
        f"Smallest number of heads with which some start reaches zero error. @1: random labels, and {PLANTED}, "
        f"T={SHAPE['num_tokens']}, d={SHAPE['dim']}. @2: all sequences of two kinds of tokens, labeled by the "
        "parity of one kind. Means and 95% intervals over seeds"
    )
    beyond = any(np.isinf(data["needed"]).any() for data in results.values())
    caption += (
        "; draws that need more heads than were tried count as that many, a lower bound."
        if beyond
        else "."
    )
    return [
        Figure("needed_heads-size", "How many heads it takes", caption, panels),
        _steps_figure(results["parity"]),
    ]


def _steps_figure(parity: xarray.Dataset) -> Figure:
    """How often and how fast training fits parity, for each number of heads."""
    steps, names = _steps(parity), [str(t) for t in parity["lengths"].values]
    shares, medians = [], []
    for place, h in enumerate(parity["heads"].values):
        rows_ = steps[:, place]
        fitted = np.where(np.isnan(rows_), np.nan, np.isfinite(rows_))
        shares.append(over_seeds(heads(h), count_of_heads(h), names, fitted, truth=True))
        each = [_median(row) for row in rows_]
        y, low, high = (
            [max(getattr(e, side), 1.0) for e in each] for side in ("value", "low", "high")
        )
        if np.isfinite(y).any():
            medians.append(line(heads(h), count_of_heads(h), names, y, low, high))
    tokens = Axis("tokens", "count")
    panels = [
        Panel("Starts that fit", tokens, Axis("starts with zero error", "share"), shares),
        Panel(
            "Steps to fit", tokens, Axis("median steps to zero error", "steps", log=True), medians
        ),
    ]
    caption = (
        "Parity from Gaussian starts. @1: share of the starts that reach zero error. @2: median of their steps, drawn "
        "where at least half of them do. 95% intervals over starts."
    )
    return Figure("needed_heads-steps", "What more heads buy on parity", caption, panels)


STUDY = Study(
    name="needed_heads",
    title="Needed heads",
    question="Are there data that one head cannot interpolate and several can?",
    claim="The paper asks for data models for which multiple heads are necessary.",
    settings=[
        chosen("random labels", describe(DATA["random_labels"])),
        chosen("planted model", describe(DATA["planted"])),
        chosen(
            "construction",
            "every sequence of T tokens, each one of two orthogonal vectors of norm 2; label = parity",
        ),
        chosen(
            "training",
            f"Adam; start: {UNIT_GAUSSIAN}; zero error at one of 10 looks counts, of 100 for parity",
        ),
        chosen(
            "parity",
            f"step size {PARITY_STEP:g}, {PARITY_STEPS} steps; step size and scale chosen on other seeds",
        ),
        chosen(
            "restarts", f"starts per number of heads: memorizing {RESTARTS}, parity {PARITY_STARTS}"
        ),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
    part="heads",
    order=1,
    in_story=True,
    seconds=2,
)
