"""A function of JAX in another arithmetic: 60 digits, fractions, or balls that contain the true value.

JAX writes a function down as a list of elementary operations. Here the list is evaluated on arrays
of Python objects, so that any number type will do. Operations that only move data are found by
moving the places 0, 1, 2, ... instead.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from manyheads._check import shown
from manyheads.theory.arithmetic import (
    DIGITS,
    MANY_DIGITS,
    PREFIXED,
    Arithmetic,
    NotExactError,
)

MOVES = {"dynamic_slice", "dynamic_update_slice", "gather", "pad", "scatter", "split", "tile"}
SAME = {"copy", "copy_p", "reduce_precision", "optimization_barrier", "stop_gradient", "pvary"}
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class Program:
    """A function of one float64 vector, written down once, to be evaluated in any arithmetic."""

    def __init__(self, function: Callable, size: int):
        with jax.enable_x64(True):
            self.closed = jax.make_jaxpr(function)(jnp.zeros(size))

    def at(self, vector: np.ndarray, arithmetic: Arithmetic = MANY_DIGITS) -> list[np.ndarray]:
        """The outputs, flattened, at a vector that is taken as it stands; `NotExactError` if that cannot be."""
        given = [_objects(np.asarray(vector, float), arithmetic)]
        try:
            with jax.enable_x64(True), np.errstate(all="ignore"), mpmath.workdps(DIGITS):
                return _closed(self.closed, given, arithmetic)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise NotExactError(str(error)) from None


def _objects(array: Any, arithmetic: Arithmetic) -> np.ndarray:
    """Floats as numbers of the arithmetic; whole numbers and truth values stay NumPy's."""
    array = np.asarray(array)
    if array.dtype.kind != "f":
        return array
    return _each(arithmetic.of, array)


def _each(function: Callable, *arrays: np.ndarray) -> np.ndarray:
    """A function of numbers, number by number."""
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), dtype=object)


