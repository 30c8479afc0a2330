"""Ctrl-C while a command sets up: the process ends at once, with one line."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

INTERRUPTED = 130


@contextmanager
def ends_at_once() -> Generator[None, None, None]:
    """For imports and set-up, when there is nothing to keep yet.

    A KeyboardInterrupt there may come out as another error, or be swallowed by a callback of a library.
    """
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(INTERRUPTED)
