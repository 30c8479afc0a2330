"""A statement's functions as Python that stands alone: their source, and the names that they use."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from manyheads.theory.attack import Sides
    from manyheads.theory.statement import Statement

HEAD = """\
from types import SimpleNamespace

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
array = jnp.array
"""


def standing_alone(statement: Statement, values: Mapping[str, Any], sides: Sides) -> str:
    """A program that evaluates both sides at an input."""
    definitions: dict[str, str] = {}
    named = {
        name: _source(function, definitions)
        for name, function in (("measured", statement.measured), ("bound", statement.bound))
        if function is not None
    }
    point = ",\n".join(f"    {name}={_written(value)}" for name, value in values.items())
    lines = [HEAD, *definitions.values(), f"p = SimpleNamespace(\n{point},\n)"]
    for name, source in named.items():
        if source is None:
            return (
                f"# the source of {name} cannot be found; both sides are functions of\n{lines[-1]}"
            )
        lines.append(source if source.startswith("def ") else f"{name} = {source}")
        if source.startswith("def ") and not source.startswith(f"def {name}("):
            lines.append(f"{name} = {source[4:].partition('(')[0]}")
    other = "<=" if statement.sense == "<=" else ">="
    lines.append(f"# {statement.title}: measured {other} bound fails here,")
    lines.append(f"# {sides.measured!r} against {sides.bound!r}")
    lines.append('print("measured", float(measured(p)), "bound", float(bound(p)))')
    return "\n".join(lines)


def _written(value: Any) -> str:
    # a data set or a run
    if isinstance(value, tuple):
        parts = ", ".join(f"{n}={_written(v)}" for n, v in value._asdict().items())
        return f"SimpleNamespace({parts})"
    with np.printoptions(floatmode="unique", threshold=100_000):
        text = repr(np.asarray(value, float)).removeprefix("array(").removesuffix(")")
    return f"array({' '.join(text.split())})"


def _source(function: Callable, definitions: dict[str, str]) -> str | None:
    """The text of a function; what it uses is added to the definitions, in the order of use."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines = linecache.getlines(code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return None
    places = [p for p in code.co_positions() if p[0] is not None and p[2] is not None]
    for node in ast.walk(tree):
        named = isinstance(node, ast.FunctionDef) and node.name == code.co_name
        if not (named or isinstance(node, ast.Lambda)) or node.lineno > code.co_firstlineno:
            continue
        first = min((d.lineno for d in getattr(node, "decorator_list", [])), default=node.lineno)
        if first != code.co_firstlineno or not (named or _covers(node, places)):
            continue
        _names(function, code, definitions)
        segment = ast.get_source_segment("".join(lines), node)
        return None if segment is None else textwrap.dedent(segment)
    return None


def _covers(node: Any, places: list[tuple]) -> bool:
    """Whether a lambda's instructions stand in this text: several may begin in one line."""
    body: Any = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    # without the empty beginning
    inner = [p for p in places if p[0] != p[1] or p[2] != p[3]]
    return all(start <= (p[0], p[2]) and (p[1], p[3]) <= end for p in inner)


def _names(function: Callable, code: CodeType, definitions: dict[str, str]) -> None:
    """Modules are imported, numbers and arrays written out, functions of one's own copied."""
    known = inspect.getclosurevars(function)
    for name, value in {**known.globals, **known.nonlocals}.items():
        if name in definitions or name in ("jax", "jnp"):
            continue
        # a function may use itself
        definitions[name] = ""
        definitions[name] = _definition(name, value, definitions)


def _definition(name: str, value: Any, definitions: dict[str, str]) -> str:
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if isinstance(value, bool | int | float | str):
        return f"{name} = {value!r}"
    if isinstance(value, np.ndarray) or hasattr(value, "__jax_array__") or hasattr(value, "aval"):
        return f"{name} = {_written(value)}"
    module = str(getattr(value, "__module__", ""))
    if module.split(".")[0] in ("jax", "numpy", "math", "scipy"):
        return f"from {module} import {getattr(value, '__name__', name)} as {name}"
    source = _source(value, definitions) if callable(value) else None
    if source is None:
        return f"# {name} is not known here: {value!r}"
    # what it uses has to stand before it
    definitions.pop(name, None)
    return source if source.startswith("def ") else f"{name} = {source}"
