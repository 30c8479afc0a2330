"""Write docs/api/*.md, the public names with their signatures and docstrings: one page for the top, one for each room.

`make docs` runs it; the pages are not kept, since they change with every docstring.
"""

import inspect
import re
from pathlib import Path

import manyheads as mh

HERE = Path(__file__).parent
TITLES = {
    "data": "manyheads.data: where sequences come from",
    "model": "manyheads.model: what is trained",
    "training": "manyheads.training: starts, rules and runs",
    "measures": "manyheads.measures: numbers measured on models and runs",
    "theory": "manyheads.theory: statements, forecasts and verdicts",
    "lab": "manyheads.lab: many runs, claims, one page",
}


class Bare(str):
    """An annotation that is shown without quotes."""

    def __repr__(self) -> str:
        return re.sub(
            r"\b(?:manyheads|jax|np|numpy|collections\.abc)\.(?:[a-z_]+\.)*", "", str(self)
        )


def bare(annotation):
    return Bare(annotation) if isinstance(annotation, str) else annotation


def signature(thing) -> str:
    """The signature as it is written in the source, less `self`."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    inputs = [one.replace(annotation=bare(one.annotation)) for one in found.parameters.values()]
    inputs = [one for one in inputs if one.name not in ("self", "cls")]
    text = str(found.replace(parameters=inputs, return_annotation=bare(found.return_annotation)))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def member(name: str, value) -> str:
    """One line about a public method or property that has a docstring; empty for anything else."""
    value = getattr(value, "__func__", value)
    is_property = isinstance(value, property) or hasattr(value, "attrname")
    getter = getattr(value, "fget", None) or getattr(value, "func", value)
    text = inspect.getdoc(getter)
    if name.startswith("_") or not text or not (callable(value) or is_property):
        return ""
    shown = f"`.{name}`" if is_property else f"`.{name}{signature(value)}`"
    return f"- {shown}: {text.splitlines()[0]}"


def entry(name: str, thing) -> str:
    """A public name: how it is called, what it is, and what it offers."""
    head = f"### {name}\n\n```text\n{name}{signature(thing)}\n```"
    parts = [head, inspect.getdoc(thing) or ""]
    if inspect.isclass(thing):
        members = [member(name, value) for name, value in vars(thing).items()]
        parts.append("\n".join(line for line in members if line))
    return "\n\n".join(part for part in parts if part)


def public_names(room) -> list[str]:
    """The names that a room offers, in its own order."""
    if hasattr(room, "PUBLIC"):
        return [name for names in room.PUBLIC.values() for name in names]
    return list(room.__all__)


def page(room, title: str) -> str:
    """The page of one room."""
    rooms = [f"- [mh.{name}]({name}.md): {TITLES[name].split(': ')[1]}" for name in mh.ROOMS]
    lines = [f"# {title}", inspect.getdoc(room) or ""]
    if room is mh:
        lines.append("\n".join(rooms))
    return "\n\n".join([*lines, *(entry(n, getattr(room, n)) for n in public_names(room))]) + "\n"


def pages() -> dict[str, str]:
    """File name -> content."""
    rooms = {f"{name}.md": page(getattr(mh, name), TITLES[name]) for name in mh.ROOMS}
    return {"top.md": page(mh, "import manyheads as mh")} | rooms


if __name__ == "__main__":
    (HERE / "api").mkdir(exist_ok=True)
    for name, content in pages().items():
        (HERE / "api" / name).write_text(content)