def _run(jaxpr: Any, consts: Sequence, arguments: Sequence, arithmetic: Arithmetic) -> list:
    values: dict[Any, Any] = {}

    def read(name: Any) -> np.ndarray:
        return _objects(name.val, arithmetic) if hasattr(name, "val") else values[name]

    values.update(zip(jaxpr.constvars, (_objects(c, arithmetic) for c in consts), strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    for equation in jaxpr.eqns:
        found = _apply(equation, [read(name) for name in equation.invars], arithmetic)
        values.update(zip(equation.outvars, found, strict=True))
    return [read(name) for name in jaxpr.outvars]


def _closed(program: Any, arguments: Sequence, arithmetic: Arithmetic) -> list:
    # some come with constants, some without
    inner = getattr(program, "jaxpr", program)
    return _run(inner, getattr(program, "consts", ()), arguments, arithmetic)


def _apply(equation: Any, given: list[np.ndarray], arithmetic: Arithmetic) -> list[np.ndarray]:
    """One operation."""
    name, params = equation.primitive.name, equation.params
    if name in CONTROL:
        return CONTROL[name](params, given, arithmetic)
    for call in CALLS:
        if call in params:
            return _closed(params[call], given, arithmetic)
    if name in MOVES_OF_NUMPY:
        return [_objects(MOVES_OF_NUMPY[name](params, *given), arithmetic)]
    # whole numbers: computed exactly as they are
    if all(array.dtype != object for array in given):
        if name in OPERATIONS_OF_NUMPY:
            return [np.asarray(OPERATIONS_OF_NUMPY[name](*given))]
        found = equation.primitive.bind(*map(jnp.asarray, given), **params)
        found = found if equation.primitive.multiple_results else [found]
        return [_objects(array, arithmetic) for array in found]
    if name in SAME:
        return [*given]
    if name in MOVES:
        return _moved(equation, given)
    if name in ELEMENTWISE:
        return [_each(functools.partial(ELEMENTWISE[name], arithmetic, params), *given)]
    if name in WHOLE:
        found = WHOLE[name](arithmetic, params, *given)
        return [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]
    raise NotExactError(f"the operation {shown(name)}")


def _moved(equation: Any, given: list[np.ndarray]) -> list[np.ndarray]:
    """An operation that only moves data, applied to places; floats among the operands share one list."""
    name = equation.primitive.name
    pool = np.concatenate([a.ravel() for a in given if a.dtype == object])
    places, start = [], 0
    for array in given:
        if array.dtype == object:
            places.append(jnp.arange(start, start + array.size).reshape(array.shape))
            start += array.size
        else:
            places.append(jnp.asarray(array))
    params = dict(equation.params)
    # a place outside is never asked for: JAX clips first
    if name == "gather":
        params |= {"mode": jax.lax.GatherScatterMode.CLIP, "fill_value": None}
    found = equation.primitive.bind(*places, **params)
    found = found if equation.primitive.multiple_results else [found]
    return [np.asarray(pool[np.asarray(where)], dtype=object) for where in found]


def _broadcast(p: Any, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _slice(p: Any, x: np.ndarray) -> np.ndarray:
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


# The most frequent moves and operations on whole numbers, without compiling anything
MOVES_OF_NUMPY: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda p, *given: np.concatenate(given, axis=p["dimension"]),
    "expand_dims": lambda p, x: np.expand_dims(x, p["dimensions"]),
    "iota": lambda p: _broadcast(
        {"shape": p["shape"], "broadcast_dimensions": (p["dimension"],)},
        np.arange(p["shape"][p["dimension"]], dtype=p["dtype"]),
    ),
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "rev": lambda p, x: np.flip(x, p["dimensions"]),
    "slice": _slice,
    "squeeze": lambda p, x: np.squeeze(x, tuple(p["dimensions"])),
    "transpose": lambda p, x: x.transpose(p["permutation"]),
}
OPERATIONS_OF_NUMPY: dict[str, Callable] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "max": np.maximum,
    "min": np.minimum,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
}


# Elementwise operations, of the arithmetic, the parameters, and one number of each operand


def _call(name: str, *arguments: Any, of: Arithmetic) -> Any:
    if name not in of.functions:
        raise NotExactError(f"the function {name}")
    return of.functions[name](*arguments)


def _function(name: str) -> Callable:
    return lambda arithmetic, params, x: _call(name, x, of=arithmetic)


def _sign(m: Arithmetic, params: Any, x: Any) -> Any:
    zero = m.of(0)
    return m.of(1) if m.less(zero, x) else m.of(-1) if m.less(x, zero) else zero


def _larger(m: Arithmetic, params: Any, x: Any, y: Any) -> Any:
    if m.name == "balls":
        return x.max(y)
    return y if x != x or m.less(x, y) else x


def _smaller(m: Arithmetic, params: Any, x: Any, y: Any) -> Any:
    return -_larger(m, params, -x, -y)


def _power(m: Arithmetic, params: Any, x: Any, y: Any) -> Any:
    return _call("pow", x, y if not isinstance(y, int | np.integer) else m.of(y), of=m)


def _logistic(m: Arithmetic, params: Any, x: Any) -> Any:
    return _call("div", m.of(1), m.of(1) + _call("exp", -x, of=m), of=m)


def _remainder(m: Arithmetic, params: Any, x: Any, y: Any) -> Any:
    quotient = _call("div", x, y, of=m)
    name = "ceil" if m.less(quotient, m.of(0)) else "floor"
    return x - y * _call(name, quotient, of=m)


def _rounded(m: Arithmetic, params: Any, x: Any) -> Any:
    """To the nearest whole number, halves to the even one."""
    low = _call("floor", x, of=m)
    rest = x - low - m.of(0.5)
    half = m.equal(rest, m.of(0))
    up = int(low) % 2 == 1 if half else m.less(m.of(0), rest)
    return low + m.of(1) if up else low


def _whole_power(m: Arithmetic, params: Any, x: Any) -> Any:
    y = params["y"]
    return x**y if y >= 0 else _call("div", m.of(1), x ** (-y), of=m)


def _converted(m: Arithmetic, params: Any, x: Any) -> Any:
    kind = np.dtype(params["new_dtype"]).kind
    if kind == "f":
        return x
    return not m.equal(x, m.of(0)) if kind == "b" else int(x)


def _finite(m: Arithmetic, params: Any, x: Any) -> bool:
    return bool(mpmath.isfinite(x)) if m.name == "60 digits" else True


ELEMENTWISE: dict[str, Callable] = {
    **{name: _function(name) for name in PREFIXED},
    "add": lambda m, p, x, y: x + y,
    "add_any": lambda m, p, x, y: x + y,
    "sub": lambda m, p, x, y: x - y,
    "mul": lambda m, p, x, y: x * y,
    "div": lambda m, p, x, y: _call("div", x, y, of=m),
    "neg": lambda m, p, x: -x,
    "abs": lambda m, p, x: abs(x),
    "square": lambda m, p, x: x * x,
    "integer_pow": _whole_power,
    "pow": _power,
    "rsqrt": lambda m, p, x: _call("div", m.of(1), _call("sqrt", x, of=m), of=m),
    "logistic": _logistic,
    "erfc": lambda m, p, x: m.of(1) - _call("erf", x, of=m),
    "exp2": lambda m, p, x: _call("pow", m.of(2), x, of=m),
    "sign": _sign,
    "max": _larger,
    "min": _smaller,
    "clamp": lambda m, p, low, x, high: _smaller(m, p, _larger(m, p, x, low), high),
    "rem": _remainder,
    "round": _rounded,
    "convert_element_type": _converted,
    "is_finite": _finite,
    "lt": lambda m, p, x, y: m.less(x, y),
    "gt": lambda m, p, x, y: m.less(y, x),
    "le": lambda m, p, x, y: not m.less(y, x),
    "ge": lambda m, p, x, y: not m.less(x, y),
    "eq": lambda m, p, x, y: m.equal(x, y),
    "ne": lambda m, p, x, y: not m.equal(x, y),
    "select_n": lambda m, p, which, *cases: cases[int(which)],
}
# their results are truth values
NATIVE = {"lt", "gt", "le", "ge", "eq", "ne", "is_finite"}


def _typed(name: str) -> Callable:
    """An elementwise operation whose results are NumPy's own truth values or whole numbers."""
    inner = ELEMENTWISE[name]

    def call(m: Arithmetic, params: Any, *given: np.ndarray) -> np.ndarray:
        found = _each(functools.partial(inner, m, params), *given)
        kind = np.dtype(params["new_dtype"]) if name == "convert_element_type" else np.dtype(bool)
        return found if kind.kind == "f" else found.astype(kind)

    return call


# Operations on whole arrays


def _sum(m: Arithmetic, p: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sum(x, axis=p["axes"], initial=m.of(0)), dtype=object)


def _product(m: Arithmetic, p: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.prod(x, axis=p["axes"], initial=m.of(1)), dtype=object)


def _reduced(pick: Callable) -> Callable:
    def call(m: Arithmetic, p: Any, x: np.ndarray) -> np.ndarray:
        axes = p["axes"]
        rest = [axis for axis in range(x.ndim) if axis not in axes]
        kept = tuple(x.shape[axis] for axis in rest)
        rows = x.transpose(*rest, *axes).reshape(math.prod(kept), -1)
        best = [functools.reduce(functools.partial(pick, m, p), row) for row in rows]
        return _array(best, kept)

    return call


def _array(items: list, shape: tuple[int, ...]) -> np.ndarray:
    """An array of objects; NumPy alone might look into them."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(shape)


def _dot(m: Arithmetic, p: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    (x_sum, y_sum), (x_batch, y_batch) = p["dimension_numbers"]
    x_free = [a for a in range(x.ndim) if a not in (*x_sum, *x_batch)]
    y_free = [a for a in range(y.ndim) if a not in (*y_sum, *y_batch)]
    batch = tuple(x.shape[a] for a in x_batch)
    inner = math.prod(x.shape[a] for a in x_sum)
    left = x.transpose(*x_batch, *x_free, *x_sum).reshape(math.prod(batch), -1, inner)
    right = y.transpose(*y_batch, *y_sum, *y_free).reshape(math.prod(batch), inner, -1)
    found = np.stack([a.dot(b) for a, b in zip(left, right, strict=True)])
    shape = *batch, *(x.shape[a] for a in x_free), *(y.shape[a] for a in y_free)
    return np.asarray(found, dtype=object).reshape(shape)


def _running(function: Callable) -> Callable:
    def call(m: Arithmetic, p: Any, x: np.ndarray) -> np.ndarray:
        ordered = np.flip(x, p["axis"]) if p["reverse"] else x
        found = function(ordered, axis=p["axis"])
        return np.flip(found, p["axis"]) if p["reverse"] else found

    return call


def _extreme_place(sign: int) -> Callable:
    def call(m: Arithmetic, p: Any, x: np.ndarray) -> np.ndarray:
        (axis,) = p["axes"]

        def place(row: np.ndarray) -> int:
            best = 0
            for k in range(1, len(row)):
                if m.less(sign * row[best], sign * row[k]):
                    best = k
            return best

        return np.asarray(np.apply_along_axis(place, axis, x), dtype=p["index_dtype"])

    return call


def _sort(m: Arithmetic, p: Any, *given: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sorted along one axis by the first operand, which the others follow."""
    less = m.less if given[0].dtype == object else operator.lt

    def compare(a: tuple, b: tuple) -> int:
        return -1 if less(a[0], b[0]) else 1 if less(b[0], a[0]) else 0

    axis = p["dimension"]
    rows = [np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis]) for a in given]
    found = [np.empty_like(r) for r in rows]
    for k in range(len(rows[0])):
        entries = sorted(zip(*(r[k] for r in rows), strict=True), key=functools.cmp_to_key(compare))
        for target, column in zip(found, zip(*entries, strict=True), strict=True):
            target[k] = list(column)
    moved = tuple(s for a, s in enumerate(given[0].shape) if a != axis)
    return tuple(np.moveaxis(f.reshape(*moved, -1), -1, axis) for f in found)


