"""Public names that are loaded on first use (PEP 562), and names that several rooms share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence

OPTIMIZERS = ("gd", "normalized", "polyak", "adam")
DECODERS = ("full", "pooled", "last")  # of self-attention: tokens look at tokens
ALL_DECODERS = (*DECODERS, "query")  # "query": each head has a query of its own


# A package that is not a dependency -> the extra that brings it.
EXTRAS = {"xarray": "lab", "matplotlib": "lab", "sklearn": "probe", "pandas": "data"}


def public(
    package: str, modules: Mapping[str, Sequence[str]], rooms: Sequence[str] = ()
) -> tuple[Callable, Callable]:
    """`__getattr__` and `__dir__` of a package; `modules` says which of its modules holds which public names.

    `rooms` are packages below it that are public as a whole.
    """
    known = vars(sys.modules[package])
    homes = {name: module for module, names in modules.items() for name in names}

    def get(name: str):
        if name in rooms:
            return _loaded(f"{package}.{name}", f"{package}.{name}")
        if name in homes:
            known[name] = getattr(_loaded(f"{package}.{homes[name]}", f"{package}.{name}"), name)
            return known[name]
        places = [
            room for room in rooms if not name.startswith("_") and _offers(package, room, name)
        ]
        if places:
            raise AttributeError(f"{name} is in the room {places[0]}: {package}.{places[0]}.{name}")
        offered = ", ".join(sorted([*homes, *rooms]))
        raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {offered}")

    return get, lambda: sorted({*(n for n in known if n.startswith("__")), *homes, *rooms})


def _loaded(module: str, name: str):
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        raise ImportError(
            f"{name} needs {missing}, which is not installed: in the folder of manyheads type "
            f"pip install '.[{EXTRAS[missing]}]'"
        ) from None


def _offers(package: str, room: str, name: str) -> bool:
    return name in dir(importlib.import_module(f"{package}.{room}"))
