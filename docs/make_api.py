"""Write docs/api.md, the public names with their signatures and docstrings.

`make docs` runs it; the page is not kept, since it changes with every docstring.
"""

import inspect
import re
from pathlib import Path

import manyheads as mh

GROUPS = {
    "data": "Data",
    "model": "Models",
    "training": "Training",
    "measures": "Measures",
    "theory": "Theory",
    "estimator": "The estimator",
}
HEAD = """# Functions and classes

Written by `python docs/make_api.py` from the docstrings: all that `import manyheads as mh` offers.
"""


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


def entry(name: str) -> str:
    thing = getattr(mh, name)
    lines = [
        f"### {name}",
        "",
        f"```text\n{name}{signature(thing)}\n```",
        "",
        inspect.getdoc(thing) or "",
    ]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            value = getattr(value, "__func__", value)
            text = inspect.getdoc(value.fget if isinstance(value, property) else value)
            if (
                not member.startswith("_")
                and text
                and (callable(value) or isinstance(value, property))
            ):
                shown = (
                    f"`.{member}`"
                    if isinstance(value, property)
                    else f"`.{member}{signature(value)}`"
                )
                lines += ["", f"- {shown}: {text.splitlines()[0]}"]
    return "\n".join(lines)


def page() -> str:
    parts = [HEAD]
    for room, title in GROUPS.items():
        names = [name for name, home in mh._HOME.items() if home.split(".")[1] == room]
        parts += [f"## {title}", *map(entry, names)]
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(page())
