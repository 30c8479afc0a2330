"""Ctrl-C in a command: print one line and exit, at once if there is nothing to save or on a second press."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

INTERRUPTED = 130
_leaving = threading.RLock()
SHOW_CURSOR = "\x1b[?25h"  # a progress bar hides it


class Program:
    """The handler of a program: the first Ctrl-C raises KeyboardInterrupt, any later one calls `leave`.

    A second exception, raised while the first one is dealt with, would end in a traceback or be swallowed. So would one
    inside a callback, where the interpreter often notices a signal: that is raised later.
    """

    def __init__(self, leave: Callable[[], Any]) -> None:
        self.leave, self.pressed, self.due, self.repeats = leave, False, False, 0

    def press(self) -> None:
        """Note a Ctrl-C; leave if it is not the first."""
        if self.due:  # the same one, a little later
            self.due = False
            return
        if self.pressed:
            self.leave()
        self.pressed = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.press()
        if not _drops_errors(frame):
            signal.default_int_handler(number, frame)
        self.due, self.repeats = True, self.repeats + 1
        later = threading.Timer(
            0.01, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
        )
        later.daemon = True
        later.start()


def _drops_errors(frame: FrameType | None) -> bool:
    """Whether an exception raised here would be printed and dropped.

    The garbage collector and weak references call back, JAX reports whatever stops the plugin of an accelerator, and
    filelock listens to audit events.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name in (
            "_xla_gc_callback",
            "__del__",
            "discover_pjrt_plugins",
            "_audit_fork_safety",
        ):
            return True
        if code.co_name == "remove" and "importlib" in code.co_filename:
            return True
        frame = frame.f_back
    return False


def twice_ends_at_once() -> None:
    """Make a second Ctrl-C end the process at once, even inside library code or a compilation.

    Python runs a signal handler only between bytecodes of the main thread; a separate thread is woken without delay.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    program = Program(leave)
    signal.signal(signal.SIGINT, program)
    heard, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # inherited by the new thread, so that only
    threading.Thread(
        target=_listen, args=(heard, program), daemon=True
    ).start()  # the main thread gets the signal
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(heard: int, program: Program) -> None:
    presses = 0
    while numbers := os.read(heard, 1):
        presses += numbers[0] == signal.SIGINT
        if presses > 1 + program.repeats:
            leave()


@contextmanager
def ends_at_once() -> Generator[None, None, None]:
    """Make Ctrl-C exit at once, for imports and setup, when there is nothing to save yet.

    A KeyboardInterrupt raised there may surface as another error or be swallowed by a library callback.
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
    """Ignore Ctrl-C from here on, so that the command's exit code is kept while the interpreter shuts down."""
    if code == INTERRUPTED:
        gc.collect()  # locks shared with workers are removed with their owners, and `leave` runs no exit handlers
        leave("")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave(message: str = "error: interrupted\n") -> None:
    """End the process now. Files are never left half written, and workers end with it."""
    if not _leaving.acquire(blocking=False):
        time.sleep(10)  # another thread has printed it and is ending the process
    with suppress(OSError):
        os.write(2, f"{SHOW_CURSOR if os.isatty(2) else ''}{message}".encode())
    os._exit(INTERRUPTED)
