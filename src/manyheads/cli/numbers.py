"""Option types: numbers as people write them, and registered names."""

import re
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from typing import Annotated, Any

from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

MOST_HEADS = 9 * 10**15  # whole numbers up to here are exact in float64
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?(e\+?[0-9]+)?", re.ASCII | re.IGNORECASE)
_POWER = re.compile(r"([0-9]+)(?:\^|\*\*)([0-9]+)", re.ASCII)


def heads(text: str) -> float:
    """Read a number of heads: `64`, `1_000_000`, `1e12` or `10^12`, a whole number from 1 to 9e15."""
    value = _value(text.strip())
    if value.is_nan() or not 1 <= value <= MOST_HEADS or value != value.to_integral_value():
        raise ValueError(
            f"{text!r} is not a number of heads: write a whole number from 1 to 9e15, such as 64, 1e12 or 10^12"
        )
    return float(value)


def _value(text: str) -> Decimal:
    digits = text.replace("_", "")
    exact = Context(prec=len(digits) + 40, traps=[])  # too large becomes infinite, which is refused
    if power := _POWER.fullmatch(digits):
        base, exponent = (exact.create_decimal(part) for part in power.groups())
        return exact.power(base, exponent)
    return exact.create_decimal(digits if _DECIMAL.fullmatch(digits) else "nan")


def write_heads(number: float) -> str:
    """Write a number of heads so that `heads` reads it back: `64`, `1e12`."""
    text = f"{number:.0f}"
    digits = text.rstrip("0")
    return f"{digits}e{len(text) - len(digits)}" if len(digits) == 1 and len(text) > 4 else text


def _option(
    metavar: str, read: Callable[[str], Any], write: Callable[[Any], str] = str
) -> PrimitiveConstructorSpec:
    """An option type that parses one word."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: isinstance(value, int | float | str),
        str_from_instance=lambda value: [write(value)],
    )


Heads = Annotated[float, _option("N|1e12|10^12", heads, write_heads)]
"""The type of a `--heads` option: `def command(heads: Heads = 8) -> int`."""


def auto(metavar: str, read: Callable[[str], Any]) -> PrimitiveConstructorSpec:
    """The type of an option that takes a number or `auto`."""
    return _option(f"{metavar}|auto", lambda word: word if word == "auto" else read(word))


On = Annotated[bool, arg(help_behavior_hint="(off by default)")]
"""The type of an option that is True unless the flag `--no-NAME` is given."""


def seed(text: str) -> int:
    """Read a seed: a whole number from 0 to 2^32 - 1; each gives different draws."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**32):
        raise ValueError(f"{text!r} is not a seed: write a whole number from 0 to {2**32 - 1}")
    return int(text)


Seed = Annotated[int, _option("INT", seed)]
"""The type of a `--seed` option."""


def named(names: Iterable[str]) -> PrimitiveConstructorSpec:
    """The type of an option that takes a registered name; `first-phase` is read as `first_phase`, and vice versa."""
    known = tuple(names)
    spelled = {name.replace("-", "_"): name for name in known}

    def read(word: str) -> str:
        if (name := spelled.get(word.replace("-", "_"))) is None:
            raise ValueError(f"{word!r} is not one of {', '.join(map(repr, known))}")
        return name

    return _option(f"{{{','.join(known)}}}", read)
