"""Ctrl-C as a wish that is looked at between stretches of steps."""

from __future__ import annotations

import signal
import threading


class CtrlC:
    """While open, the first Ctrl-C is only noted in `pressed`; a second one raises KeyboardInterrupt as usual.

    An exception raised at any point can be swallowed (JAX installs a callback of the garbage collector) or fall into
    the writing of a file. Outside the main thread, or where the program has its own handler, nothing changes.
    """

    pressed = False

    def __enter__(self) -> CtrlC:
        self._ours = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self._ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number, frame) -> None:
        if self.pressed:
            signal.default_int_handler(number, frame)
        self.pressed = True
