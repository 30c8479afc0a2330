"""The command `manyheads`: tyro parses a verb's options, the verb runs, and a failure becomes one line and an exit code.

A verb is a function `command(...) -> int` in a module of its name: its parameters are the options,
its docstring is the help. It returns 0 (fine), 1 (a statement is violated, or a run failed) or 3
(the theory is silent); bad input is 2. A verb prints results to stdout and progress to stderr, and
imports JAX inside the function, so that `--help` is quick.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Union

import tyro

import manyheads
from manyheads.cli import certify, check, explain, fit, forecast, plan, predict, train, verify

BAD_INPUT, BUG, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141
# characters of a message
LONGEST = 800
ABOUT = """The theory of training multi-head attention, made to run.

Examples:
    manyheads fit digits -o digits.safetensors     # an attention probe, and how good it is
    manyheads train data.npz --seed 3 --out run.npz
    manyheads certify run.npz --data data.npz      # what the theory says about this run
    manyheads verify --quick                       # every statement and every erratum

Exit codes: 0 fine, 1 a statement is violated or a run failed, 2 bad input, 3 the theory is silent.
"""
# In the order in which a newcomer needs them.
VERBS: dict[str, Callable[..., int]] = {
    "fit": fit.command,
    "predict": predict.command,
    "check": check.command,
    "train": train.command,
    "certify": certify.command,
    "forecast": forecast.command,
    "plan": plan.command,
    "verify": verify.command,
    "explain": explain.command,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return its exit code; without arguments, those of the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if words == ["--version"]:
        print(f"manyheads {manyheads.__version__}")
        return 0
    warnings.formatwarning = _one_warning  # ty: ignore[invalid-assignment]
    try:
        call = parsed(words)
        code = 0 if call is None else call()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        if os.environ.get("MANYHEADS_TRACEBACK"):
            raise
        if isinstance(error, ValueError | OSError | MemoryError):
            return _fail(_as_options(_text(error), VERBS.get(words[0])), BAD_INPUT)
        where = "MANYHEADS_TRACEBACK=1 shows where; please report it"
        return _fail(f"a bug in manyheads: {type(error).__name__}: {_text(error)} ({where})", BUG)


def parsed(words: list[str]) -> Callable[[], int] | None:
    """The call that these words ask for; None after help was printed."""
    verbs = [_subcommand(name, command, words[0]) for name, command in VERBS.items()]
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(
                Union[tuple(verbs)],  # noqa: UP007
                prog="manyheads",
                description=ABOUT,
                args=words,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as end:
        if end.code:
            raise ValueError(_mistake(box.getvalue(), words[0])) from None
        return None


def _subcommand(name: str, command: Callable[..., int], chosen: str) -> Any:
    """A verb as tyro takes it: parsing it makes the call, which is run later."""

    @functools.wraps(command)
    def later(*values: Any, **options: Any) -> Callable[[], int]:
        return functools.partial(command, *values, **options)

    # The list of verbs has one line for each; the help of one verb has all of it, with its examples.
    text = (inspect.getdoc(command) or "").partition("\nArgs:")[0]
    about = text if name == chosen else text.partition("\n")[0]
    return Annotated[Any, tyro.conf.subcommand(name, constructor=later, description=about)]


def _mistake(box: str, verb: str) -> str:
    """What tyro says in a box, as one line: the message, and the option that it suggests."""
    # without colors and without the frame
    plain = re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯]", " ", box)
    parts = re.split(r"[-─]{5,}", " ".join(plain.split()))
    # A title, the message, what may have been meant and where to look, with rules between them.
    _, message, *more = [part.strip(" .") for part in parts if part.strip()]
    near = re.search(r"Perhaps you meant: --[\w-]+|Available subcommands: .*", " ".join(more[:1]))
    hint = f" {near[0]}." if near else ""
    known = f" {verb}" if verb in VERBS else ""
    return f"{message}.{hint} `manyheads{known} --help` explains."


def _one_warning(message: Warning | str, *_: object, **__: object) -> str:
    return f"warning: {' '.join(str(message).split())}\n"


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _as_options(text: str, command: Callable[..., int] | None) -> str:
    """A message of the library, which names arguments, with the options that they are at the command line."""
    known = () if command is None else inspect.signature(command).parameters

    def option(found: re.Match) -> str:
        name = found[1].removeprefix("num_")
        return f"--{name.replace('_', '-')} " if name in known else found[0]

    return re.sub(r"(?<![\w-])([a-z_]+)=(?=[^\s,;.)])", option, text)


def _text(error: BaseException) -> str:
    """An error as one line of printable characters, without its middle if it is long."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


if __name__ == "__main__":
    sys.exit(main())
