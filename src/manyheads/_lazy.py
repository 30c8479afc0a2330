"""Modules and compiled functions that are loaded at their first use, so that texts can be read without JAX."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any


def lazy(name: str) -> Any:
    """The module `name`, loaded when one of its attributes is first used."""
    if name in sys.modules:
        return sys.modules[name]
    return _Lazy(name)


class _Lazy:
    def __init__(self, name: str):
        self.__dict__["_name"] = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def front_door(
    module: str, homes: Mapping[str, str], rooms: tuple[str, ...] = ()
) -> tuple[Callable, Callable]:
    """`__getattr__` and `__dir__` of a package whose public names load their module at first use."""
    names = vars(sys.modules[module])

    def get(name: str) -> Any:
        if name in rooms:
            return importlib.import_module(f"{module}.{name}")
        if name not in homes:
            raise AttributeError(
                f"module {module!r} has no attribute {name!r}; it offers {', '.join(sorted(homes))}"
            )
        names[name] = getattr(importlib.import_module(homes[name]), name)
        return names[name]

    return get, lambda: sorted({*names, *homes, *rooms})


def compiled(**options: Any) -> Callable[[Callable], Callable]:
    """`jax.jit(function, **options)`, made at the first call."""

    def decorate(function: Callable) -> Callable:
        @cache
        def program() -> Callable:
            return lazy("jax").jit(function, **options)

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            return program()(*arguments, **named)

        return call

    return decorate
