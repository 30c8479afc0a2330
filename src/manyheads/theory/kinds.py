"""What a statement is about: its inputs, declared once, with coordinates in which one can climb without leaving them.

    inputs(x=real(5), s=signs(5), p=probabilities(3), A=positive_definite(4, low=1, high=10))

Every kind maps free coordinates, one array of real numbers, to a value that satisfies its
constraints. Random draws, structured inputs, ascent and the shortening of counterexamples all
happen in these coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads._check import check, none, positive
from manyheads._check import real as number
from manyheads._check import whole as count

# an array of jax
Number = Any


@dataclass(frozen=True)
class Kind:
    """One input. `make` takes coordinates of the shape `shape` to the value, `words` says what the value is.

    `spread` is "scales" if coordinates of every magnitude make sense, and "box" if they lie between
    `low` and `high`.
    """

    shape: tuple[int, ...]
    make: Callable[[Number], Any]
    words: str
    spread: str = "scales"
    low: float = -math.inf
    high: float = math.inf


class Point(dict):
    """The values of the inputs: `p.x` or `p["x"]`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no input {name!r}; the inputs are {', '.join(self)}.")


@dataclass(frozen=True)
class Inputs:
    """The inputs of a statement by name; their coordinates are one vector of `size` numbers."""

    kinds: dict[str, Kind]
    slices: dict[str, slice] = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        slices, start = {}, 0
        for name, kind in self.kinds.items():
            slices[name] = slice(start, start + math.prod(kind.shape))
            start = slices[name].stop
        object.__setattr__(self, "slices", slices)
        object.__setattr__(self, "size", start)

    def point(self, flat: Number) -> Point:
        """The values at a vector of coordinates."""
        return Point(
            (name, kind.make(flat[self.slices[name]].reshape(kind.shape)))
            for name, kind in self.kinds.items()
        )

    def values(self, flat: np.ndarray) -> Point:
        """The values at a vector of coordinates, as arrays of NumPy in float64."""
        with jax.enable_x64(True):
            return Point(jax.tree.map(np.asarray, dict(self.point(jnp.asarray(flat)))))


def inputs(**kinds: Kind) -> Inputs:
    """The inputs of a statement: `inputs(x=real(5), s=signs(5))`."""
    wrong = [name for name, kind in kinds.items() if not isinstance(kind, Kind)]
    if wrong or not kinds:
        given = f"{wrong[0]}={kinds[wrong[0]]!r}" if wrong else "nothing"
        raise ValueError(f"inputs() got {given}; write each as a kind, such as x=real(5).")
    return Inputs(kinds)


def _shape(sizes: tuple[int, ...]) -> tuple[int, ...]:
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"a size of {size!r} is not a whole number >= 1; write real(5).")
    return tuple(int(size) for size in sizes)


def _folded(z: Number, low: float, high: float) -> Number:
    """Coordinates inside [low, high] as they are, others reflected at its ends: the ends are reached."""
    if math.isfinite(low) and math.isfinite(high):
        width = high - low
        return low + width - jnp.abs(jnp.mod(z - low, 2 * width) - width)
    if math.isfinite(low):
        return low + jnp.abs(z - low)
    return high - jnp.abs(high - z) if math.isfinite(high) else z


def _shrunk(z: Number, largest: float, axes: tuple[int, ...] | None) -> Number:
    """Arrays of too large a norm scaled down to it."""
    square = jnp.sum(z**2, axis=axes, keepdims=True)
    inside = square <= largest**2
    return jnp.where(inside, z, z * largest / jnp.sqrt(jnp.where(inside, 1.0, square)))


@check(low=number() | none, high=number() | none, norm=positive | none, row_norm=positive | none)
def real(
    *sizes: int,
    low: float | None = None,
    high: float | None = None,
    norm: float | None = None,
    row_norm: float | None = None,
    nonzero: int | None = None,
) -> Kind:
    """Real numbers of this shape.

    Args:
        sizes: the shape; none for one number.
        low: the least value of an entry.
        high: the largest value of an entry.
        norm: the largest Euclidean norm of the whole array.
        row_norm: the largest norm along the last axis.
        nonzero: how many entries may differ from zero.
    """
    shape = _shape(sizes)
    bottom = -math.inf if low is None else low
    top = math.inf if high is None else high
    if not bottom < top:
        raise ValueError(f"real(low={low}, high={high}) allows nothing; pass low < high.")

    def make(z: Number) -> Number:
        value = _folded(z, bottom, top)
        if nonzero is not None:
            order = jnp.argsort(-jnp.abs(value).ravel())
            kept = jnp.zeros(value.size).at[order[:nonzero]].set(1.0)
            value = jnp.where(kept.reshape(shape) > 0, value, 0.0)
        value = value if row_norm is None else _shrunk(value, row_norm, (-1,))
        return value if norm is None else _shrunk(value, norm, None)

    boxed = math.isfinite(bottom) and math.isfinite(top)
    words = f"real numbers of shape {shape}"
    return Kind(shape, make, words, "box" if boxed else "scales", bottom, top)


