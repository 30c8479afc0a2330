"""Writing TOML: tomllib reads, this writes the small subset that a spec needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def to_toml(content: Mapping[str, Any]) -> str:
    """Scalars and lists first, then one [table] for each inner mapping."""
    plain = [f"{_key(k)} = {_value(v)}" for k, v in content.items() if not isinstance(v, Mapping)]
    tables = [
        "\n".join([f"[{_key(k)}]", *(f"{_key(inner)} = {_value(v)}" for inner, v in table.items())])
        for k, table in content.items()
        if isinstance(table, Mapping) and table
    ]
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"


def _key(name: str) -> str:
    bare = name and all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if bare else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"TOML cannot hold {value!r}")
