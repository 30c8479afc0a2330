"""Types of options: numbers as people write them, and registered names."""

import re
from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

from manyheads._registry import nearest

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


Heads = Annotated[
    float,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="N|1e12|10^12",
        instance_from_str=lambda words: heads(words[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda number: [write_heads(number)],
    ),
]
"""The type of a `--heads` option: `def command(heads: Heads = 8) -> int`."""


def seed(text: str) -> int:
    """Read a seed: a whole number from 0 to 2^32 - 1, all of which differ."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**32):
        raise ValueError(f"{text!r} is not a seed: write a whole number from 0 to {2**32 - 1}")
    return int(text)


Seed = Annotated[
    int,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: seed(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda number: [str(number)],
    ),
]
"""The type of a `--seed` option."""


def named(names: Iterable[str]) -> PrimitiveConstructorSpec:
    """The type of an option that takes a registered name; `first-phase` is read as `first_phase`."""
    known = tuple(names)

    def read(words: list[str]) -> str:
        name = words[0].replace("-", "_")
        if name not in known:
            raise ValueError(f"{words[0]!r} is not known: {nearest(name, known)}")
        return name

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(known)}}}",
        instance_from_str=read,
        is_instance=lambda value: value in known,
        str_from_instance=lambda name: [name],
    )