# Linear algebra, one matrix after another


def _matrices(function: Callable) -> Callable:
    """A function of matrices, for each of a stack of them."""

    def call(m: Arithmetic, p: Any, *given: np.ndarray) -> Any:
        stack = given[0].shape[:-2]
        flat = [a.reshape(-1, *a.shape[len(stack) :]) for a in given]
        found = [function(m, p, *parts) for parts in zip(*flat, strict=True)]
        columns = [np.stack([np.asarray(a) for a in column]) for column in zip(*found, strict=True)]
        return tuple(c.reshape(*stack, *c.shape[1:]) for c in columns)

    return call


def _lu(m: Arithmetic, p: Any, A: np.ndarray) -> tuple:
    A, rows = A.copy(), A.shape[0]
    pivots, order = np.zeros(min(A.shape), np.int32), np.arange(rows, dtype=np.int32)
    for k in range(min(A.shape)):
        best = k
        for i in range(k + 1, rows):
            best = i if m.less(abs(A[best, k]), abs(A[i, k])) else best
        pivots[k] = best
        A[[k, best]], order[[k, best]] = A[[best, k]], order[[best, k]]
        if m.equal(A[k, k], m.of(0)):
            continue
        for i in range(k + 1, rows):
            A[i, k] = A[i, k] / A[k, k]
            A[i, k + 1 :] = A[i, k + 1 :] - A[i, k] * A[k, k + 1 :]
    return A, pivots, order


