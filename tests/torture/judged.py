"""What became of a bad input: one line, the right result, or one of the faults."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import manyheads
from manyheads.data.budget import HOURS

HOME = str(Path(manyheads.__file__).parent)
ONE_LINE, RIGHT = "one line", "right result"
FAULTS = ("traceback", "several lines", "silent nonsense", "hang", "code ran")
SECONDS = 120  # a call that takes longer hangs; the slowest valid one compiles for seconds
LONGEST = 1000  # characters of a message
WORDS = (
    "diverged",
    "not finite",
    "not converged",
    "undecided",
    "silent",
    "no run",
    "not separable",
    "no spread",
)


class Hang(BaseException):
    """Raised by the alarm."""


@contextlib.contextmanager
def alarm(seconds: int = SECONDS) -> Iterator[None]:
    """Raise `Hang` in the main thread after so many seconds."""

    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def allowing(hours: float) -> Iterator[None]:
    """Work that takes longer is refused with its estimate, as work of half a day is for everybody."""
    before = os.environ.get(HOURS)
    os.environ[HOURS] = f"{hours:g}"
    try:
        yield
    finally:
        os.environ.pop(HOURS)
        if before is not None:
            os.environ[HOURS] = before


def outcome(
    call: Callable[[], Any],
    allowed: bool | None,
    about: str,
    valid: Callable[[], Any] = lambda: None,
) -> tuple[str, str]:
    """Make a call and judge it.

    `allowed` says whether the input is valid (None: either). A result must not hold NaN where that of the `valid` call
    has none, unless it says so in words.
    """
    try:
        with alarm(), allowing(hours=0.02), np.errstate(all="ignore"):
            result = call()
    except Hang:
        return "hang", about
    except Exception as error:
        return of_error(error, about)
    if allowed is False:
        return "silent nonsense", f"{about} was accepted"
    unsaid = unknown(result)
    if (
        unsaid
        and not any(word in str(result).lower() for word in WORDS)
        and not unsaid <= unknown(valid())
    ):
        return "silent nonsense", f"{about} gave {str(result)[:200]}"
    return RIGHT, ""


def of_error(error: BaseException, about: str, longest: int = LONGEST) -> tuple[str, str]:
    """Whether an error is one line of our own."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}"
    text = f"{about}: {type(error).__name__}: {error} [{where}]"[:800]
    if type(error).__module__ not in ("builtins",) and not type(error).__module__.startswith(
        "manyheads."
    ):
        return "traceback", text
    called = (
        isinstance(error, TypeError) and len(frames) <= 3 and "argument" in str(error)
    )  # Python's own check of a call
    ours = called or frames[-1].filename.startswith(HOME)
    if not isinstance(error, ValueError | TypeError | FileNotFoundError) or not ours:
        return "traceback", text
    message = str(error)
    if "\n" in message or not message.strip() or len(message) > longest:
        return "several lines", text
    return ONE_LINE, message[:300]


def unknown(result: Any, name: str = "") -> set[str]:
    """The names of what is NaN in a result."""
    if isinstance(result, float):
        return {name} if np.isnan(result) else set()
    if isinstance(result, np.ndarray):
        return {name} if result.dtype.kind == "f" and np.isnan(result).any() else set()
    if isinstance(result, tuple | list):
        return set().union(*(unknown(item, name) for item in result))
    if isinstance(result, dict):
        return set().union(*(unknown(item, f"{name}.{key}") for key, item in result.items()))
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return set().union(
            *(
                unknown(getattr(result, f.name), f"{name}.{f.name}")
                for f in dataclasses.fields(result)
            )
        )
    return set()