def signs(*sizes: int) -> Kind:
    """Signs, each 1.0 or -1.0."""
    shape = _shape(sizes)
    return Kind(shape, lambda z: jnp.where(z >= 0, 1.0, -1.0), "signs", "box", -1.0, 1.0)


@check(low=count(-(2**53)), high=count(-(2**53), 2**53))
def whole(*sizes: int, low: int = 0, high: int = 1000) -> Kind:
    """Whole numbers between `low` and `high`, both included."""

    def make(z: Number) -> Number:
        return jnp.round(_folded(z, low, high))

    return Kind(_shape(sizes), make, "whole numbers", "box", float(low), float(high))


def probabilities(*sizes: int) -> Kind:
    """Vectors of probabilities along the last axis."""
    shape = _shape(sizes)

    def make(z: Number) -> Number:
        total = jnp.sum(z**2, axis=-1, keepdims=True)
        flat = jnp.where(total > 0, z, 1.0)
        return flat**2 / jnp.sum(flat**2, axis=-1, keepdims=True)

    return Kind(shape, make, f"probabilities of shape {shape}")


def _reflections(z: Number) -> Number:
    """An orthogonal matrix: a product of reflections, and a sign that no reflection depends on."""
    size = z.shape[-1]
    Q = jnp.eye(size)
    for row in z[:size]:
        square = row @ row
        there = square > 0
        Q = Q - jnp.where(there, 2.0 / jnp.where(there, square, 1.0), 0.0) * jnp.outer(Q @ row, row)
    signs = jnp.where(jnp.arange(size) == 0, jnp.where(z[0, 0] < 0, -1.0, 1.0), 1.0)
    return Q * signs[None]


@check(size=count(1))
def orthogonal(size: int, columns: int | None = None) -> Kind:
    """Orthogonal matrices, or the first `columns` of their columns."""

    def make(z: Number) -> Number:
        return _reflections(z)[:, :columns]

    return Kind((size, size), make, f"orthogonal {size} x {size}")


@check(size=count(1), low=number(low=0))
def positive_definite(size: int, low: float = 0.0, high: float = math.inf) -> Kind:
    """Symmetric matrices with eigenvalues between `low` and `high`, and above zero."""

    def make(z: Number) -> Number:
        Q = _reflections(z[:size])
        values = _folded(z[size], low, high)
        # never singular
        values = jnp.maximum(values, 1e-12 * jnp.max(values))
        return (Q * values[None]) @ Q.T

    return Kind((size + 1, size), make, f"positive definite {size} x {size}")


class Data(NamedTuple):
    """A data set as an input: tokens (examples, tokens, dim) and labels of 1 and -1."""

    tokens: Any
    labels: Any


class Run(NamedTuple):
    """A run of plain descent as an input; loss and parameters have one entry for each step, the start included."""

    tokens: Any
    labels: Any
    loss: Any
    key_query: Any
    readout: Any


@check(num_examples=count(1), num_tokens=count(1), dim=count(1), row_norm=positive | none)
def datasets(num_examples: int, num_tokens: int, dim: int, row_norm: float | None = None) -> Kind:
    """Data sets: `p.data.tokens` and `p.data.labels`; `row_norm` bounds the norm of a token."""
    tokens = real(num_examples, num_tokens, dim, row_norm=row_norm)

    def make(z: Number) -> Data:
        # an example's last coordinate decides its label
        X = z[:, :-1].reshape(num_examples, num_tokens, dim)
        return Data(tokens.make(X), jnp.where(z[:, -1] >= 0, 1.0, -1.0))

    words = f"{num_examples} sequences of {num_tokens} tokens in {dim} dimensions"
    return Kind((num_examples, num_tokens * dim + 1), make, words)


@check(num_steps=count(1), step_size=positive, num_heads=count(1))
def runs(data: Kind, *, num_steps: int, step_size: float, num_heads: int = 1) -> Kind:
    """Runs of plain descent on the logistic loss from the zero start, on data sets of the kind `data`."""

    def make(z: Number) -> Run:
        X, y = data.make(z)
        start = jnp.zeros((X.shape[2], X.shape[2])), jnp.zeros(X.shape[1:])

        def loss(head: tuple[Number, Number]) -> Number:
            W, U = head
            attended = jax.nn.softmax(jnp.einsum("ntd,de,nse->nts", X, W, X), axis=-1) @ X
            scores = math.sqrt(num_heads) * jnp.einsum("td,ntd->n", U, attended)
            return jnp.mean(jax.nn.softplus(-y * scores))

        def step(head: Any, _: None) -> tuple[Any, Any]:
            value, slope = jax.value_and_grad(loss)(head)
            # heads that start alike stay alike: each has its share of the slope
            moved = jax.tree.map(lambda p, g: p - step_size / num_heads * g, head, slope)
            return moved, (value, head)

        _, (values, heads) = jax.lax.scan(step, start, length=num_steps + 1)
        return Run(X, y, values, *heads)

    return Kind(data.shape, make, f"runs of {num_steps} steps on {data.words}")
