"""Parse a verb's options with tyro; a parse error becomes one line."""

import contextlib
import functools
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Callable, Mapping

import tyro

from manyheads.cli.colors import show


def parsed(
    command: Callable[..., int],
    verb: str,
    arguments: list[str],
    decided_by: Mapping[str, tuple[str, ...]] | None = None,
) -> Callable[[], int]:
    """The call of `command` with these arguments; bad ones are a ValueError, and `--help` ends the program.

    `decided_by` maps an option to the options that it overrides; passing both is an error.
    """

    @functools.wraps(command)
    def call(*args, **options):
        return functools.partial(command, *args, **options)

    said, held = io.StringIO(), io.BytesIO()
    shown = io.TextIOWrapper(
        held, sys.stdout.encoding or "utf-8"
    )  # so that tyro draws frames the terminal can show
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
            made = tyro.cli(
                call,
                prog=f"manyheads {verb}",
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if not end.code:
            shown.flush()
            show(
                _without_none(held.getvalue().decode(shown.encoding)).rstrip("\n")
                + examples(command)
            )
            raise
        raise ValueError(
            f"{one_line(said.getvalue())} `manyheads {verb} --help` explains every option."
        ) from None
    given = {
        word.partition("=")[0].replace("_", "-") for word in arguments if word.startswith("--")
    }
    for option, others in (decided_by or {}).items():
        if option in given and (taken := [other for other in others if other in given]):
            verb = "are" if len(taken) > 1 else "is"
            raise ValueError(
                f"{' and '.join(taken)} {verb} decided by {option}; leave {taken[0]} out, or {option}."
            )
    return made


def examples(command: Callable[..., int]) -> str:
    """The examples in the docstring of a command, which tyro leaves out of its help."""
    found = re.search(
        r"^Examples:\n((?:[ ]+\S.*\n?)+)", inspect.getdoc(command) or "", re.MULTILINE
    )
    return (
        f"\n\nexamples:\n{textwrap.indent(textwrap.dedent(found[1]).rstrip(), '  ')}"
        if found
        else ""
    )


def _without_none(text: str) -> str:
    """The help without `{None}|` before the kind of an option that may be left out; columns stay where they are."""
    return re.sub(r"\{None\}\|(\S+)", lambda kind: f"{kind[1]}{' ' * len('{None}|')}", text)


def one_line(box: str) -> str:
    """The message in tyro's box as one line, with the options it suggests."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)  # without colors
    rows = [line.strip(" │") for line in plain.splitlines() if not line.startswith(("╭", "╰"))]
    if (
        "╭" not in plain and len(rows) > 1 and _is_rule(rows[1])
    ):  # the box's title, on a terminal without frames
        rows = rows[2:]
    message = (
        " ".join(" ".join(_until_rule(rows)).split())
        .rstrip(".")
        .replace("Error parsing", "cannot read")
    )
    message = re.sub(
        r"no type matching .* <class '\w+'>: (?!.*<class)", "", message
    )  # the error of the last type tried
    message = re.sub(
        r"invalid literal for int\(\) with base \d+: (.*)", r"\1 is not a whole number", message
    )
    message = re.sub(r"could not convert string to float: (.*)", r"\1 is not a number", message)
    message = message.replace(". Expected 1 values", "; write it after a space")
    if "Perhaps you meant:" in rows:
        near = [
            row
            for row in _until_rule(rows[rows.index("Perhaps you meant:") :])
            if row.startswith("--")
        ]
        message += f"; perhaps you meant {' or '.join(near[:3])}"
    return f"{message[:1].lower()}{message[1:]}."


def _until_rule(rows: list[str]) -> list[str]:
    return rows[: next((i for i, row in enumerate(rows) if _is_rule(row)), len(rows))]


def _is_rule(row: str) -> bool:
    return len(row) > 2 and not row.strip("─-")
