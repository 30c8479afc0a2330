"""Checks at the public door: each says, in one line, what was given, what is allowed and what to pass.

`@guarded()` stands above every public function and reads what to check off its signature: the annotation of an
argument says what it is, `RANGES` which numbers of that name are allowed.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from manyheads import _check
from manyheads._check import array_of, checked_key, random_stream, real_array  # noqa: F401
from manyheads._fields import RANGE, allowed, judged, shown

Function = TypeVar("Function", bound=Callable[..., Any])

REFUSED = object()
MOST = 2**31 - 2  # what a loop or an array counts
FROM_ZERO = {"low": 0, "high": MOST}
SHARE = {"above": 0, "below": 1}

# Which numbers an argument of this name takes; any other takes whole numbers from 1 or finite numbers above 0.
RANGES: dict[str, dict[str, Any]] = {
    "seed": {"low": 0, "high": 2**63 - 1},
    "tolerance": SHARE,
    "epsilon": SHARE,
    "planning_share": SHARE,
    "failure": SHARE,
    "mass": {"low": 0, "below": 1},
    "error": {"low": 0},
    "scale": {"low": 0},
    "memory": {"low": 1e5},
    "reduce": {"above": 1},
    "key_query_scale": {"low": 0},
    "readout_scale": {"low": 0},
    "max_products": {"low": 10, "high": MOST},
    "num_exact": FROM_ZERO,
    "num_points": {"low": 2, "high": MOST},
    "index": FROM_ZERO,
    "from_step": FROM_ZERO,
    "layer": FROM_ZERO,
    "steps": FROM_ZERO,
    "indices": {"low": -MOST, "high": MOST},
    "num_examples": {"low": 2, "high": MOST},
}
# Our own things by their class, with what to pass instead of something else.
THINGS = {
    "Dataset": "a Dataset; make one with Dataset.from_arrays(tokens, labels)",
    "Trajectory": "a Trajectory, made by train or read by Trajectory.load",
    "MultiHead": "a MultiHead, made by zero_start or first_phase, say",
    "Frozen": "one made by frozen",
    "TokenizedMixture": "a TokenizedMixture",
    "GoodStart": "a GoodStart, made by good_start",
    "Direction": "a Direction, made by mixture_direction or combined_direction",
    "Target": "a Target, made by measure_target",
    "Threshold": "a Threshold, made by smallest_heads",
    "Walk": "a Walk, made by follow",
    "Sweep": "a Sweep",
}
NUMBERS = {"int": int, "float": float, "bool": bool, "str": str}


class Rule(NamedTuple):
    """What an argument may be, in words, and what makes of a value what the function takes, or `REFUSED`."""

    allowed: str
    accept: Callable[[Any], Any]


NOTHING = Rule("None", lambda value: REFUSED)


def guarded(**ranges: dict[str, Any] | None) -> Callable[[Function], Function]:
    """Check the arguments of a public function before it runs; `ranges` are those that differ from `RANGES`.

    Numbers reach the function as Python's own. What the function checks itself is left alone: an argument whose range
    is None, or whose annotation names nothing known.
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        rules = {
            name: found
            for name, item in signature.parameters.items()
            if (found := _rules(name, item, ranges.get(name, RANGES.get(name, {}))))
        }

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError as error:
                raise TypeError(
                    f"{call.__name__}: {error}; it takes {', '.join(signature.parameters)}."
                ) from None
            for name, value in bound.arguments.items():
                if name in rules:
                    bound.arguments[name] = _checked(name, value, rules[name])
            return function(*bound.args, **bound.kwargs)

        vars(call)["guarded"] = True  # a test looks for it on every public function
        return call  # ty: ignore[invalid-return-type]

    return decorate


def _checked(name: str, value: Any, rules: Sequence[Rule]) -> Any:
    if value is None and rules[-1] is NOTHING:
        return None
    for rule in rules:
        if (found := rule.accept(value)) is not REFUSED:
            return found
    raise ValueError(
        f"{name}={shown(value)} must be {' or '.join(rule.allowed for rule in rules)}."
    )


def _rules(name: str, parameter: inspect.Parameter, ranges: dict[str, Any] | None) -> list[Rule]:
    """One rule for each thing that the annotation of an argument allows; none if it names something unknown."""
    if ranges is None or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ):
        return []
    text = parameter.annotation if isinstance(parameter.annotation, str) else ""
    optional = text.endswith(" | None") or parameter.default is None
    text = text.removesuffix(" | None").replace("str | Path", "Path")
    special = SPECIAL.get(f"{name}: {text}")
    found = [special(name)] if special else [_rule(word, ranges) for word in text.split(" | ")]
    if not all(found):
        return []
    return [*found, NOTHING] if optional else found  # ty: ignore[invalid-return-type]


