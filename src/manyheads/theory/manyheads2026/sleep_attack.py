"""Tokens chosen by gradient ascent, through the whole run, to break the inequalities of Theorem W."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads.data import dataset as datasets
from manyheads.theory import shift as shifts
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026.sleep import Uniform, add_run
from manyheads.training import start as starts

SIZE, STEPS, HEADS, SHARE = (4, 3, 3), 20, 64.0, 0.2
GOALS = ("key-query of a head", "all readouts", "attention")


def attacked(tally: Tally, effort: Effort) -> dict[str, float]:
    """Runs on tokens that ascent chose, from random ones, for each goal; the largest shares of the bounds."""
    labels, best = np.resize([1.0, -1.0], SIZE[0]), {}
    with jax.enable_x64(True):
        for k in range(effort.count(36, 1)):
            draw = (
                np.random.default_rng(effort.seed + k).normal(size=SIZE) + 2 * labels[:, None, None]
            )
            for goal in range(len(GOALS)):
                tokens = np.asarray(_ascend(draw, labels, goal, effort.count(200, 20)))
                data, start = (
                    datasets.Dataset(tokens, labels),
                    starts.zero_start(HEADS, num_tokens=SIZE[1], dim=SIZE[2]),
                )
                step = Uniform(start, data).sleep(SHARE, 1.0).step_limit
                for name, value in add_run(tally, start, data, SHARE, step, STEPS).items():
                    best[name] = max(best.get(name, 0.0), value)
    return best


@jax.jit
def _ascend(tokens, labels, goal, rounds):
    rule = optax.adam(0.03)

    def climb(_, state):
        X, memory = state
        slope = jax.grad(lambda x: -_reached(x, labels)[goal])(X)
        move, memory = rule.update(jnp.where(jnp.isfinite(slope), slope, 0.0), memory)
        return optax.apply_updates(X, move), memory

    return jax.lax.fori_loop(0, rounds, climb, (tokens, rule.init(tokens)))[0]


def _reached(X, y):
    """Logarithms of the shares of the bounds at small movements, one per goal, after a run from the zero start."""
    n, T, d = X.shape
    mean = X.mean(axis=1)
    step = jax.lax.stop_gradient(1 / (T * jnp.linalg.norm(mean, 2) ** 2 / n))
    root = jnp.sqrt(HEADS)

    def loss(heads):
        W, U = heads
        attention = jax.nn.softmax(jnp.einsum("ntd,de,nse->nts", X, W, X), axis=-1)
        scores = root * jnp.einsum("nts,nsd,td->n", attention, X, U)
        return jnp.mean(jax.nn.softplus(-y * scores)), jnp.mean(jax.nn.sigmoid(-y * scores))

    def one(heads, _):
        (_, slope), gradient = jax.value_and_grad(loss, has_aux=True)(heads)
        return jax.tree.map(lambda p, g: p - step * g / HEADS, heads, gradient), slope

    (W, U), slopes = jax.lax.scan(one, (jnp.zeros((d, d)), jnp.zeros((T, d))), length=STEPS)
    G = step * jnp.sum(slopes)
    centered = X - mean[:, None]
    variance = jnp.linalg.eigvalsh(jnp.einsum("nsd,nse->nde", centered, centered) / T)[:, -1]
    a = jnp.sqrt(T) * jnp.max(jnp.linalg.norm(mean, axis=1))
    w = jnp.max(jnp.linalg.norm(X, 2, axis=(1, 2)) * variance)
    gaps = jnp.sqrt(jnp.max(jnp.sum((X[:, :, None] - X[:, None]) ** 2, axis=-1), axis=(1, 2)))
    reach = jnp.max(jnp.max(jnp.linalg.norm(X, axis=2), axis=1) * gaps)
    moved = jnp.linalg.norm(W)
    return jnp.stack(
        [
            jnp.log(moved / (w * a * G**2 / (2 * HEADS))),
            jnp.log(root * jnp.linalg.norm(U) / jnp.sqrt(2 * G * jnp.log(step * STEPS / G))),
            jnp.log(shifts.from_uniform(W[None], X) / jnp.tanh(reach * moved / 4)),
        ]
    )
