"""Terminal output: verdicts in color and lines wrapped at the terminal's width; plain text in a pipe."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from typing import TextIO

_CODES = {"HOLDS": "32", "REPRODUCED": "32", "VIOLATED": "1;31", "SILENT": "33"}
_WORDS = re.compile(r"\b(HOLDS|REPRODUCED|VIOLATED|SILENT)\b")
_COLUMN = re.compile(
    r"\s*\S(?:\S| (?! ))*\s{2,}(?=\S)"
)  # everything before the second column of a line
NARROWEST = 20  # a terminal that reports a smaller width is ignored


def wrapped(text: str, width: int) -> str:
    """The text with lines of at most `width` characters; continuation lines are indented to their column."""
    return "\n".join(_lines(line, max(width, NARROWEST)) for line in text.split("\n"))


def _lines(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    column = _COLUMN.match(line)
    hang = column.end() if column else len(line) - len(line.lstrip()) + 2
    hang = hang if hang <= width // 2 else 2
    return "\n".join(
        textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * hang,
            break_on_hyphens=False,
            break_long_words=False,
        )
    )


def encodes(text: str, stream: TextIO) -> bool:
    """Whether the stream can show these characters."""
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def is_terminal(stream: TextIO) -> bool:
    return stream.isatty()


def fitted(text: str, stream: TextIO) -> str:
    """The text as written to a stream: wrapped if the stream is a terminal."""
    return wrapped(text, shutil.get_terminal_size().columns) if is_terminal(stream) else text


def show(text: object) -> None:
    """Print to stdout; on a terminal, wrap at its width and color the verdicts."""
    words = fitted(str(text), sys.stdout)
    if is_terminal(sys.stdout) and not os.environ.get("NO_COLOR"):
        words = _WORDS.sub(lambda word: f"\x1b[{_CODES[word[0]]}m{word[0]}\x1b[0m", words)
    print(words)


def say(text: object) -> None:
    """Print a message to stderr; on a terminal, wrap at its width."""
    print(fitted(str(text), sys.stderr), file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """Show one progress line on stderr; on a terminal it replaces the previous one and is cut at the width."""
    if not is_terminal(sys.stderr):
        print(text, file=sys.stderr, flush=True)
        return
    room = max(shutil.get_terminal_size().columns, NARROWEST) - 1
    shown = text if len(text) <= room else f"{text[: room - 3]}..."
    print(f"\r\x1b[K{shown}", end="", file=sys.stderr, flush=True)


def hush() -> None:
    """Clear the progress line."""
    if is_terminal(sys.stderr):
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
