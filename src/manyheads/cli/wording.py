"""Messages of the library in the words of the command line: options instead of the names of arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

# Arguments that have another name as an option, where the verb has that option.
OPTIONS = {
    "num_steps": "steps",
    "num_heads": "heads",
    "num_examples": "examples",
    "checkpoint": "out",
}
# Advice that only a program can follow, and what a person at the command line does instead.
INSTEAD = (
    ("; sequence= and label= name others", "; rename yours"),
    (", or name the feature columns with features=", ", or leave the column out"),
    ("; leave it out, or leave the column out", "; leave it out"),
    ("and pass mask=", "and save their flags as the array mask"),
    (", or pass like= to Dataset.from_arrays", ""),
)


def in_options(message: str, command: Callable[..., int]) -> str:
    """The message with `step_size=-1` as `--step-size -1`, for every argument that is an option of this command."""
    for ours, theirs in INSTEAD:
        message = message.replace(ours, theirs)
    known = {
        name
        for name, item in inspect.signature(command).parameters.items()
        if item.kind is inspect.Parameter.KEYWORD_ONLY
    }

    def option(found: re.Match[str]) -> str:
        name = OPTIONS.get(found[1], found[1])
        if name not in known:
            return found[0]
        flag = f"--{name.replace('_', '-')}"
        return f"{flag} {found[2]}" if found[2] else flag

    return re.sub(r"(?<![\w.(`-])([a-z][a-z_]*)=(?!=)([^\s.,;)=]?)", option, message)
