"""Question: how often is the headline of `AttentionProbe.report` wrong on tasks whose truth is known?

Run:  python benchmarks/probe_verdicts.py 200 RESULT.json      One line for each task as it comes.

Kinds: nothing (labels without relation), linear (a direction of the mean token), attention (a marked token carries the
label, the others drown it), few (the same with 24 sequences). A verdict is wrong if it claims what is not there: that
something was learned from nothing, that attention wins where a linear model is the truth, or that a rival wins where
attention is needed. Seeing no difference is never wrong, and counted by itself.
"""

import collections
import json
import sys
import warnings
from pathlib import Path

import numpy as np

from manyheads.probe.attention_probe import AttentionProbe

WRONG = {
    "nothing": ("attention", "tie", "rival"),
    "linear": ("attention",),
    "attention": ("rival",),
    "few": ("rival",),
}


def task(kind: str, seed: int):
    """Sequences of six tokens, and labels."""
    rng = np.random.default_rng(seed)
    count = 24 if kind == "few" else 80
    X = rng.normal(size=(count, 6, 4))
    if kind == "nothing":
        return X, rng.integers(0, 2, count)
    if kind == "linear":
        return X, (X.mean(axis=1)[:, 0] + 0.1 * rng.normal(size=count) > 0).astype(int)
    at = rng.integers(0, 6, count)
    X[:, :, 0] *= 2.0
    X[np.arange(count), at, 1] += 7.0
    return X, (X[np.arange(count), at, 0] > 0).astype(int)


def main(count: int, result: Path) -> None:
    """The verdicts of every kind."""
    warnings.simplefilter("ignore")
    found = {kind: collections.Counter() for kind in WRONG}
    for number in range(count):
        kind = list(WRONG)[number % len(WRONG)]
        X, y = task(kind, number)
        if min(np.bincount(y, minlength=2)) < 6:
            continue
        verdict = AttentionProbe().report(X, y, curve=False).verdict
        found[kind][verdict] += 1
        wrong = {name: sum(found[name][bad] for bad in WRONG[name]) for name in found}
        summary = {"level": 0.05, "tasks": number + 1, "verdicts": found, "wrong": wrong}
        result.write_text(json.dumps(summary, indent=1) + "\n")
        print(number, kind, verdict, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
