"""Are there data that one head cannot interpolate and several can?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.estimate import Estimate, lacking, mean, power, ratio
from manyheads.studies.figure import Axis, Figure, Panel, line, over_seeds
from manyheads.studies.study import Finding, Results, Study, chosen, grid
from manyheads.sweeps.spec import Sweep

CELLS = "manyheads.studies.cells.needed_heads"
TOKENS, DIM = 2, 3
NAMES = {"random_labels": "random labels", "planted": "labels of a planted model"}


def sweeps(scale: str) -> dict[str, Sweep]:
    quick = scale == "quick"
    sizes = [16, 32, 64, 128] if quick else [16, 32, 64, 128, 256]
    heads = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16] if quick else [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    common = {"start": {"kind": "gaussian"}, "seeds": 4 if quick else 6}
    training = (
        {"optimizer": "adam", "step_size": 0.05, "num_steps": 600}
        if quick
        else {"optimizer": "adam", "step_size": 0.03, "num_steps": 2000}
    )
    shape = {"num_tokens": TOKENS, "dim": DIM, "num_examples": max(sizes), "num_test": 0}
    kinds = {
        "random_labels": {"kind": "random_labels", "token_norm": 2.0},
        "planted": {"kind": "planted", "teacher_heads": 4, "teacher_scale": 3.0},
    }
    made = {
        name: grid(
            name=f"needed_heads-{name}",
            data={**kind, **shape},
            train=training,
            cell=f"{CELLS}:memorize",
            parameters={"sizes": sizes, "candidates": heads, "restarts": 3 if quick else 4},
            **common,
        )
        for name, kind in kinds.items()
    }
    made["parity"] = grid(
        name="needed_heads-parity",
        train=training,
        cell=f"{CELLS}:parity",
        parameters={
            "lengths": [2, 3, 4, 5] if quick else [2, 3, 4, 5, 6],
            "candidates": [1, 2, 3, 4, 5, 6, 8] if quick else [1, 2, 3, 4, 5, 6, 7, 8, 10, 12],
            "restarts": 4 if quick else 8,
        },
        **common,
    )
    return made


def heads_bound(num_tokens: int) -> int:
    """Heads that the parity of `num_tokens` two-valued tokens needs, proved in docs/theory/needed-heads.md."""
    return max(-(-(num_tokens - 1) // 2), 2 if num_tokens % 2 == 0 else 1)


def finding(results: Results) -> Finding:
    numbers: dict[str, Estimate] = {}
    for name, label in NAMES.items():
        sizes, needed = results[name]["sizes"].values, _needed(results[name], "size")
        known = not np.isinf(needed).any()  # a slope or ratio without the hardest draws would be too small
        numbers |= {
            _at(f"n = {sizes[-1]}, {label}", needed[-1]): mean(_at_least(results[name], needed[-1])),
            f"exponent of the heads needed in n, {label}": power(sizes, needed) if known else mean([]),
            f"sequences per head at n = {sizes[-1]}, {label}": _ratio(np.full(len(needed[-1]), sizes[-1]), needed[-1]),
        }
    parity = results["parity"]
    lengths, by_length = parity["lengths"].values, _needed(parity, "length")
    bounds = np.array([heads_bound(int(t)) for t in lengths])
    for t, row in zip(lengths, by_length, strict=True):
        numbers[_at(f"parity of {t} tokens", row)] = mean(_at_least(parity, row))
    last = results["random_labels"]["sizes"].values[-1]
    compared = _ratio(*(_needed(results[name], "size")[-1] for name in NAMES))
    numbers[f"heads for random labels / for planted labels, n = {last}"] = compared
    each = numbers[f"sequences per head at n = {last}, {NAMES['random_labels']}"]
    if compared.count == 0:
        versus = "They cannot be compared with the labels of a planted model of 4 heads"
    else:
        words = "more" if compared.above(1) else "fewer" if compared.below(1) else "as many heads, within the noise,"
        versus = f"They need {words} than the labels of a planted model of 4 heads (factor {compared})"
    sentence = (
        f"{_memory(results['random_labels'], numbers)}"
        f"{f'; at n = {last} one head per {each} sequences' if each.count else ''}. {versus}. Parity took training "
        f"{_heads_for(parity, 0)} and {_heads_for(parity, -1)}; at least "
        f"{', '.join(map(str, bounds))} are necessary for {', '.join(map(str, lengths))} tokens."
    )
    if gone := lacking(*(data["needed"].isel({data["needed"].dims[-1]: 0}) for data in results.values())):
        sentence += f" {gone}"
    notes = (
        "One head averages the tokens' values, so it cannot give p p and q q one sign and p q, q p the other; a "
        "proof is in docs/theory/needed-heads.md, and why parity of T tokens needs (T-1)/2 heads. Heads that "
        "start equal count as one.",
        "Training gives upper bounds: what it does not fit, another start might. Mahdavi et al. (2023) show that of "
        f"the order of n/T heads memorize n sequences in a related model; here T = {TOKENS}.",
    )
    return Finding(_answer(parity, by_length, bounds), sentence, numbers, notes)


def _answer(parity: xarray.Dataset, needed: np.ndarray, bounds: np.ndarray) -> str:
    lengths = parity["lengths"].values
    even = lengths % 2 == 0
    alone = parity["one_head"].transpose("length", "seed").values.astype(float)[even]
    beaten = [int(t) for t, row, b in zip(lengths, needed, bounds, strict=True) if np.nanmin(row, initial=np.inf) < b]
    if beaten:
        return f"The proof is contradicted: parity of {beaten[0]} tokens was fitted with fewer heads than it allows"
    if np.isnan(alone).all():
        return "Not measured"
    if (alone == 1).any():
        return "No: one head fits the construction"
    if np.isfinite(needed[even]).any():
        return "Yes: one head never fits the parity of an even number of tokens, several do"
    return "One head does not fit the construction, and neither did any number tried"


def _memory(data: xarray.Dataset, numbers: dict[str, Estimate]) -> str:
    """How the heads that random labels need go with n; draws beyond the largest candidate allow no exponent."""
    sizes, needed = data["sizes"].values, _needed(data, "size")
    growth = numbers[f"exponent of the heads needed in n, {NAMES['random_labels']}"]
    if np.isnan(needed).all():
        return "The heads that random labels need were not measured"
    if np.isinf(needed).any():
        beyond = [
            f"n = {n} in {int(np.isinf(row).sum())} of {int((~np.isnan(row)).sum())} draws"
            for n, row in zip(sizes, needed, strict=True)
            if np.isinf(row).any()
        ]
        most = f"more than {_largest(data):,.0f} heads at {', '.join(beyond)}"
        return f"Random labels need {most}, the most that were tried, so there is no exponent in n"
    if growth.above(0):
        return f"Random labels need more heads the more sequences there are, about n to the power {growth}"
    if growth.below(0):
        return f"Random labels need fewer heads the more sequences there are, about n to the power {growth}"
    return f"The heads that random labels need show no clear trend in n (exponent {growth})"


def _heads_for(parity: xarray.Dataset, place: int) -> str:
    """The heads that training took for one length of parity, in words."""
    row, tokens = _needed(parity, "length")[place], parity["lengths"].values[place]
    if np.isinf(row).any():
        share = f"in {int(np.isinf(row).sum())} of {int((~np.isnan(row)).sum())} draws"
        return f"more than {_largest(parity):,.0f} heads for {tokens} tokens {share}"
    return f"{mean(row)} heads for {tokens} tokens"


def _at(what: str, row: np.ndarray) -> str:
    beyond = int(np.isinf(row).sum())
    return f"heads needed, {what}" + (f" (lower bound: {beyond} of {len(row)} need more)" if beyond else "")


def _largest(data: xarray.Dataset) -> float:
    """The largest number of heads tried."""
    return float(data["largest"].max())


def _at_least(data: xarray.Dataset, needed: np.ndarray) -> np.ndarray:
    """The heads needed, and the largest number tried where that was not enough: a lower bound."""
    return np.where(np.isinf(needed), _largest(data), needed) if np.isinf(needed).any() else needed


def _ratio(above: np.ndarray, below: np.ndarray) -> Estimate:
    """The ratio over seeds, not measured where a draw needs more heads than were tried."""
    return mean([]) if np.isinf(above).any() or np.isinf(below).any() else ratio(above, below)


def figures(results: Results) -> list[Figure]:
    sizes = results["random_labels"]["sizes"].values
    per_head = TOKENS * DIM + DIM**2
    marks = [
        over_seeds(role, label[0].upper() + label[1:], sizes, _drawn(results[name], "size"))
        for (name, label), role in zip(NAMES.items(), ("random labels", "planted"), strict=True)
    ]
    marks.append(line("reference", "One weight per sequence", sizes, sizes / per_head))
    lengths = results["parity"]["lengths"].values
    names = [str(t) for t in lengths]
    parity = [
        line("reference", "Sufficient (proved)", names, lengths),
        line("ours", "Necessary (proved)", names, [heads_bound(int(t)) for t in lengths]),
        over_seeds("construction", "Needed by training", names, _drawn(results["parity"], "length")),
    ]
    panels = [
        Panel("Memorizing", Axis("sequences", "count", log=True), Axis("heads", "count", log=True), marks),
        Panel("Parity of the tokens", Axis("tokens", "count"), Axis("heads", "count"), parity),
    ]
    caption = (
        "Smallest number of heads with which some start reaches zero error. Top: random labels, and those of a planted "
        f"model of 4 heads, T={TOKENS}, d={DIM}. Bottom: all sequences of two kinds of tokens, labeled by the parity "
        "of one kind. Means and 95% intervals over seeds"
    )
    beyond = any(np.isinf(data["needed"]).any() for data in results.values())
    caption += "; draws that need more heads than were tried count as that many, a lower bound." if beyond else "."
    return [Figure("needed_heads-size", "How many heads it takes", caption, panels)]


def _needed(data: xarray.Dataset, dim: str) -> np.ndarray:
    """Heads needed, a row per value of `dim`: infinite where more than were tried, NaN where a cell is missing."""
    return data["needed"].transpose(dim, "seed").values


def _drawn(data: xarray.Dataset, dim: str) -> np.ndarray:
    return _at_least(data, _needed(data, dim))


STUDY = Study(
    name="needed_heads",
    title="Needed heads",
    question="Are there data that one head cannot interpolate and several can?",
    claim="The paper asks for data models for which multiple heads are necessary.",
    settings=[
        chosen("random labels", f"T={TOKENS}, d={DIM}, tokens of norm 2 in random directions"),
        chosen("planted model", f"T={TOKENS}, d={DIM}, Gaussian tokens, 4 heads with weights of scale 3"),
        chosen(
            "construction", "every sequence of T tokens, each one of two orthogonal vectors of norm 2; label = parity"
        ),
        chosen(
            "training", "Adam from Gaussian starts with heads of norm about 1; zero error at one of ten looks counts"
        ),
        chosen("restarts", "memorizing 3 (quick) or 4 (full) starts per number of heads, parity 4 or 8"),
    ],
    sweeps=sweeps,
    finding=finding,
    figures=figures,
)
