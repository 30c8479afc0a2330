"""Numbers other than floats: 60 digits, fractions, and balls that contain the true value."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath

DIGITS = 60
PREFIXED = ("sqrt", "exp", "log", "log1p", "expm1", "tanh", "sin", "cos", "tan", "sinh", "cosh")
PREFIXED = (*PREFIXED, "asin", "acos", "atan", "erf", "floor", "ceil", "lgamma", "digamma")


class NotExactError(Exception):
    """The arithmetic cannot do what the function asks for, or cannot decide a comparison."""


@dataclass(frozen=True)
class Arithmetic:
    """A kind of numbers: how one is made of a float, its functions, and its comparison (which may raise)."""

    name: str
    of: Callable[[float], Any]
    functions: dict[str, Callable]
    less: Callable[[Any, Any], bool] = operator.lt
    equal: Callable[[Any, Any], bool] = operator.eq


def _guarded(function: Callable) -> Callable:
    """Undefined values are NaN, as in floating point."""

    def call(*arguments: Any) -> Any:
        try:
            value = function(*arguments)
        except (ZeroDivisionError, ValueError):
            return mpmath.mpf("nan")
        return mpmath.mpf("nan") if isinstance(value, mpmath.mpc) else value

    return call


def _many_digits() -> Arithmetic:
    names = {"lgamma": mpmath.loggamma, "digamma": mpmath.digamma}
    functions = {
        name: _guarded(names.get(name) or getattr(mpmath, name))
        for name in PREFIXED
        if name in names or hasattr(mpmath, name)
    }
    functions["div"] = _guarded(operator.truediv)
    functions["pow"] = _guarded(operator.pow)
    return Arithmetic("60 digits", lambda x: mpmath.mpf(float(x)), functions)


def _fraction_root(x: Fraction) -> Fraction:
    above, below = math.isqrt(max(x.numerator, 0)), math.isqrt(x.denominator)
    if x < 0 or above**2 != x.numerator or below**2 != x.denominator:
        raise NotExactError("a root that is not a fraction")
    return Fraction(above, below)


def _fraction_power(x: Fraction, y: Fraction) -> Fraction:
    if y.denominator != 1:
        raise NotExactError("a power that is not a fraction")
    return x ** int(y)


FRACTIONS = Arithmetic(
    "fractions",
    lambda x: Fraction(float(x)),
    {
        "sqrt": _fraction_root,
        "pow": _fraction_power,
        "div": operator.truediv,
        "floor": lambda x: Fraction(math.floor(x)),
        "ceil": lambda x: Fraction(math.ceil(x)),
    },
)
MANY_DIGITS = _many_digits()


def balls(bits: int = 220) -> Arithmetic:
    """Balls of python-flint: every value comes with a radius that the true value cannot leave."""
    try:
        import flint
    except ImportError:
        raise ValueError(
            "rigorous=True needs python-flint; type: pip install 'manyheads[rigorous]'."
        ) from None
    flint.ctx.prec = bits
    functions: dict[str, Callable] = {
        name: operator.methodcaller(name) for name in PREFIXED if hasattr(flint.arb, name)
    }
    functions.update(div=operator.truediv, pow=operator.pow)

    def less(a: Any, b: Any) -> bool:
        if a < b:
            return True
        if a >= b:
            return False
        raise NotExactError("a comparison that the balls do not decide")

    def equal(a: Any, b: Any) -> bool:
        if not a.overlaps(b):
            return False
        if a.is_exact() and b.is_exact():
            return True
        raise NotExactError("a comparison that the balls do not decide")

    return Arithmetic("balls", lambda x: flint.arb(float(x)), functions, less, equal)
