"""Checks at the public door: each says, in one line, what was given, what is allowed and what to pass."""

from __future__ import annotations

import numpy as np

from manyheads._fields import shown
from manyheads._lazy import lazy

jax = lazy("jax")


def whole(name: str, value, least: int = 1) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and value >= least):
        raise ValueError(f"{name}={shown(value)} must be a whole number >= {least}.")
    return int(value)


def finite(name: str, value, *, positive: bool = True, hint: str = "") -> float:
    """A finite number, above zero or at least zero."""
    number = _number(value)
    if not (np.isfinite(number) and (number > 0 if positive else number >= 0)):
        raise ValueError(
            f"{name}={shown(value)} must be a finite number {'>' if positive else '>='} 0{hint and '; ' + hint}."
        )
    return number


def _number(value) -> float:
    """NaN for what is no number."""
    if isinstance(value, bool | str | bytes) or np.ndim(value) > 0:
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def array_of(values) -> np.ndarray:
    """A NumPy array, or an empty one of objects if the values are ragged."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.zeros(0, dtype=object)


def real_array(name: str, values) -> np.ndarray:
    """An array of real numbers."""
    array = array_of(values)
    if array.dtype.kind not in "fiub":
        remedy = (
            "Pad sequences of different length and pass mask=."
            if array.dtype == object
            else f"Convert with np.asarray({name}, dtype=float)."
        )
        raise ValueError(f"{name} must be real numbers in one rectangular array; got dtype {array.dtype}. {remedy}")
    return array


def checked_key(key):
    """A JAX random key, as `jax.random.key` and `jax.random.split` make them."""
    try:
        jax.random.key_data(key)
    except (TypeError, ValueError, AttributeError):
        raise ValueError(f"key={shown(key)} is not a JAX random key; pass key=jax.random.key(0).") from None
    return key


def random_stream(key) -> np.random.Generator:
    """A float64 NumPy stream that depends on the whole JAX key, so that draws do not depend on JAX's dtype mode."""
    return np.random.default_rng(np.asarray(jax.random.key_data(checked_key(key))).ravel())
