"""Typed fields with ranges, units and help, and the check that turns a wrong value into a line that says what to do."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields, replace
from types import UnionType
from typing import Any, get_args, get_type_hints

import numpy as np


class SpecError(ValueError):
    """What is wrong with a spec, one line per mistake in `problems`."""

    def __init__(self, problems: Iterable[str]):
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
) -> Any:
    """A dataclass field: `low <= value <= high`, `above < value < below`, one of `choices`; where it counts."""
    metadata = dict(help=help, unit=unit, low=low, high=high, above=above, below=below, choices=choices, kinds=kinds)
    return field(default=default, metadata=metadata)


def nearest(name: str, known: Iterable[str]) -> str:
    """A half sentence that leads from a wrong name to the right one."""
    known = list(known)
    leaf = {k.rsplit(".", 1)[-1]: k for k in known}
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    near = near or [leaf[k] for k in difflib.get_close_matches(name.rsplit(".", 1)[-1], leaf, n=1, cutoff=0.6)]
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"


def show(value: Any, length: int = 60) -> str:
    """A value in a message, never longer than a line."""
    text = " ".join(repr(value)[: length * 4].split())
    return text if len(text) <= length else text[: length - 3] + "..."


def check_value(name: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """The value in its exact type, or a SpecError that names the key, what is allowed and what to write."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    value = value.item() if isinstance(value, np.generic) else value
    if value is None and type(None) in kinds:
        return None
    for wanted in kinds:
        converted = _convert(value, wanted)
        if converted is not None:
            return _in_range(name, converted, metadata, [k for k in kinds if k is not type(None)])
    raise SpecError([f"{name} = {show(value)} is {_noun(value)}; {_allowed(kinds, metadata)}"])


def check_fields(owner: Any, section: str) -> list[str]:
    """Check and convert every field of a frozen dataclass in place; what is wrong, one line each."""
    problems = []
    for kind, item in described(type(owner)).values():
        name = f"{section}.{item.name}"
        try:
            value = check_value(name, getattr(owner, item.name), kind, item.metadata)
        except SpecError as error:
            problems += error.problems
            continue
        object.__setattr__(owner, item.name, value)
    return problems


def misplaced(owner: Any, section: str, kinds: Iterable[str]) -> list[str]:
    """Fields that were set although they have no meaning for any kind the section takes, one line each."""
    return [
        f"{section}.{item.name} counts only for {section}.kind = {_either(item.metadata['kinds'])}: "
        f"remove {section}.{item.name} or change {section}.kind = {_either(tuple(kinds))}"
        for item in fields(owner)
        if getattr(owner, item.name) != item.default and not any(counts_for(item, kind) for kind in kinds)
    ]


def without_idle(owner: Any) -> Any:
    """The section with every field that has no meaning for its kind at its default: equal runs, equal contents."""
    kind = getattr(owner, "kind", None)
    return replace(owner, **{item.name: item.default for item in fields(owner) if not counts_for(item, kind)})


def counts_for(item: Field, kind: str | None) -> bool:
    """Whether a field has a meaning for this kind of section."""
    return not item.metadata["kinds"] or kind in item.metadata["kinds"]


@functools.cache
def described(section_type: Any) -> dict[str, tuple[Any, Field]]:
    """Field name -> (type, field)."""
    types = get_type_hints(section_type)
    return {item.name: (types[item.name], item) for item in fields(section_type)}


def _convert(value: Any, wanted: type) -> Any:
    """The value as `wanted`, or None: whole floats are integers, integers are floats, nothing else is guessed."""
    if wanted is bool:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if wanted is int and isinstance(value, int):
        return value if abs(value) < 2**63 else None
    if (
        wanted is int
        and isinstance(value, float)
        and math.isfinite(value)
        and value == int(value)
        and abs(value) < 2**53
    ):
        return int(value)
    if wanted is float and isinstance(value, int | float):
        return float(value) if abs(value) < 1e308 or isinstance(value, float) else None
    if wanted is str and isinstance(value, str):
        return value
    return None


def _in_range(name: str, value: Any, metadata: Mapping[str, Any], kinds: list) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not (
        math.isfinite(value)
        and (metadata["low"] is None or value >= metadata["low"])
        and (metadata["high"] is None or value <= metadata["high"])
        and (metadata["above"] is None or value > metadata["above"])
        and (metadata["below"] is None or value < metadata["below"])
    ):
        raise SpecError([f"{name} = {show(value)} is out of range; {_allowed(kinds, metadata)}"])
    if isinstance(value, str) and metadata["choices"] and value not in metadata["choices"]:
        hint = nearest(value, metadata["choices"])
        raise SpecError([f"{name} = {show(value)} is not known; {hint} ({_allowed(kinds, metadata)})"])
    return value


def _allowed(kinds: Iterable, metadata: Mapping[str, Any]) -> str:
    words = []
    for kind in kinds:
        if kind in (int, float):
            words.append({int: "a whole number", float: "a number"}[kind] + _range(metadata))
        elif kind is str:
            choices = metadata["choices"]
            words.append(f"one of {', '.join(map(repr, choices))}" if choices else "a text in quotes")
        elif kind is bool:
            words.append("true or false")
    return "write " + " or ".join(words)


def _range(metadata: Mapping[str, Any]) -> str:
    parts = [
        f"{sign} {metadata[bound]:g}"
        for bound, sign in (("low", ">="), ("above", ">"), ("high", "<="), ("below", "<"))
        if metadata[bound] is not None
    ]
    return f" {' and '.join(parts)}" if parts else ""


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(map(repr, words))


def _noun(value: Any) -> str:
    for kind, noun in (
        (bool, "true or false"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a text"),
        (Mapping, "a table"),
        (list | tuple, "a list"),
        (type(None), "nothing"),
    ):
        if isinstance(value, kind):
            return noun
    return f"of type {type(value).__name__}"
