"""Parse a verb's options with tyro; a mistake becomes one line."""

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Mapping

import tyro


def parsed(command: Callable[..., int], verb: str, arguments: list[str]) -> Callable[[], int]:
    """The call of `command` with these arguments; bad ones are a ValueError, and `--help` ends the program."""

    @functools.wraps(command)
    def call(*args, **options):
        return functools.partial(command, *args, **options)

    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(
                call,
                prog=f"manyheads {verb}",
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if end.code:
            hint = f"`manyheads {verb} --help` explains every option."
            raise ValueError(f"{one_line(box.getvalue())} {hint}") from None
        print(examples(command), end="")
        raise


def refuse_both(arguments: list[str], decided_by: Mapping[str, tuple[str, ...]]) -> None:
    """Raise if an option was passed together with one that it decides."""
    given = {word.partition("=")[0].replace("_", "-") for word in arguments}
    for option, others in decided_by.items():
        taken = [other for other in others if other in given]
        if option in given and taken:
            raise ValueError(f"{option} decides {' and '.join(taken)}; leave {taken[0]} out.")


def examples(command: Callable[..., int]) -> str:
    """The examples in the docstring of a command, which tyro leaves out of its help."""
    section = re.search(r"^Examples:\n((?:[ ]+\S.*\n?)+)", inspect.getdoc(command) or "", re.M)
    return f"\nexamples:\n{section[1].rstrip()}\n" if section else ""


def one_line(box: str) -> str:
    """The message in tyro's box as one line, with the options that it suggests."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)  # without colors
    # A title, the message, what may have been meant, and where to look, with rules between them. Where the
    # terminal can show a frame, its upper side holds the title.
    text = re.sub(r"╭.*", "title -----", plain).replace("╰", "-----").replace("│", "")
    _, message, *rest = re.split(r"[-─]{5,}", " ".join(text.split()))
    near = re.findall(r"--[\w-]+", rest[0]) if "Perhaps you meant" in rest[0] else []
    hint = f"; perhaps you meant {' or '.join(near[:3])}" if near else ""
    line = message.strip(" .").replace("Error parsing", "cannot read")
    return f"{line[:1].lower()}{line[1:]}{hint}."
