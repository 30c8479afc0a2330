"""Where an attack begins: random inputs over many scales, structured ones, and small changes of known ones.

Everything happens in the coordinates of `Inputs`, rows of plain NumPy.
"""

from __future__ import annotations

import math

import numpy as np

from manyheads.theory.kinds import Inputs, Kind

Rng = np.random.Generator


def drawn(inputs: Inputs, rng: Rng, count: int) -> np.ndarray:
    """Random inputs: of every scale and shape of distribution, sometimes close to one another."""
    return np.stack([_one(inputs, rng) for _ in range(count)])


def _one(inputs: Inputs, rng: Rng) -> np.ndarray:
    flat = np.empty(inputs.size)
    before: dict[tuple[int, ...], np.ndarray] = {}
    scale = 10.0 ** rng.uniform(-3, 3) if rng.random() < 0.5 else 10.0 ** rng.uniform(-0.5, 0.7)
    for name, kind in inputs.kinds.items():
        other = before.get(kind.shape)
        # two inputs that differ a little
        if other is not None and rng.random() < 0.3:
            size = np.abs(other).max() * 10.0 ** rng.uniform(-5, 0)
            value = rng.choice((-1, 1, 1)) * other + size * rng.normal(size=kind.shape)
        else:
            value = _array(kind, rng, scale)
        before[kind.shape] = value
        flat[inputs.slices[name]] = value.ravel()
    return flat


def _array(kind: Kind, rng: Rng, scale: float) -> np.ndarray:
    """One array of a random style."""
    shape, style = kind.shape, rng.integers(8)
    if kind.spread == "box" and rng.random() < 0.6:
        value = _boxed(kind, rng)
    elif style < 3:
        value = scale * rng.normal(size=shape)
    elif style == 3:
        value = scale * rng.uniform(-1, 1, size=shape)
    elif style == 4:  # entries of very different sizes
        value = scale * rng.normal(size=shape) * 10.0 ** (1.5 * rng.normal(size=shape))
    elif style == 5:
        value = rng.integers(-3, 4, size=shape).astype(float)
    elif style == 6:  # ties, slightly broken
        value = scale * rng.choice(rng.normal(size=3), size=shape)
        value = value * (1 + 10.0 ** rng.uniform(-6, -1) * rng.normal(size=shape))
    else:
        value = scale * rng.normal(size=shape)
    if rng.random() < 0.25:
        value = np.where(rng.random(shape) < rng.random(), 0.0, value)
    return value


def _boxed(kind: Kind, rng: Rng) -> np.ndarray:
    """Between two ends: evenly, at the ends, or over the orders of magnitude."""
    width, style = kind.high - kind.low, rng.integers(3)
    if style == 0 or width == 0:
        return rng.uniform(kind.low, kind.high, size=kind.shape)
    if style == 1:
        return np.where(rng.random(kind.shape) < 0.5, kind.low, kind.high)
    away = width * 10.0 ** rng.uniform(-max(3.0, math.log10(width + 1)), 0, size=kind.shape)
    return kind.low + away if rng.random() < 0.7 else kind.high - away


def structured(inputs: Inputs) -> np.ndarray:
    """Zeros, ones, basis vectors, alternating signs, ties, rank one, huge and tiny; alike and combined."""
    patterns = [_patterns(kind) for kind in inputs.kinds.values()]
    number = min(map(len, patterns))
    rows = [[p[k] for p in patterns] for k in range(number)]
    # each input with the pattern that follows the one of the input before it
    if len(patterns) > 1:
        rows += [[p[(k + j) % number] for j, p in enumerate(patterns)] for k in range(number)]
    flat = np.stack([np.concatenate([a.ravel() for a in row]) for row in rows])
    return np.unique(flat, axis=0)


def _patterns(kind: Kind) -> list[np.ndarray]:
    shape, size = kind.shape, math.prod(kind.shape)
    ones, count = np.ones(shape), np.arange(1.0, size + 1).reshape(shape)
    alternating = np.where(np.arange(size) % 2, -1.0, 1.0).reshape(shape)
    basis = np.zeros(shape)
    basis[(0,) * len(shape)] = 1.0
    rank_one = np.ones(shape)
    for axis, length in enumerate(shape):
        rank_one *= np.arange(1.0, length + 1).reshape(-1, *(1,) * (len(shape) - axis - 1))
    diagonal = np.eye(*shape) if len(shape) == 2 else basis[::-1] if shape else basis
    low = np.full(shape, kind.low if math.isfinite(kind.low) else -1.0)
    high = np.full(shape, kind.high if math.isfinite(kind.high) else 1.0)
    plain = [0 * ones, ones, -ones, basis, alternating, count, rank_one, diagonal]
    return [*plain, 1e6 * alternating, 1e-6 * count, low, high]


def changed(inputs: Inputs, rng: Rng, parents: np.ndarray) -> np.ndarray:
    """Each row after one to three random changes, large or small."""
    children = parents.copy()
    names = list(inputs.kinds)
    for child in children:
        # on along the way between two rows
        if rng.random() < 0.15:
            one, other = parents[rng.integers(len(parents), size=2)]
            child += rng.choice((0.5, 1.0, 2.0)) * (one - other)
            continue
        for _ in range(rng.integers(1, 4)):
            name = names[rng.integers(len(names))]
            _change(inputs, name, child, parents[rng.integers(len(parents))], rng)
    return children


def _change(inputs: Inputs, name: str, child: np.ndarray, other: np.ndarray, rng: Rng) -> None:
    """One change of one input, in place."""
    kind, place = inputs.kinds[name], inputs.slices[name]
    part = child[place]
    size, some = part.size, rng.integers(part.size)
    chosen = rng.random(size) < rng.choice((1.0, 0.5, 1.5 / size))
    scale = np.sqrt(np.mean(part**2)) or 1.0
    match rng.integers(12):
        case 0 | 1:
            part[chosen] += scale * 10.0 ** rng.uniform(-5, 0.5) * rng.normal(size=chosen.sum())
        case 2:
            part[chosen] *= 10.0 ** rng.uniform(-1, 1)
        case 3:
            part[some] *= rng.choice((-1.0, 0.0, 0.5, 2.0, 1e-3, 1e3))
        case 4:  # a tie
            part[rng.integers(size)] = part[some] * rng.choice((-1.0, 1.0))
        case 5:
            part[chosen] = part[chosen].mean() if chosen.any() else 0.0
        case 6:
            part[chosen] *= -1
        case 7:  # round numbers
            part[:] = np.round(part / scale * 2) / 2 * scale
        case 8:
            part[some] = rng.choice((kind.low, kind.high, part[some] + 1, part[some] - 1))
            part[~np.isfinite(part)] = 0.0
        case 9:
            part[:] = _array(kind, rng, scale).ravel()
        case 10:  # what another row has here
            part[chosen] = other[place][chosen]
        case _:  # close to another input of this shape
            alike = [n for n, k in inputs.kinds.items() if k.shape == kind.shape and n != name]
            if alike:
                twin = child[inputs.slices[alike[rng.integers(len(alike))]]]
                mean = (part + twin) / 2 if rng.random() < 0.5 else twin
                part[:] = mean + (part - mean) * 10.0 ** rng.uniform(-3, 0)
