"""The scaling identity: heads that start alike are one head whose attention has a smaller step.

Proof: docs/theory/collapse.md.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from manyheads.data import dataset as datasets
from manyheads.theory.deora2023 import formula
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.statement import Statement
from manyheads.training import descent
from manyheads.training import start as starts
from manyheads.training.rules import GD

# sequences, tokens, dimensions
SIZE, STEPS, ETA = (6, 4, 3), 60, 0.5
# of a loss in float64 after the steps, relative
NOISE = 1e-10


@jax.jit
def losses(W, U, X, y, slower):
    """Losses of plain descent on explicit heads; the step of W is smaller by the factor `slower`."""

    def step(heads, _):
        value, slope = jax.value_and_grad(formula.train_loss)(heads, X, y)
        W, U = heads["W"] - ETA / slower * slope["W"], heads["U"] - ETA * slope["U"]
        return {"W": W, "U": U}, value

    return jax.lax.scan(step, {"W": W, "U": U}, length=STEPS + 1)[1]


def check_scaling(effort: Effort) -> Finding:
    """Heads written out one by one, in one or two classes, against one or two heads; and `train` at a million heads."""
    tally, rng = Tally(), np.random.default_rng(effort.seed)
    n, T, d = SIZE
    for k in range(effort.count(40, 4)):
        classes, copies = 1 + k % 2, (8, 32)[k // 2 % 2]
        X, y = rng.standard_normal(SIZE), rng.choice((-1.0, 1.0), size=n)
        W = 0.5 * rng.standard_normal((classes, d, d))
        U = 0.5 * rng.standard_normal((classes, T, d))
        with jax.enable_x64(True):
            many = losses(W.repeat(copies, axis=0), U.repeat(copies, axis=0), X, y, 1.0)
            # the few heads: readouts larger by the root of the copies, attention slower by their number
            few = losses(W, np.sqrt(copies) * U, X, y, float(copies))
        add(tally, many, few)
        start = starts.zero_start(1e6, num_tokens=T, dim=d)
        settings: dict[str, Any] = {
            "rule": GD(ETA),
            "num_steps": STEPS,
            "record": "all",
            "dtype": "float64",
        }
        run = descent.train(start, datasets.Dataset(X, y), **settings)
        with jax.enable_x64(True):
            few = losses(np.zeros((1, d, d)), np.zeros((1, T, d)), X, y, 1e6)
        add(tally, run.train_loss, few)
    return tally.finding(
        f"losses of {STEPS} steps; 8 and 32 heads a class written out, 1e6 by train"
    )


def add(tally: Tally, many, few) -> None:
    """An equality of two curves: a bound from both sides."""
    for a, b in zip(np.asarray(many), np.asarray(few), strict=True):
        tally.add(a, b, noise=NOISE * b)
        tally.add(a, b, sense=">=", noise=NOISE * b)


SCALING = Statement(
    id="scaling",
    place="ours, the scaling identity",
    title="heads that start alike are one head whose attention learns more slowly",
    ours="C classes of N equal heads each, H = NC, descended with step η, have at every step the loss of C heads that "
    "start from (√N U, W) and descend with step η on U and η/N on W; from the zero start C = 1, "
    "from the first phase "
    "C = 2. With 1/H for 1/√H and step ηH nothing depends on H",
    proof="docs/theory/collapse.md#the-scaling-identity",
    tightness=1.0,
    remark="an identity: both sides agree to rounding",
    check=check_scaling,
    aliases=("scaling-identity",),
)
