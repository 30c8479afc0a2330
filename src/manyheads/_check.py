"""The one validator: what an argument may be stands beside the function that takes it, and is checked once.

    @check(step_size=positive, num_steps=whole(0), data=a(Dataset, "make one with Dataset.from_arrays"))
    def train(start, data, *, step_size, num_steps): ...

A public function that calls another one skips the checks of the second: its arguments are already known to be good.
One that runs its caller's own code, as `verify` does, is marked `@check(RUNS_CALLERS_CODE, ...)`: what that code calls
is checked as usual.
A value that is not allowed raises a ValueError of one line: what was given, and what may stand there.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])
REFUSED = object()
MOST = 2**31 - 2  # what a loop or an array counts
RUNS_CALLERS_CODE = True
_inside = contextvars.ContextVar("a checked function is running", default=False)


@dataclass(frozen=True)
class Constraint:
    """`accept` returns the value as the function takes it, or `REFUSED`; `allowed` says in words what is accepted."""

    allowed: str
    accept: Callable[[Any], Any]

    def __or__(self, other: Constraint | None) -> Constraint:
        other = none if other is None else other

        def accept(value: Any) -> Any:
            found = self.accept(value)
            return other.accept(value) if found is REFUSED else found

        return Constraint(f"{self.allowed} or {other.allowed}", accept)


def check(
    runs_callers_code: bool = False, /, **constraints: Constraint
) -> Callable[[Function], Function]:
    """Check the named arguments before the function runs. Numbers reach it as Python's own."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        title = getattr(function, "__name__", "the function")
        unknown = set(constraints) - set(signature.parameters)
        assert not unknown, f"{title} has no argument {unknown}"

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if _inside.get():
                return function(*arguments, **named)
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError as error:
                takes = ", ".join(
                    name for name in signature.parameters if name not in ("self", "cls")
                )
                raise TypeError(f"{title}: {error}; it takes {takes}.") from None
            for name, constraint in constraints.items():
                if name in bound.arguments:
                    bound.arguments[name] = checked(name, bound.arguments[name], constraint)
            token = _inside.set(not runs_callers_code)
            try:
                return function(*bound.args, **bound.kwargs)
            finally:
                _inside.reset(token)

        vars(call)["constraints"] = constraints
        return call  # ty: ignore[invalid-return-type]

    return decorate


def checked(name: str, value: Any, constraint: Constraint) -> Any:
    """One value, as the constraint makes it."""
    found = constraint.accept(value)
    if found is REFUSED:
        raise ValueError(f"{name}={shown(value)} must be {constraint.allowed}.")
    return found


