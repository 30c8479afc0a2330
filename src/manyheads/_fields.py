"""Typed fields with ranges, units and help: one description for constructors, sweeps and the command line."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field, fields
from types import UnionType
from typing import Any, get_args, get_type_hints

import numpy as np

from manyheads._registry import nearest

RANGE = dict(low=None, high=None, above=None, below=None, choices=())


class SpecError(ValueError):
    """What is wrong with a spec, one line per mistake in `problems`."""

    def __init__(self, *problems: str):
        self.problems = problems
        super().__init__("; ".join(problems))


def setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Iterable[str] = (),
) -> Any:
    """A dataclass field with `low <= value <= high`, `above < value < below`, or one of `choices`.

    `default=dataclasses.MISSING` makes the field required.
    """
    metadata = dict(
        help=help, unit=unit, low=low, high=high, above=above, below=below, choices=choices
    )
    return field(default=default, metadata=metadata)


@functools.cache
def settings(owner: Any) -> dict[str, tuple[Any, Field]]:
    """Name -> (type, field) of the fields that `setting` made; others, such as `key`, are no part of a spec."""
    types = get_type_hints(owner)
    return {
        item.name: (types[item.name], item) for item in fields(owner) if "help" in item.metadata
    }


def setting_values(owner: Any, like: type) -> dict[str, Any]:
    """The values that `owner` has for the settings of the class `like`."""
    return {name: getattr(owner, name) for name in settings(like)}


def check(owner: Any, **advice: Callable[[], str]) -> None:
    """Check and convert the settings of a frozen dataclass in its constructor; the first mistake is a ValueError.

    `advice` maps a field to a half sentence that is added to its message.
    """
    for name, (kind, item) in settings(type(owner)).items():
        given = getattr(owner, name)
        value, mistake = judged(given, _kinds(kind), item.metadata, strict=True)
        if mistake == "unknown":
            raise ValueError(
                f"{name}={shown(given)} is not known; choose {_or(map(repr, item.metadata['choices']))}."
            )
        if mistake:
            more = f"; {advice[name]()}" if name in advice else ""
            raise ValueError(
                f"{name}={shown(given)} must be {allowed(_kinds(kind), item.metadata)}{more}."
            )
        object.__setattr__(owner, name, value)


def check_value(name: str, given: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """A value of a spec in its exact type, or a SpecError that names the key, what is allowed and what to write."""
    kinds = _kinds(kind)
    value, mistake = judged(given, kinds, metadata)
    if not mistake:
        return value
    remedy = f"write {allowed(kinds, metadata)}"
    if mistake == "unknown":
        raise SpecError(
            f"{name} = {shown(given)} is not known; {nearest(given, metadata['choices'])} ({remedy})"
        )
    raise SpecError(
        f"{name} = {shown(given)} is {_noun(given) if mistake == 'type' else 'out of range'}; {remedy}"
    )


def check_spec(owner: Any, section: str) -> list[str]:
    """Check and convert the settings of one section of a spec in place; what is wrong, one line each."""
    problems = []
    for name, (kind, item) in settings(type(owner)).items():
        try:
            value = check_value(f"{section}.{name}", getattr(owner, name), kind, item.metadata)
        except SpecError as error:
            problems += error.problems
        else:
            object.__setattr__(owner, name, value)
    return problems


def shown(value: Any) -> str:
    """A value as it appears in a message: one line of at most 60 characters."""
    try:
        text = " ".join((str if isinstance(value, np.generic) else repr)(value)[:10_000].split())
    except Exception:  # a whole number of more than 4,300 digits, say
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def _kinds(kind: Any) -> tuple:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def judged(
    value: Any, kinds: tuple, metadata: Mapping[str, Any], strict: bool = False
) -> tuple[Any, str]:
    """The value in its type, and what is wrong with it: "", "type", "range" or "unknown"."""
    if value is None and type(None) in kinds:
        return None, ""
    if hasattr(value, "item") and np.ndim(value) == 0 and not isinstance(value, np.ma.MaskedArray):
        value = value.item()  # a NumPy or JAX scalar
    converted = next(
        (v for v in (_converted(value, kind, strict) for kind in kinds) if v is not None), None
    )
    if converted is None:
        return value, "type"
    if isinstance(converted, str):
        choices = metadata["choices"]
        return converted, "unknown" if choices and converted not in choices else ""
    low, high, above, below = (metadata[bound] for bound in ("low", "high", "above", "below"))
    inside = isinstance(converted, bool) or (
        math.isfinite(converted)
        and (low is None or converted >= low)
        and (high is None or converted <= high)
        and (above is None or converted > above)
        and (below is None or converted < below)
    )
    return converted, "" if inside else "range"


def _converted(value: Any, wanted: type, strict: bool) -> Any:
    """The value as `wanted`, or None: integers are floats, and unless `strict` whole floats are integers."""
    if isinstance(value, bool) or wanted is bool:
        return value if isinstance(value, bool) and wanted is bool else None
    if wanted is int and isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if wanted is int and isinstance(value, float) and not strict:
        return int(value) if value.is_integer() and abs(value) < 2**53 else None
    if wanted is float and isinstance(value, numbers.Real):
        return float(value) if isinstance(value, float) or -1e308 < value < 1e308 else None
    return value if wanted is str and isinstance(value, str) else None


def allowed(kinds: Iterable, metadata: Mapping[str, Any]) -> str:
    """What a value may be, in words."""
    choices = metadata["choices"]
    words = {
        int: f"a whole number{_range(metadata)}",
        float: f"a finite number{_range(metadata)}",
        str: f"one of {', '.join(map(repr, choices))}" if choices else "a text in quotes",
        bool: "true or false",
    }
    return " or ".join(words[kind] for kind in kinds if kind in words)


def _range(metadata: Mapping[str, Any]) -> str:
    if metadata["above"] is not None and metadata["below"] is not None:
        return f" strictly between {metadata['above']:g} and {metadata['below']:g}"
    signs = (("low", ">="), ("above", ">"), ("high", "<="), ("below", "<"))
    parts = [
        f"{sign} {_bound(metadata[bound])}" for bound, sign in signs if metadata[bound] is not None
    ]
    return f" {' and '.join(parts)}" if parts else ""


def _bound(value: float) -> str:
    """A bound as people write it, and every digit of a whole number that would be rounded."""
    return f"{value:g}" if float(f"{value:g}") == value else str(value)


def _or(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _noun(value: Any) -> str:
    nouns = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        type(None): "nothing",
    }
    if isinstance(value, Mapping):
        return "a table"
    return nouns.get(
        type(value),
        "a list" if isinstance(value, list | tuple) else f"of type {type(value).__name__}",
    )
