"""Attacks on the forecast: points inside balls that ascent brings as close to each local bound as it can, and runs.

The measured side is automatic differentiation of the plain formula, which shares no algebra with
the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data import dataset as datasets
from manyheads.data import mixture as mixtures
from manyheads.model import attention
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.theory import walk as follower
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026 import forecast as forecasts
from manyheads.theory.manyheads2026 import region as regions
from manyheads.theory.manyheads2026 import twins
from manyheads.theory.search import ascend
from manyheads.training import start as starts

EXAMPLES, TOKENS, DIM, CLASSES = 4, 3, 2, 2
# the arrays that ascent changes; the rest of a point is the problem
FREE = ("raw", "turn")


def scores(point, move):
    """Scores at the center plus a move in class coordinates."""
    root = jnp.sqrt(point["N"])[:, None, None]
    cut = CLASSES * DIM * DIM
    W = point["W"] + move[:cut].reshape(CLASSES, DIM, DIM) / root
    U = point["U"] + move[cut:].reshape(CLASSES, TOKENS, DIM) / root
    A = jax.nn.softmax(jnp.einsum("ntd,gde,nse->ngts", point["X"], W, point["X"]), axis=-1)
    by_class = jnp.einsum("gtd,ngts,nsd->ng", U, A, point["X"])
    return jnp.sum(point["N"][None] / jnp.sqrt(jnp.sum(point["N"])) * by_class, axis=1) * point["y"]


def _move(point):
    """The ascent's free vector, folded into the ball."""
    return point["rho"] * point["raw"] / jnp.maximum(1.0, jnp.linalg.norm(point["raw"]))


def _unit(point):
    return point["turn"] / jnp.linalg.norm(point["turn"])


def _fixed(point):
    return {
        name: leaf if name in FREE else jax.lax.stop_gradient(leaf) for name, leaf in point.items()
    }


def _features(point, move):
    return jax.jacobian(lambda m: scores(point, m))(move)


def _bend(function, at, along):
    return jax.jvp(lambda m: jax.jvp(function, (m,), (along,))[1], (at,), (along,))[1]


def _loss(point, move, loss):
    return jnp.mean(loss.value(scores(point, move)))


def score_curvature(point):
    point = _fixed(point)
    return jnp.max(
        jnp.abs(_bend(lambda m: scores(point, m), _move(point), _unit(point))) / point["curvature"]
    )


def feature_drift(point):
    point = _fixed(point)
    away = _features(point, _move(point)) - _features(point, jnp.zeros_like(point["raw"]))
    return jnp.max(jnp.sqrt(jnp.sum(away**2, axis=1) + 1e-300) / point["drift"])


def score_drift(point):
    point = _fixed(point)
    move = _move(point)
    return jnp.max(
        jnp.abs(scores(point, move) - scores(point, jnp.zeros_like(move))) / point["width"]
    )


def margin_loss(point):
    point = _fixed(point)
    before, after = (
        _features(point, m) @ point["v"] for m in (jnp.zeros_like(point["raw"]), _move(point))
    )
    return jnp.max((before - after) / (before - point["margin"]))


def slope_over_loss(point, loss=LOGISTIC):
    point = _fixed(point)
    move = _move(point)
    value = _loss(point, move, loss)
    slope = -jnp.mean(loss.slope(scores(point, move)))
    return jnp.where(value <= point["level"], point["ratio"] * value / slope, -value)


def loss_smoothness(point, loss=LOGISTIC):
    point = _fixed(point)
    move = _move(point)
    bent = _bend(lambda m: _loss(point, m, loss), move, _unit(point)) / point["smoothness"]
    value = _loss(point, move, loss)
    return jnp.where(value <= point["level"], bent, -value)


def _third(function, point):
    """The third derivative at the moved point along the unit vector."""
    along = _unit(point)
    return jax.jvp(lambda m: _bend(function, m, along), (_move(point),), (along,))[1]


def score_third(point):
    point = _fixed(point)
    return jnp.max(jnp.abs(_third(lambda m: scores(point, m), point)) / point["third"])


def loss_third(point):
    point = _fixed(point)
    return jnp.abs(_third(lambda m: _loss(point, m, LOGISTIC), point)) / point["loss_third"]


ATTACKS = {
    "margin": margin_loss,
    "features": feature_drift,
    "scores": score_drift,
    "score curvature": score_curvature,
    "slope over loss": slope_over_loss,
    "loss curvature": loss_smoothness,
}
THIRDS = {"third derivative of a score": score_third, "third derivative of the loss": loss_third}


