"""Data sources by name: one dataclass each, whose settings are the fields of a sweep's `[data]`.

A source has `sample(num_examples, *, key)` if it can draw any number of sequences, or `load()` if it is a fixed
collection, of which disjoint parts are used. One that is random itself, as a planted model is, has a field `key`. To
add one, register such a class in a plug-in.

Optional class attributes: `example`, the settings that the command line uses; `num_tokens` and `dim`, where they are
no settings but known; `fingerprint()`, which changes when the content of a collection does.
"""

from __future__ import annotations

from typing import Any

from manyheads._fields import setting_values
from manyheads._registry import Registry

SOURCES: Registry[Any] = Registry(
    "data source",
    {
        "mixture": "manyheads.data.mixture",
        "planted": "manyheads.data.planted",
        "random_labels": "manyheads.data.planted",
        "digits": "manyheads.data.real",
        "file": "manyheads.data.real",
    },
)


def takes_key(source: type) -> bool:
    """Whether a source is itself drawn at random."""
    return "key" in getattr(source, "__dataclass_fields__", ())


def make_source(kind: str, settings: Any, key: Any = None) -> Any:
    """The source of that name; `settings` is a mapping of some of its settings, or an object that has them all."""
    source = SOURCES[kind]
    values = dict(settings) if isinstance(settings, dict) else setting_values(settings, source)
    return source(**values, key=key) if takes_key(source) else source(**values)
