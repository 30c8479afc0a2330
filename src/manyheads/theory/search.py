"""Adversarial search: inputs at which a bound comes as close to equality as gradient ascent can bring it.

A search is a ratio measured/bound as a function of free arrays; Adam climbs it from many starts at
once. The measured side should be automatic differentiation of a plain formula, which shares no
algebra with the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads.theory.finding import Effort, Tally

if TYPE_CHECKING:
    from jax import Array

    Point = dict[str, Array]


@dataclass(frozen=True)
class Search:
    """One inequality to attack.

    `measure` and `bounds` (ours and the printed one) are functions of a point, `draw` gives a
    random one of a shape. Quick checks use the first of `shapes`, full ones all of them and
    `large`. `stored` is an .npz file with points found by long searches, under `name|number|array`.
    """

    name: str
    measure: Callable[[Point], Array]
    bounds: Callable[[Point], tuple[Array, Array]]
    draw: Callable[[np.random.Generator, tuple[int, ...]], dict[str, np.ndarray]]
    shapes: tuple[tuple[int, ...], ...]
    large: tuple[int, ...]
    stored: Path

    def ratio(self, point: Point) -> Array:
        return self.measure(point) / self.bounds(point)[0]


@cache
def stored_points(search: Search) -> list[dict[str, np.ndarray]]:
    """The stored adversarial points of a search."""
    points: dict[int, dict[str, np.ndarray]] = {}
    with np.load(search.stored, allow_pickle=False) as file:
        for full in file.files:
            name, number, leaf = full.split("|")
            if name == search.name:
                points.setdefault(int(number), {})[leaf] = file[full]
    return list(points.values())


def attack(tally: Tally, search: Search, effort: Effort, extra: Sequence[dict] = ()) -> None:
    """Stored adversarial points, random points, and in a full check other shapes and a fresh search."""
    rng, count = np.random.default_rng(effort.seed), effort.count(400, 100)
    for k, shape in enumerate(search.shapes[: effort.count(len(search.shapes), 1)]):
        points = [search.draw(rng, shape) for _ in range(count)]
        points += [
            p for p in stored_points(search) if all(p[n].shape == points[0][n].shape for n in p)
        ]
        if k == 0 and len(points) == count:
            raise AssertionError(
                f"no stored point of {search.name} has the shape of the random ones"
            )
        _add(tally, search, [*points, *(extra if k == 0 else ())])
    if not effort.quick:
        _add(tally, search, [search.draw(rng, search.large) for _ in range(400)])
        for point in stored_points(search):
            _add(tally, search, [point])
        _add(tally, search, [climb(search, seed=effort.seed, restarts=16, steps=1500)[0]])


def _add(tally: Tally, search: Search, points: list[dict[str, np.ndarray]]) -> None:
    for measured, bound, printed in evaluate(search, points):
        tally.add(measured, bound, printed)


def evaluate(
    search: Search, points: list[dict[str, np.ndarray]]
) -> list[tuple[float, float, float]]:
    """Measured value, our bound and the printed bound at points of one shape."""
    stacked = {name: np.stack([np.asarray(point[name]) for point in points]) for name in points[0]}
    with jax.enable_x64(True):
        columns = map(np.asarray, _evaluator(search)(stacked))
    return [(float(m), float(b), float(p)) for m, b, p in zip(*columns, strict=True)]


@cache
def _evaluator(search: Search) -> Callable:
    return jax.jit(jax.vmap(lambda point: (search.measure(point), *search.bounds(point))))


def climb(
    search: Search, *, seed: int, restarts: int, steps: int
) -> tuple[dict[str, np.ndarray], float]:
    """The best point of `restarts` ascents of `steps` steps, and its ratio."""
    rng = np.random.default_rng(seed)
    return ascend(
        search.ratio, [search.draw(rng, search.shapes[0]) for _ in range(restarts)], steps=steps
    )


def ascend(
    ratio: Callable[[Point], Array],
    points: list[dict[str, np.ndarray]],
    *,
    steps: int,
    rate: float = 0.03,
) -> tuple[dict[str, np.ndarray], float]:
    """Adam ascent on `ratio` from all points at once; the best point ever seen, and its ratio."""
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *points)
        best, tops = _climb(stacked, jnp.asarray(rate), ratio=ratio, steps=steps)
        tops = np.where(np.isfinite(tops), np.asarray(tops), -np.inf)
        winner = int(np.argmax(tops))
        return {name: np.asarray(leaf[winner]) for name, leaf in best.items()}, float(tops[winner])


@partial(jax.jit, static_argnames=("ratio", "steps"))
def _climb(points, rate, *, ratio, steps):
    adam = optax.scale_by_adam()

    def one(point):
        def step(carry, k):
            point, state, best, top = carry
            value, slope = jax.value_and_grad(ratio)(point)
            slope = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), slope)
            better = value > top
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), point, best)
            top = jnp.where(better, value, top)
            update, state = adam.update(slope, state)
            decay = rate * 0.5 * (1 + jnp.cos(jnp.pi * k / steps))
            point = jax.tree.map(lambda p, u: p + decay * u, point, update)
            return (point, state, best, top), None

        start = (point, adam.init(point), point, jnp.asarray(-jnp.inf))
        (_, _, best, top), _ = jax.lax.scan(step, start, jnp.arange(steps))
        return best, top

    return jax.vmap(one)(points)
