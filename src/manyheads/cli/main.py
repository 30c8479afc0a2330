"""The command `manyheads`: finds the verb, parses its options, and turns failures into one line and an exit code.

A verb is a module `manyheads.cli.VERB` with a function `command(...) -> int`: its parameters are the options, its
docstring is the help, and what it returns is the exit code (0 fine, 1 a statement is violated, a run diverged, 3 the theory is silent). `DECIDED_BY` of the module maps an option to the options that it overrides. A verb
prints results to stdout and progress to stderr, and imports JAX inside the function, so that `--help` is quick.
Options mean the same in every verb: `--seed`, `--dtype`, `--device`, `--out`, `--json`, `--quiet`.
"""

import difflib
import os
import sys
import warnings
from importlib import import_module

import manyheads
from manyheads.cli import interrupt
from manyheads.cli.colors import say, show

# Verb -> what it does, in the order a new user needs them. To add a verb, add a line and the module of that name.
VERBS = {
    "fit": "fit an attention probe to your own sequences, and say how good it is",
    "predict": "predict labels with a fitted probe, and see which tokens its heads look at",
    "train": "train on your data or on a data source, and save the trajectory",
    "certify": "what the theory says about a run: holds, violated or silent",
    "forecast": "what the next steps of a run are proved to reach, at any number of heads",
    "plan": "how many heads, which step size, how many steps",
    "verify": "check every statement of the paper and every erratum",
    "explain": "one statement: as printed, as corrected, ours, proof, tightness",
}

EXAMPLES = (
    ("manyheads verify --quick", "needs no preparation"),
    ("manyheads train --help", "every option of one verb"),
)

LONGEST = 800  # characters of a message
BAD_INPUT, INTERRUPTED, BROKEN_PIPE, BUG = 2, interrupt.INTERRUPTED, 141, 70


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return its exit code. Without arguments it reads the command line, and a second Ctrl-C exits."""
    if arguments is None:
        interrupt.twice_ends_at_once()
    verb, *rest = joined(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        if verb in ("--help", "-h"):
            code = _say(overview())
        elif verb == "--version":
            code = _say(f"manyheads {manyheads.__version__}")
        elif verb in VERBS:
            code = _run(verb, rest)
        else:
            code = _fail(unknown(verb), BAD_INPUT)
        sys.stdout.flush()
        if arguments is None:
            interrupt.all_is_said(code)
        return code
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        if arguments is None:
            interrupt.leave()
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        if os.environ.get("MANYHEADS_TRACEBACK"):
            raise
        if isinstance(error, ValueError | OSError | MemoryError):
            return _fail(_one_line(error), BAD_INPUT)
        return _fail(
            f"a bug in manyheads: {type(error).__name__}: {_one_line(error)} "
            "(MANYHEADS_TRACEBACK=1 shows where; please report it)",
            BUG,
        )


def overview() -> str:
    """What `manyheads --help` prints."""
    width = max(len(verb) for verb in VERBS)
    reach = max(len(command) for command, _ in EXAMPLES)
    return "\n".join(
        [
            f"manyheads {manyheads.__version__}: the theory of training multi-head attention, made to run.",
            "",
            "usage: manyheads VERB [options]",
            "",
            *(f"  {verb:<{width}}  {summary}" for verb, summary in VERBS.items()),
            "",
            "examples:",
            *(f"  {command:<{reach}}  # {comment}" for command, comment in EXAMPLES),
            "",
            "`manyheads VERB --help` explains a verb; `manyheads --version` prints the version.",
            "Exit codes: 0 fine, 1 a statement is violated, a run diverged,",
            "2 bad input, 3 the theory is silent.",
        ]
    )


def joined(arguments: list[str]) -> list[str]:
    """The arguments, with two consecutive .npy files (tokens, labels) joined into one."""
    found: list[str] = []

    def is_file(word: str) -> bool:
        return word.lower().endswith(".npy") and word[0] != "-" and "," not in word

    for word in arguments:
        if found and is_file(found[-1]) and is_file(word):
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


def unknown(verb: str) -> str:
    """The message for a verb that does not exist."""
    near = difflib.get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean `manyheads {near[0]}`?" if near else f"choose one of {', '.join(VERBS)}."
    return f"there is no verb {verb[:60]!r}: {hint} `manyheads --help` explains them."


def _run(verb: str, arguments: list[str]) -> int:
    from manyheads.cli.parsing import parsed, refuse_both

    usual = warnings.formatwarning
    warnings.formatwarning = _one_warning  # ty: ignore[invalid-assignment]
    try:
        module = import_module(f"manyheads.cli.{verb}")
        call = parsed(module.command, verb, arguments)
        refuse_both(arguments, getattr(module, "DECIDED_BY", {}))
        return call()
    finally:
        warnings.formatwarning = usual


def _one_warning(message: Warning | str, *_: object, **__: object) -> str:
    return f"warning: {' '.join(str(message).split())}\n"


def _say(text: str) -> int:
    show(text)
    return 0


def _fail(message: str, code: int) -> int:
    say(f"error: {message}")
    return code


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error)
    return _shortened(
        "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in " ".join(text.split()))
    )


def _shortened(text: str) -> str:
    """The text without its middle if it is too long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


if __name__ == "__main__":
    sys.exit(main())
