"""The forecast for other losses than the logistic one and for other readouts than the full one."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from manyheads.model.loss import HYPERBOLIC
from manyheads.theory import walk as follower
from manyheads.theory.deora2023.carried import pairs
from manyheads.theory.deora2023.problem import small_problem
from manyheads.theory.finding import Effort, Finding, Tally
from manyheads.theory.manyheads2026 import attack as attacks
from manyheads.theory.manyheads2026 import forecast as forecasts
from manyheads.theory.search import ascend
from manyheads.theory.statement import Statement
from manyheads.training import start as starts


def local_bounds(tally: Tally, effort: Effort) -> dict[str, float]:
    """The two local bounds that depend on the loss, at points of random balls; a full check adds ascent from there."""
    rng = np.random.default_rng(effort.seed)
    size = attacks.CLASSES * attacks.DIM * (attacks.DIM + attacks.TOKENS)
    points = [
        p | {"raw": rng.standard_normal(size), "turn": rng.standard_normal(size)}
        for p in (attacks.problem(rng, loss=HYPERBOLIC) for _ in range(effort.count(100, 6)))
        for _ in range(6)
    ]
    shares = {}
    for name in ("slope_over_loss", "loss_smoothness"):
        ratio = partial(getattr(attacks, name), loss=HYPERBOLIC)
        if effort.quick:
            with jax.enable_x64(True):
                stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *points)
                share = float(np.max(jax.jit(jax.vmap(ratio))(stacked)))
        else:
            share = ascend(ratio, points, steps=200, rate=0.1)[1]
        shares[name.replace("_", " ")] = share
    for share in shares.values():
        tally.add(share, 1.0)
        tally.trials += len(points) - 1
    return shares


def check_carried(effort: Effort) -> Finding:
    """Local bounds for the hyperbolic loss, and runs of every readout and loss against their forecasts."""
    tally, told = Tally(), []
    shares = local_bounds(tally, effort)
    for k, (decoder, loss) in enumerate(pairs(effort)[: effort.count(5, 1)]):
        for heads in (8,) if effort.quick else (1, 8, 64, 1e6):
            _, data, fresh = small_problem(effort.seed + k)
            start = starts.first_phase(fresh, heads, decoder=decoder, loss=loss)
            plan: dict[str, Any] = {
                "step_size": {"full": 0.3, "pooled": 0.05, "last": 0.5}[decoder],
                "loss": loss,
            }
            after = follower.follow(start, data, **plan, num_steps=(0, 20, 80)[k % 3] + 1).final
            promise = forecasts.forecast(after, data, **plan, most_pieces=effort.count(60, 10))
            if not promise.pieces:
                continue
            walk = follower.follow(after, data, **plan, num_steps=min(int(promise.steps[-1]), 5000))
            for steps, level in zip(promise.steps, promise.certified_loss, strict=True):
                if steps < len(walk.loss):
                    tally.add(walk.loss[: steps + 1].min(), level)
            told.append(f"{decoder} {loss.name}, {heads:g} heads: {promise.nats:.2f} nats")
    text = ", ".join(f"{name} {share:.3f}" for name, share in shares.items())
    return tally.finding(f"largest shares: {text}; every promise was kept: {'; '.join(told)}")


CARRIED = Statement(
    id="forecast.carried",
    place="ours, Theorem F",
    title="the forecast for every readout and loss",
    ours="Theorem F holds for every convex, decreasing, positive loss; its local bounds use |ℓ'| ≤ Cℓ, ℓ'' ≤ S, ℓ'' ≤ "
    "C₂ℓ, and for the ratio of slope to loss that both fall with the margin, on 16 cells of each "
    "box of margins",
    proof="docs/theory/forecast.md#other-losses",
    remark="local bounds attacked by ascent inside random balls; loss reached over loss promised on runs",
    check=check_carried,
    used_by=("certify",),
)
