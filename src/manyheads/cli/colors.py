"""Terminal output: results to stdout, messages and progress to stderr; color and wrapping on a terminal alone."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme


class _Verdicts(RegexHighlighter):
    highlights = [
        r"\b(?P<good>HOLDS|REPRODUCED)\b",
        r"\b(?P<bad>VIOLATED)\b",
        r"\b(?P<quiet>SILENT)\b",
    ]


_COLORS = Theme({"good": "green", "bad": "bold red", "quiet": "yellow"}, inherit=False)


def _print(text: object, stream: TextIO) -> None:
    if stream.isatty():
        Console(file=stream, highlighter=_Verdicts(), theme=_COLORS).print(str(text), markup=False)
    else:  # programs read it
        print(text, file=stream, flush=True)


def show(text: object) -> None:
    """Print a result to stdout."""
    _print(text, sys.stdout)


def say(text: object) -> None:
    """Print a message to stderr."""
    _print(text, sys.stderr)


def tell(text: str) -> None:
    """Show one progress line on stderr; on a terminal it replaces the previous one."""
    if not sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
        return
    width = Console(file=sys.stderr).width - 1
    print(f"\r\x1b[K{text[:width]}", end="", file=sys.stderr, flush=True)


def hush() -> None:
    """Clear the progress line."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def encodes(text: str, stream: TextIO) -> bool:
    """Whether the stream can show these characters."""
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
