"""What can several heads do that one head cannot?

A sequence holds T tokens of two kinds; its label is the parity of the second kind. All 2^T sequences are trained on, so
a model fits or does not: no sequence is left to generalize to. Tokens are two orthogonal vectors of length 2; "one-hot"
adds the position of the token as T further numbers. Heads start as Gaussian draws and all differ; each seed is one
start. A run fits if at one of its recorded steps every score has the sign of its label.

Without positions the scores of one head are the same for many arrangements of the tokens, and floor(T/2) heads are
needed and enough (Theorem P; built here in rational numbers). That one layer of attention cannot compute parity without
enough heads or width is known in other forms (Hahn 2020; Sanford, Hsu and Telgarsky 2023; Hsu, arXiv:2605.12171;
Kozachinskiy, Steifer and Wałęga, arXiv:2602.05896); that descent hardly finds it too (Shalev-Shwartz, Shamir and Shammah
2017). Three scalings: the paper's (gradient descent, one step size), the same with the step of the attention weights W
multiplied by the number of heads, and Adam. The step sizes were chosen on seeds that are not reported.
"""

import itertools

import jax
import numpy as np

import manyheads as mh
from manyheads import lab
from studies._scaling import rule_of

STEPS = 3000
TRIED = np.unique(np.geomspace(1, STEPS, 100).round().astype(int)).tolist()
STEP = {"paper": 1.0, "W times H": 1.0, "Adam": 1.5}  # times the usual one of the scaling


def is_run(place, length, scaling, heads):
    """Theorem P, the scalings and the positions are compared where the runs are cheap."""
    return scaling == "Adam" or (length == 4 and place == "none")


GRID = lab.Grid(
    place=["none", "one-hot"],
    length=[2, 3, 4, 5, 6],
    scaling=["paper", "W times H", "Adam"],
    heads=[1, 2, 3, 4, 8, 16],
    seeds=16,
    where=is_run,
)
QUICK = GRID.replace(length=[4], scaling=["Adam"], heads=[1, 2, 8], seeds=6)
TRY = [dict(place="none", length=4, scaling="Adam", heads=2)]


def sequences(place, length):
    """All sequences with their parity."""
    kinds = np.array(list(itertools.product((0, 1), repeat=length)))
    tokens = 2.0 * np.eye(2)[kinds]
    if place == "one-hot":
        where = np.broadcast_to(np.eye(length), (len(kinds), length, length))
        tokens = np.concatenate([tokens, where], axis=2)
    return mh.Dataset(tokens, (-1.0) ** kinds.sum(axis=1))


def cell(place, length, scaling, heads, seeds):
    data, rule = sequences(place, length), rule_of(scaling, heads, STEP[scaling])
    size = {"num_tokens": data.num_tokens, "dim": data.dim}
    found = {"fits": [], "exact": []}
    for seed in seeds:
        start = mh.gaussian_start(heads, **size, key=jax.random.key(seed))
        run = mh.train(start, data, rule=rule, num_steps=STEPS, record=TRIED)
        found["fits"].append(bool(np.any(run.margin > 0)))
        # In rational arithmetic; two tokens are the exception, which needs two heads.
        found["exact"].append(length > 2 and mh.theory.parity_heads(length).fits)
    return found


def four(results, **setting):
    """The share of starts that fit the parity of four tokens."""
    return results.mean("fits", **{"length": 4, "place": "none", "scaling": "Adam"} | setting)


CLAIMS = [
    lab.Claim(
        "Without positions no start of one head fits the parity of four tokens, which two heads can.",
        lambda r: four(r, heads=1),
        near=0,
        within=0,
        unit="share of starts of one head that fit",
    ),
    lab.Claim(
        "Two heads fit it exactly: they are written down in rational numbers.",
        lambda r: r.mean("exact", length=4, place="none", scaling="Adam", heads=2),
        near=1,
        within=0,
        unit="1 if every score of the two heads has the right sign",
    ),
    lab.Claim(
        "With one-hot positions one head can fit it, and training finds that.",
        lambda r: four(r, place="one-hot", heads=1),
        above=0.01,
        unit="share of starts of one head that fit",
    ),
    lab.Claim(
        "Training rarely finds as few heads as suffice: two heads fit four tokens in fewer than "
        "half of the starts.",
        lambda r: four(r, heads=2),
        below=0.5,
        unit="share of starts of two heads that fit",
    ),
    lab.Claim(
        "More heads than needed make it easy: eight heads fit more often than two.",
        lambda r: r.difference("fits", length=4, place="none", scaling="Adam", heads=(8, 2)),
        above=0,
        unit="difference of the shares of starts that fit",
    ),
]
PANELS = 2


def figure(results, axes):
    for one, place in zip(axes, ("none", "one-hot"), strict=True):
        same = {"place": place, "scaling": "Adam", "log": False}
        lab.lines(one, results, "fits", "heads", "length", label="{:g} tokens".format, **same)
        one.set(title=f"Positions: {place}", xlabel="heads", ylabel="share of starts that fit")
        one.set_ylim(-0.05, 1.05)