def _rule(word: str, ranges: dict[str, Any]) -> Rule | None:
    """The rule for one word of an annotation."""
    if word in NUMBERS:
        return _number(NUMBERS[word], ranges)
    if word in THINGS:
        return Rule(THINGS[word], lambda value: value if _made_by(value, word) else REFUSED)
    if word.startswith("Sequence[") and (inner := _rule(word[9:-1], ranges)):
        return Rule(f"a list, each entry {inner.allowed}", functools.partial(_each, inner))
    if word.startswith("Callable["):
        return Rule("a function", lambda value: value if callable(value) else REFUSED)
    if word == "Engine":
        return Rule(
            "an engine", lambda value: value if callable(getattr(value, "work", None)) else REFUSED
        )
    if word == "Path":
        return Rule(
            "a path, of names of at most 255 characters",
            lambda value: value if _is_path(value) else REFUSED,
        )
    return None


def _number(kind: type, ranges: dict[str, Any]) -> Rule:
    usual = {int: {"low": 1, "high": MOST}, float: {"above": 0}}
    ranges = {**RANGE, **(ranges or usual.get(kind, {}))}

    def accept(value: Any) -> Any:
        found, mistake = judged(value, (kind,), ranges, strict=True)
        return REFUSED if mistake else found

    plain = {bool: "True or False", str: "a text"}
    return Rule(plain.get(kind) or allowed((kind,), ranges), accept)


def _each(inner: Rule, values: Any) -> Any:
    """The list of what a rule makes of every entry."""
    if isinstance(values, str | bytes | dict | set | np.ma.MaskedArray) or not hasattr(
        values, "__iter__"
    ):
        return REFUSED
    found = [
        inner.accept(value)
        for value in (values.tolist() if isinstance(values, np.ndarray) else values)
    ]
    return REFUSED if any(value is REFUSED for value in found) else found


def _is_path(value: Any) -> bool:
    """Whether the system can look for a file of that name."""
    if not isinstance(value, str | os.PathLike) or not isinstance(text := os.fspath(value), str):
        return False
    names = os.fsencode(text).split(b"/")
    return bool(text) and "\0" not in text and max(map(len, names)) <= 255 and len(text) < 4096


def _made_by(value: Any, word: str) -> bool:
    """Whether a value is of the class of that name; the class itself may belong to a room that is not loaded.

    A data model of one's own may stand for the mixture, if it has its patterns.
    """
    if (
        word == "TokenizedMixture"
        and not isinstance(value, type)
        and hasattr(value, "num_patterns")
    ):
        return True
    return any(
        kind.__name__ == word and kind.__module__.startswith("manyheads.")
        for kind in type(value).__mro__
    )


def _raising(check: Callable[[str, Any], Any]) -> Callable[[str], Rule]:
    """The rule of a check that raises its own message."""
    return lambda name: Rule("", functools.partial(check, name))


def _known_loss(name: str, value: Any) -> Any:
    from manyheads.model import loss as losses

    losses.get_loss(value)
    return value


def _whole_heads(name: str, value: Any) -> float:
    from manyheads.training.start import is_heads

    return _check.checked(name, value, is_heads)


def _checked_model(name: str, value: Any) -> Any:
    from manyheads.model.protocol import checked_model

    return checked_model(value, name)


# "argument: annotation" -> its rule, where the words of the annotation say too little.
SPECIAL: dict[str, Callable[[str], Rule | None]] = {
    "key: jax.Array": _raising(lambda name, value: checked_key(value)),
    "dtype: str": _raising(lambda name, value: _check.checked(name, value, _check.dtype)),
    "loss: str | Loss": _raising(_known_loss),
    "loss: str": _raising(_known_loss),
    "num_heads: float": _raising(_whole_heads),
    "mixture: ": lambda name: _rule("TokenizedMixture", {}),
    **{f"{name}: Any": _raising(_checked_model) for name in ("model", "start", "first", "second")},
}


def whole(name: str, value, least: int = 1) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or not (isinstance(value, int | np.integer) and value >= least):
        raise ValueError(f"{name}={shown(value)} must be a whole number >= {least}.")
    if value >= 2**63:
        raise ValueError(f"{name}={shown(value)} must be a whole number below 2^63.")
    return int(value)


def finite(name: str, value, *, positive: bool = True, hint: str = "") -> float:
    """A finite number, above zero or at least zero."""
    number = number_of(value)
    if not (np.isfinite(number) and (number > 0 if positive else number >= 0)):
        raise ValueError(
            f"{name}={shown(value)} must be a finite number {'>' if positive else '>='} 0{hint and '; ' + hint}."
        )
    return number


def number_of(value) -> float:
    """A number as a float; NaN for what is none."""
    if (
        isinstance(value, np.ndarray | np.generic)
        and value.ndim == 0
        and not isinstance(value, np.ma.MaskedArray)
    ):
        value = value.item()
    if (
        isinstance(value, bool | str | bytes)
        or np.ndim(value) > 0
        or isinstance(value, np.ma.MaskedArray)
    ):
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan
