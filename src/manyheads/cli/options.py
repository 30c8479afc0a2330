"""What verbs share: a number of heads as people write it, results on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from rich.console import Console
from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

# Options that may be left out, as the help names them.
Number = Annotated[float | None, arg(metavar="NUMBER")]
Count = Annotated[int | None, arg(metavar="INT")]
File = Annotated[Path | None, arg(metavar="FILE")]
Label = Annotated[str | None, arg(metavar="LABEL")]
Data = Annotated[str | None, arg(metavar="DATA")]

# whole numbers up to here are exact in float64
MOST_HEADS = 9 * 10**15


def read_heads(text: str) -> float:
    """A number of heads: `64`, `1_000_000`, `1e12` or `10^12`, a whole number from 1 to 9e15."""
    base, _, exponent = text.replace("_", "").replace("**", "^").partition("^")
    try:
        value = Decimal(base) ** int(exponent or 1)
        fine = 1 <= value <= MOST_HEADS and value == int(value)
    except (ArithmeticError, ValueError):  # no number, or one beyond all bounds
        fine = False
    if not fine:
        raise ValueError(
            f"{text!r} is not a number of heads: write a whole number from 1 to 9e15, such as 64, "
            "1e12 or 10^12"
        )
    return float(value)


def write_heads(number: float) -> str:
    """A number of heads so that `read_heads` reads it back: `64`, `1e12`."""
    digits = f"{number:.0f}"
    short = digits.rstrip("0")
    return f"{short}e{len(digits) - 1}" if len(short) == 1 and len(digits) > 4 else digits


Heads = Annotated[
    float,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="N|1e12|10^12",
        instance_from_str=lambda words: read_heads(words[0]),
        is_instance=lambda value: isinstance(value, int | float),
        str_from_instance=lambda value: [write_heads(value)],
    ),
]


def show(result: object) -> None:
    """Print a result, with rich's colors on a terminal."""
    Console(soft_wrap=True).print(str(result), markup=False)


def can_show(text: str) -> bool:
    """Whether stdout can show these characters."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def telling(quiet: bool) -> Generator[Callable[[str], None], None, None]:
    """A function that shows what is being done: on a terminal in one line that it replaces."""
    console = Console(stderr=True)
    if quiet:
        yield lambda text: None
    elif console.is_terminal:
        with console.status("") as status:
            yield lambda text: status.update(text)
    else:
        yield lambda text: print(text, file=sys.stderr, flush=True)
