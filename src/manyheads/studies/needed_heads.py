"""Are there data that one head cannot interpolate and several can?"""

from __future__ import annotations

import numpy as np
import xarray

from manyheads.studies.estimate import Estimate, mean, number, power, ratio
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
        data = results[name]
        sizes, needed = data["sizes"].values, data["needed"].transpose("size", "seed").values
        largest = sizes[-1]
        numbers |= {
            f"heads needed at n = {largest}, {label}": mean(needed[-1]),
            f"exponent of the heads needed in n, {label}": power(sizes, needed),
            f"sequences per head at n = {largest}, {label}": ratio(np.full(needed.shape[1], largest), needed[-1]),
        }
    parity = results["parity"]
    lengths = parity["lengths"].values
    by_length = parity["needed"].transpose("length", "seed").values
    bounds = np.array([heads_bound(int(t)) for t in lengths])
    numbers |= {f"heads needed, parity of {t} tokens": mean(row) for t, row in zip(lengths, by_length, strict=True)}
    even = lengths % 2 == 0
    alone = parity["one_head"].transpose("length", "seed").values[even]
    several = np.isfinite(by_length[even]).any(axis=1)
    beaten = [
        int(t) for t, row, b in zip(lengths, by_length, bounds, strict=True) if np.nanmin(row, initial=np.inf) < b
    ]
    if beaten:
        answer = f"The proof is contradicted: parity of {beaten[0]} tokens was fitted with fewer heads than it allows"
    elif alone.any():
        answer = "No: one head fits the construction"
    elif several.any():
        answer = "Yes: one head never fits the parity of an even number of tokens, several do"
    else:
        answer = "One head does not fit the construction, and neither did any number tried"
    growth = numbers[f"exponent of the heads needed in n, {NAMES['random_labels']}"]
    if growth.above(0):
        memory = f"Random labels need more heads the more sequences there are, about n to the power {growth}"
    elif growth.below(0):
        memory = f"Random labels need fewer heads the more sequences there are, about n to the power {growth}"
    else:
        memory = f"The heads that random labels need show no clear trend in n (exponent {growth})"
    last = results["random_labels"]["sizes"].values[-1]
    sets = (results[name]["needed"].transpose("size", "seed").values[-1] for name in NAMES)
    compared = ratio(*sets)
    numbers[f"heads for random labels / for planted labels, n = {last}"] = compared
    words = "more" if compared.above(1) else "fewer" if compared.below(1) else "as many heads, within the noise,"
    each = numbers[f"sequences per head at n = {last}, {NAMES['random_labels']}"]
    few = f"{number(float(np.mean(by_length[0])))} heads for {lengths[0]} tokens"
    sentence = (
        f"{memory}; at n = {last} one head per {each} sequences. They need {words} than the labels of a planted model "
        f"of 4 heads (factor {compared}). Parity took training {few} and "
        f"{numbers[f'heads needed, parity of {lengths[-1]} tokens']} for {lengths[-1]}; at least "
        f"{', '.join(map(str, bounds))} are necessary for {', '.join(map(str, lengths))} tokens."
    )
    notes = (
        "One head averages the tokens' values, so it cannot give p p and q q one sign and p q, q p the other; a "
        "proof is in docs/theory/needed-heads.md, and why parity of T tokens needs (T-1)/2 heads. Heads that "
        "start equal count as one.",
        "Training gives upper bounds: what it does not fit, another start might. Mahdavi et al. (2023) show that of "
        f"the order of n/T heads memorize n sequences in a related model; here T = {TOKENS}.",
    )
    return Finding(answer, sentence, numbers, notes)


def figures(results: Results) -> list[Figure]:
    sizes = results["random_labels"]["sizes"].values
    per_head = TOKENS * DIM + DIM**2
    marks = [
        over_seeds(role, label[0].upper() + label[1:], sizes, _needed(results[name], "size"))
        for (name, label), role in zip(NAMES.items(), ("random labels", "planted"), strict=True)
    ]
    marks.append(line("reference", "One weight per sequence", sizes, sizes / per_head))
    lengths = results["parity"]["lengths"].values
    names = [str(t) for t in lengths]
    parity = [
        line("reference", "Sufficient (proved)", names, lengths),
        line("ours", "Necessary (proved)", names, [heads_bound(int(t)) for t in lengths]),
        over_seeds("construction", "Needed by training", names, _needed(results["parity"], "length")),
    ]
    panels = [
        Panel("Memorizing", Axis("sequences", "count", log=True), Axis("heads", "count", log=True), marks),
        Panel("Parity of the tokens", Axis("tokens", "count"), Axis("heads", "count"), parity),
    ]
    caption = (
        "Smallest number of heads with which some start reaches zero error. Top: random labels, and those of a planted "
        f"model of 4 heads, T={TOKENS}, d={DIM}. Bottom: all sequences of two kinds of tokens, labeled by the parity "
        "of one kind. Means and 95% intervals over seeds."
    )
    return [Figure("needed_heads-size", "How many heads it takes", caption, panels)]


def _needed(data: xarray.Dataset, dim: str) -> np.ndarray:
    return data["needed"].transpose(dim, "seed").values


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
