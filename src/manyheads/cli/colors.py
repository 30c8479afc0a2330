"""Verdicts in color on a terminal, plain in a pipe."""

from __future__ import annotations

import os
import re
import sys

_CODES = {"HOLDS": "32", "REPRODUCED": "32", "VIOLATED": "1;31", "SILENT": "33"}
_WORDS = re.compile(r"\b(HOLDS|REPRODUCED|VIOLATED|SILENT)\b")


def show(text: str) -> None:
    """Print to stdout, the verdicts in color where stdout is a terminal."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = _WORDS.sub(lambda word: f"\x1b[{_CODES[word[0]]}m{word[0]}\x1b[0m", text)
    print(text)


def tell(text: str) -> None:
    """Show one line of progress on stderr; on a terminal it replaces the one before."""
    end, start = ("", "\r\x1b[K") if sys.stderr.isatty() else ("\n", "")
    print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


def hush() -> None:
    """Clear the line of progress."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