def problem(
    rng: np.random.Generator, radius: float | None = None, loss: Loss = LOGISTIC
) -> dict[str, np.ndarray]:
    """A random model, data and ball (of this radius, if given), with the bounds that hold over it."""
    X = rng.standard_normal((EXAMPLES, TOKENS, DIM)) * 10 ** rng.uniform(-0.5, 0.4)
    y = np.where(np.arange(EXAMPLES) % 2 == 0, 1.0, -1.0)
    N = rng.choice([1.0, 1.0, 2.0, 5.0, 100.0, 1e4], CLASSES)
    W = rng.standard_normal((CLASSES, DIM, DIM)) * 10 ** rng.uniform(-1, 1)
    U = rng.standard_normal((CLASSES, TOKENS, DIM)) * 10 ** rng.uniform(-1, 0.5)
    v = rng.standard_normal(CLASSES * DIM * (DIM + TOKENS))
    v /= np.linalg.norm(v)
    # a direction in the readout alone has its own bound
    if rng.random() < 0.25:
        v[: CLASSES * DIM * DIM] = 0.0
        v /= np.linalg.norm(v)
    cut = CLASSES * DIM * DIM
    direction = attention.Heads(
        v[:cut].reshape(CLASSES, DIM, DIM), v[cut:].reshape(CLASSES, TOKENS, DIM)
    )
    model, data = (
        attention.MultiHead.create(W, U, multiplicity=N),
        datasets.Dataset.from_arrays(X, y),
    )
    center = regions.Center.at(model, data, loss)
    rho = 10 ** rng.uniform(-2, 0.5) if radius is None else radius
    drift = center.ball.drift(rho)
    low, high = regions.margin_box(center, drift, rho)
    # with saturated attention both sides are at the rounding level of autodiff
    R = np.linalg.norm(X, axis=2).max()
    noise = 1e-14 * R**3 * (1 + R**2 * np.linalg.norm(U)) / np.sqrt(N.sum())
    level = float(np.mean(loss.at(center.margins))) * rng.uniform(1.0, 1.5)
    return dict(
        X=X,
        y=y,
        N=N,
        W=W,
        U=U,
        v=v,
        rho=np.array(rho),
        curvature=drift.curvature + noise,
        drift=drift.gradient + 1e-14 * center.norms,
        width=(high - low) / 2,
        margin=center.ball.margins(direction, rho),
        level=np.array(level),
        ratio=np.array(regions.ratio_bound(low, high, level, loss)),
        smoothness=np.array(regions.smoothness_bound(center, drift, rho, level)),
        third=center.ball.third(rho) + 10 * R**2 * noise,
        loss_third=np.array(twins.Place(model, data, rho).third_derivative() + 10 * R**2 * noise),
    )


def local_bounds(
    tally: Tally, effort: Effort, ratios: Mapping[str, Callable] = ATTACKS
) -> dict[str, float]:
    """The largest share of every bound at random points of random balls; a full check also runs ascent from there."""
    rng = np.random.default_rng(effort.seed)
    size, several = CLASSES * DIM * (DIM + TOKENS), effort.count(6, 8)
    points = [
        p | {"raw": rng.standard_normal(size), "turn": rng.standard_normal(size)}
        for p in (problem(rng) for _ in range(effort.count(150, 20)))
        for _ in range(several)
    ]
    if effort.quick:
        with jax.enable_x64(True):
            stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *points)
            found = _evaluated(stacked, tuple(ratios.values()))
            shares = {
                name: float(np.max(values)) for name, values in zip(ratios, found, strict=True)
            }
    else:
        shares = {
            name: ascend(ratio, points, steps=200, rate=0.1)[1] for name, ratio in ratios.items()
        }
    for share in shares.values():
        tally.add(share, 1.0)
        tally.trials += len(points) - 1
    return shares


@partial(jax.jit, static_argnums=1)
def _evaluated(points, ratios):
    return [jax.vmap(ratio)(points) for ratio in ratios]


def runs(tally: Tally, effort: Effort) -> tuple[int, int]:
    """Forecasts on small mixtures, each followed by the descent itself; how many were not silent, and of how many."""
    spoke, cases = 0, []
    for k in range(8 * effort.seed, 8 * effort.seed + effort.count(8, 1)):
        mixture = mixtures.TokenizedMixture(
            num_tokens=4,
            dim=6,
            num_patterns=2,
            sparsity=0.5,
            signal=1.0 + 0.5 * (k % 2),
            key=jax.random.key(k),
        )
        data = mixture.sample(24, key=jax.random.key(10_000 + k))
        for heads in (1, 2, 8, 64, 1024, 1e12) if not effort.quick else (8,):
            cases.append(
                (
                    starts.first_phase(mixture.sample(100, key=jax.random.key(20_000 + k)), heads),
                    data,
                )
            )
        if not effort.quick:
            cases.append(
                (
                    starts.gaussian_start(3, num_tokens=4, dim=6, key=jax.random.key(30_000 + k)),
                    data,
                )
            )
    for i, (start, data) in enumerate(cases):
        eta = (1.0, 0.3, 2.0)[i % 3]
        after = follower.follow(start, data, step_size=0.5, num_steps=(1, 20, 80)[i % 3]).final
        promise = forecasts.forecast(after, data, step_size=eta, most_pieces=effort.count(120, 15))
        if not promise.pieces:
            continue
        spoke += 1
        walk = follower.follow(after, data, step_size=eta, num_steps=int(max(promise.steps[-1], 1)))
        for steps, level in list(zip(promise.steps, promise.certified_loss, strict=True))[
            :: max(1, len(promise.steps) // 8)
        ]:
            tally.add(walk.loss[: steps + 1].min(), level)
        reached = int(np.argmax(walk.loss <= promise.certified_loss[-1]))
        tally.add(float(np.max(np.diff(walk.loss[: reached + 1]), initial=-1.0)), 0.0)
        tally.add(
            float(walk.distance[: max(reached, 1)].max()), 2 * promise.radius
        )  # the last step may leave the region
    return spoke, len(cases)