def _solved(m: Arithmetic, p: Any, A: np.ndarray, B: np.ndarray) -> tuple:
    """A triangular system."""
    A = A.T if p["transpose_a"] else A
    if not p["left_side"]:
        A, B = A.T, B.T
    lower = p["lower"] != p["transpose_a"] if p["left_side"] else p["lower"] == p["transpose_a"]
    X = B.copy()
    size = len(A)
    for i in range(size) if lower else range(size - 1, -1, -1):
        known = range(i) if lower else range(i + 1, size)
        for k in known:
            X[i] = X[i] - A[i, k] * X[k]
        if not p["unit_diagonal"]:
            X[i] = _each(lambda x, pivot=A[i, i]: _call("div", x, pivot, of=m), X[i])
    return (X if p["left_side"] else X.T,)


def _cholesky(m: Arithmetic, p: Any, A: np.ndarray) -> tuple:
    size = len(A)
    L = _array([m.of(0)] * size * size, A.shape)
    for i, j in itertools.product(range(size), repeat=2):
        if j > i:
            continue
        rest = A[i, j] - sum((L[i, k] * L[j, k] for k in range(j)), m.of(0))
        L[i, j] = _call("sqrt", rest, of=m) if i == j else _call("div", rest, L[j, j], of=m)
    return (L,)


