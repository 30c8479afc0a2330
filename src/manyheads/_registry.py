"""Named things of one kind: the library's own, loaded when asked for, and those of plug-ins.

A plug-in is a module that registers what it defines when it is imported. Installed packages name theirs in the entry
point group `manyheads.plugins`; `MANYHEADS_PLUGINS=module,other` names more, and reaches worker processes too.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")
SHOWN = 12  # names in a message
GROUP, VARIABLE = "manyheads.plugins", "MANYHEADS_PLUGINS"


class Registry(Mapping[str, Thing], Generic[Thing]):
    """`what` names the kind in messages; `homes` says which module registers which built-in name."""

    def __init__(self, what: str, homes: Mapping[str, str] | None = None):
        self.what, self._homes, self._things = what, dict(homes or {}), {}

    def register(self, name: str) -> Callable[[Any], Any]:
        """A decorator that adds a thing under a name that is not taken."""

        def add(thing):
            known = self._things.setdefault(name, thing)
            if known is not thing and _origin(known) != _origin(thing):
                raise ValueError(f"there are two {self.what}s called {name!r}; rename one.")
            self._things[name] = thing
            return thing

        return add

    def __getitem__(self, name: str) -> Thing:
        if name not in self._things and name in self._homes:
            import_module(self._homes[name])
        if name not in self._things:
            plugins()
        if name not in self._things:
            raise ValueError(f"there is no {self.what} {name!r}; {nearest(str(name), self)}.")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in set(self)

    def __iter__(self) -> Iterator[str]:
        plugins()
        return iter(dict.fromkeys([*self._homes, *self._things]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _origin(thing: Any) -> Any:
    """Where a class or function was defined: the same again is a module that was loaded twice."""
    return (thing.__module__, thing.__qualname__) if hasattr(thing, "__qualname__") else thing


@cache
def plugins() -> tuple[ModuleType, ...]:
    """The modules of all plug-ins, imported."""
    listed = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    names = dict.fromkeys([*(point.module for point in entry_points(group=GROUP)), *listed])
    return tuple(_imported(name) for name in names)


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except Exception as error:  # whatever the module raises
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"the plug-in {name!r} cannot be imported ({text}); fix it, or remove it."
        ) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A half sentence that leads from a wrong name to the right one."""
    known = list(known)
    leaf = {k.rsplit(".", 1)[-1]: k for k in known}
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    near = near or [
        leaf[k] for k in difflib.get_close_matches(name.rsplit(".", 1)[-1], leaf, n=1, cutoff=0.6)
    ]
    listed = ", ".join(known[:SHOWN]) + (
        f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    )
    return f"did you mean {near[0]!r}?" if near else f"choose one of {listed}"
