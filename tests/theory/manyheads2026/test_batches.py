"""Proposition B of docs/theory/forecast.md: descent on batches in any order, its bound against runs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from paper_settings import setting

import manyheads as mh
from manyheads.theory.manyheads2026.region import Center

KAPPA = 0.27846455  # the largest m w(m) of the logistic loss


def limits(center: Center, radius: float, eta: float) -> tuple[float, float]:
    """The margin over the ball, and the a of the proposition."""
    v, _ = center.direction
    drift, margin = center.ball.drift(radius), float(center.ball.margins(v, radius).min())
    h, Z = float(drift.curvature.max()), float((center.norms + drift.gradient).max())
    return margin, max(0.0, h * radius**2 - 2 * float(center.margins.min()) + eta * Z**2)


def most(margin: float, a: float, time):
    """The sum of step size times slope within this time."""
    return (a + np.sqrt(a**2 + 8 * KAPPA * margin**2 * time)) / (2 * margin**2)


def best_ball(center: Center, eta: float) -> tuple[float, float, float, float]:
    """The least bound on the mean slope, and the time, the radius and the margin for which it holds."""
    found, times = (math.inf, 0.0, 0.0, 0.0), np.geomspace(0.5, 500, 200)
    for radius in np.geomspace(0.5, 50, 16):
        margin, a = limits(center, radius, eta)
        if margin <= 0:
            break
        x = most(margin, a, times)
        fits = 2 * KAPPA * times + a * x <= radius**2
        if fits.any():
            found = min(
                found,
                (float((x / times)[fits].min()), float(times[fits].max()), float(radius), margin),
            )
    return found


def test_the_bound_on_batches_needs_many_heads():
    """The mean slope is a half at the start; the more heads, the lower it is certified to fall."""
    s = setting("A")
    found = [
        best_ball(Center.at(mh.first_phase(s.fresh, heads), s.dataset), 0.5)[0]
        for heads in (8, 1024, 1e6)
    ]
    assert found[0] > 0.5 and found[1] < 0.35 and found[2] < 0.1


def test_batches_in_any_order_stay_in_the_ball_and_their_slopes_fall():
    s = setting("A")
    start, eta, size = mh.first_phase(s.fresh, 1024), 0.5, 4
    center = Center.at(start, s.dataset)
    mean, time, radius, margin = best_ball(center, eta)
    a, steps = limits(center, radius, eta)[1], int(time / eta)
    counts, X, y = (
        np.asarray(start.multiplicity),
        np.asarray(s.dataset.tokens),
        np.asarray(s.dataset.labels),
    )
    n = len(y)

    def each(leaf):
        return counts.reshape(-1, *(1,) * (leaf.ndim - 1))

    @jax.jit
    def walk(origin, weight):
        """Each batch holds the sequences of least rank: `weight` times the margin, or one after the other."""

        def step(heads, k):
            values, back = jax.vjp(
                lambda now: jax.vmap(mh.MultiHead(*now, counts, "full"))(X) * y, heads
            )
            rank = jnp.where(weight == 0, (jnp.arange(n) - k * size) % n, weight * values)
            slope = (
                jnp.where(jnp.argsort(jnp.argsort(rank)) < size, jax.nn.sigmoid(-values), 0.0)
                / size
            )
            moved = jax.tree.map(lambda p, g: p + eta * g / each(g), heads, back(slope)[0])
            away = sum(jnp.sum(each(p) * (p - q) ** 2) for p, q in zip(moved, origin, strict=True))
            return moved, (jnp.sum(slope), jnp.sqrt(away))

        return jax.lax.scan(step, origin, jnp.arange(steps))[1]

    for weight in (1.0, -1.0, 0.0):  # the worst sequences, the best, all in turn
        slopes, away = map(np.asarray, walk(start.heads, weight))
        total = eta * np.cumsum(slopes)
        assert total[-1] / time <= mean
        assert away.max() <= radius
        assert np.all(total <= most(margin, a, eta * (1 + np.arange(steps))))


def test_the_mean_over_random_batches_needs_step_sizes_fixed_in_advance():
    """One token each, e1 and e2: the proposition's x for any times up to K, and a run whose steps depend on the batch."""
    steps, repetitions, rng = 200, 50, np.random.default_rng(0)
    x = most(
        1 / math.sqrt(2), 1.0, float(steps)
    )  # h = 0, margins 0 at the start, Z = 1, step sizes at most 1

    def mean_sum(step_sizes):
        total = 0.0
        for _ in range(repetitions):
            U = np.zeros(2)
            for batch in rng.integers(2, size=steps):
                slopes, eta = 1 / (1 + np.exp(U)), step_sizes[batch]
                total += eta * slopes.mean()
                U[batch] += eta * slopes[batch]
        return total / repetitions

    assert mean_sum((1.0, 1.0)) <= x < 16.1
    assert mean_sum((1.0, 1e-6)) > 25
