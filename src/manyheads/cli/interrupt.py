"""Ctrl-C in a command: one line, and at once where there is nothing to keep or where it is pressed twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from manyheads.training.keyboard import Program

INTERRUPTED = 130
_leaving = threading.RLock()
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it


def twice_ends_at_once() -> None:
    """From now on a second Ctrl-C ends the process at once, also while it is inside a library or compiles a program.

    Python calls a handler only between two steps of the main thread; a thread of its own hears of the signal before.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    program = Program(leave)
    signal.signal(signal.SIGINT, program)
    heard, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the thread inherits it: only the main thread
    threading.Thread(target=_listen, args=(heard, program), daemon=True).start()  # gets the signal, or holds it back
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(heard: int, program: Program) -> None:
    presses = 0
    while numbers := os.read(heard, 1):
        presses += numbers[0] == signal.SIGINT
        if presses > 1 + program.repeats:
            leave()


@contextmanager
def ends_at_once() -> Generator[None, None, None]:
    """For imports and set-up, when there is nothing to keep yet.

    A KeyboardInterrupt there may come out as another error, or be swallowed by a callback of a library.
    """
    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and (
        before is signal.default_int_handler or isinstance(before, Program)
    )
    if ours:
        signal.signal(signal.SIGINT, lambda *_: leave())
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def all_is_said(code: int) -> None:
    """At the end of a command: its exit code stands, whatever is pressed while the interpreter ends."""
    if code == INTERRUPTED:
        leave("")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave(message: str = "error: interrupted\n") -> None:
    """End the process now; files are written whole or not at all, and workers follow."""
    if not _leaving.acquire(blocking=False):
        time.sleep(10)  # another thread has said it, and ends the process
    with suppress(OSError):
        os.write(2, f"{SHOW_CURSOR if os.isatty(2) else ''}{message}".encode())
    os._exit(INTERRUPTED)