def options_of(function: Callable, given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments that are handed on to another checked function, as its constraints make them."""
    known = inspect.signature(function).parameters
    for name in given:
        if name not in known:
            raise TypeError(
                f"{name}= is no argument of {getattr(function, '__name__', 'it')}; it takes {', '.join(known)}."
            )
    allowed = vars(function)["constraints"]
    return {k: checked(k, v, allowed[k]) if k in allowed else v for k, v in given.items()}


def check_fields(owner: Any, **constraints: Constraint) -> None:
    """Check the fields of a frozen dataclass in its `__post_init__`."""
    for name, constraint in constraints.items():
        object.__setattr__(owner, name, checked(name, getattr(owner, name), constraint))


def whole(low: int = 1, high: int = MOST) -> Constraint:
    """A whole number; NumPy's count too, 3.0 and True do not."""

    def accept(value: Any) -> Any:
        value = _plain(value)
        fine = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return int(value) if fine else REFUSED

    return Constraint(f"a whole number >= {low} and <= {high}", accept)


def real(
    *,
    above: float | None = None,
    low: float | None = None,
    below: float | None = None,
    high: float | None = None,
) -> Constraint:
    """A finite number with above < x < below, low <= x <= high."""

    def accept(value: Any) -> Any:
        value = _plain(value)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return REFUSED
        try:
            number = float(value)
        except OverflowError:
            return REFUSED
        fine = (
            math.isfinite(number)
            and (above is None or number > above)
            and (low is None or number >= low)
            and (below is None or number < below)
            and (high is None or number <= high)
        )
        return number if fine else REFUSED

    signs = ((">", above), (">=", low), ("<", below), ("<=", high))
    parts = [f"{sign} {bound:g}" for sign, bound in signs if bound is not None]
    if above is not None and below is not None:
        parts = [f"strictly between {above:g} and {below:g}"]
    return Constraint(" ".join(["a finite number", " and ".join(parts)]).strip(), accept)


def a(kind: type | tuple[type, ...], remedy: str = "") -> Constraint:
    """An instance of a class."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words = " or ".join(f"a {k.__name__}" for k in kinds) + (f"; {remedy}" if remedy else "")
    return Constraint(words, lambda value: value if isinstance(value, kinds) else REFUSED)


def one_of(*choices: Any) -> Constraint:
    """One of a few values."""
    *most, last = map(repr, choices)
    words = f"{', '.join(most)} or {last}" if most else last
    return Constraint(
        words, lambda v: v if isinstance(v, str | int | float) and v in choices else REFUSED
    )


def many(inner: Constraint) -> Constraint:
    """A list or an array of values that all satisfy `inner`."""

    def accept(values: Any) -> Any:
        if isinstance(values, str | bytes | dict | set | np.ma.MaskedArray) or not hasattr(
            values, "__iter__"
        ):
            return REFUSED
        found = [
            inner.accept(v) for v in (values.tolist() if isinstance(values, np.ndarray) else values)
        ]
        return REFUSED if any(value is REFUSED for value in found) else found

    return Constraint(f"a list, each entry {inner.allowed}", accept)


def _accept_path(value: Any) -> Any:
    """Whether the system can look for a file of that name."""
    if not isinstance(value, str | os.PathLike) or not isinstance(place := os.fspath(value), str):
        return REFUSED
    names = os.fsencode(place).split(b"/")
    return (
        value
        if place and "\0" not in place and max(map(len, names)) <= 255 and len(place) < 4096
        else REFUSED
    )


none = Constraint("None", lambda value: None if value is None else REFUSED)
flag = Constraint("True or False", lambda v: bool(v) if isinstance(v, bool | np.bool_) else REFUSED)
text = Constraint("a text", lambda value: value if isinstance(value, str) else REFUSED)
function = Constraint("a function", lambda value: value if callable(value) else REFUSED)
path = Constraint("a path, of names of at most 255 characters", _accept_path)
positive = real(above=0)
not_negative = real(low=0)
share = real(above=0, below=1)
seed = whole(0, 2**63 - 1)


def shown(value: Any) -> str:
    """A value as it appears in a message: one line of at most 60 characters."""
    try:
        line = " ".join((str if isinstance(value, np.generic) else repr)(value)[:10_000].split())
    except Exception:  # a whole number of more than 4,300 digits, say
        line = f"a value of type {type(value).__name__}"
    return line if len(line) <= 60 else line[:57] + "..."


def _plain(value: Any) -> Any:
    """A NumPy or JAX scalar as Python's own number."""
    if hasattr(value, "item") and np.ndim(value) == 0 and not isinstance(value, np.ma.MaskedArray):
        return value.item()
    return value


# Arrays


def array_of(values: Any, name: str = "the array") -> np.ndarray:
    """A NumPy array, or an empty one of objects if the values are ragged."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array; pass {name}.data without the masked entries.")
    try:
        if callable(
            getattr(values, "detach", None)
        ):  # a tensor of PyTorch, which may have a gradient
            values = values.detach().cpu()
            values = values.float() if str(values.dtype) == "torch.bfloat16" else values
        array = np.asarray(values)
        return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
    except Exception:  # whatever a foreign object raises
        return np.zeros(0, dtype=object)


def real_array(name: str, values: Any) -> np.ndarray:
    """An array of real numbers."""
    array = array_of(values, name)
    if array.dtype.kind not in "fiub":
        remedy = (
            "Pad sequences of different length and pass mask=."
            if array.dtype == object
            else f"Convert with np.asarray({name}, dtype=float)."
        )
        raise ValueError(
            f"{name} must be real numbers in one rectangular array; got dtype {array.dtype}. {remedy}"
        )
    return array


# Random keys and precision


def checked_key(value: Any) -> Any:
    """One JAX random key, as `jax.random.key` makes it; a whole number is the seed of one."""
    return checked("key", value, key)


def _accept_key(key: Any) -> Any:
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < 2**32:
        return jax.random.key(int(key))
    try:
        single = jax.random.key_data(key).ndim == 1
    except (TypeError, ValueError, AttributeError):
        single = False
    return key if single else REFUSED


def random_stream(key: Any) -> np.random.Generator:
    """A float64 NumPy stream that depends on the whole JAX key, so that draws do not depend on JAX's dtype mode."""
    return np.random.default_rng(np.asarray(jax.random.key_data(checked_key(key))).ravel())


def _accept_dtype(value: Any) -> Any:
    if value is None:  # which NumPy reads as float64
        return REFUSED
    try:
        kind = np.dtype(value).name
    except Exception:  # whatever a foreign object raises
        kind = ""
    return kind if kind in ("float32", "float64") else REFUSED


key = Constraint("a JAX random key or a seed: jax.random.key(0), or 0", _accept_key)
dtype = Constraint("'float32' or 'float64'", _accept_dtype)