def _only_digits(m: Arithmetic, what: str) -> None:
    if m.name != "60 digits":
        raise NotExactError(what)


def _dense(matrix: Any) -> np.ndarray:
    return _array(list(matrix), (matrix.rows, matrix.cols))


def _eigh(m: Arithmetic, p: Any, A: np.ndarray) -> tuple:
    _only_digits(m, "eigenvalues")
    values, vectors = mpmath.eigsy(mpmath.matrix(((A + A.T) / 2).tolist()))
    return _dense(vectors), _array(list(values), (len(A),))


def _svd(m: Arithmetic, p: Any, A: np.ndarray) -> tuple:
    _only_digits(m, "singular values")
    U, S, V = mpmath.svd_r(mpmath.matrix(A.tolist()))
    values = _array(list(S), (min(A.shape),))
    if p["full_matrices"] and p["compute_uv"] and A.shape[0] != A.shape[1]:
        raise NotExactError("full singular vectors")
    return (values, _dense(U), _dense(V)) if p["compute_uv"] else (values,)


WHOLE: dict[str, Callable] = {
    "reduce_sum": _sum,
    "reduce_prod": _product,
    "reduce_max": _reduced(_larger),
    "reduce_min": _reduced(_smaller),
    "dot_general": _dot,
    "cumsum": _running(np.cumsum),
    "cumprod": _running(np.cumprod),
    "argmax": _extreme_place(1),
    "argmin": _extreme_place(-1),
    "sort": _sort,
    "lu": _matrices(_lu),
    "triangular_solve": _matrices(_solved),
    "cholesky": _matrices(_cholesky),
    "eigh": _matrices(_eigh),
    "svd": _matrices(_svd),
}
WHOLE |= {name: _typed(name) for name in (*NATIVE, "convert_element_type")}
for _name in (*NATIVE, "convert_element_type"):
    del ELEMENTWISE[_name]


# Control flow


def _scan(p: Any, given: list, m: Arithmetic) -> list:
    consts = given[: p["num_consts"]]
    carry = given[p["num_consts"] : p["num_consts"] + p["num_carry"]]
    columns = given[p["num_consts"] + p["num_carry"] :]
    rows: list[list] = []
    order = range(p["length"])
    for k in reversed(order) if p["reverse"] else order:
        found = _closed(p["jaxpr"], [*consts, *carry, *(np.asarray(c[k]) for c in columns)], m)
        carry = found[: p["num_carry"]]
        rows.append(found[p["num_carry"] :])
    if p["reverse"]:
        rows.reverse()
    return [*carry, *(np.stack(column) for column in zip(*rows, strict=True))]


def _while(p: Any, given: list, m: Arithmetic) -> list:
    split = p["cond_nconsts"]
    body = split + p["body_nconsts"]
    asked, done, carry = given[:split], given[split:body], given[body:]
    while bool(_closed(p["cond_jaxpr"], [*asked, *carry], m)[0]):
        carry = _closed(p["body_jaxpr"], [*done, *carry], m)
    return carry


def _branch(p: Any, given: list, m: Arithmetic) -> list:
    which = int(np.clip(int(given[0]), 0, len(p["branches"]) - 1))
    return _closed(p["branches"][which], given[1:], m)


def _linear_solve(p: Any, given: list, m: Arithmetic) -> list:
    lengths = p["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    consts, right = given[before : before + lengths.solve], given[sum(lengths) :]
    return _closed(p["jaxprs"].solve, [*consts, *right], m)


CONTROL: dict[str, Callable] = {
    "scan": _scan,
    "while": _while,
    "cond": _branch,
    "custom_linear_solve": _linear_solve,
}
