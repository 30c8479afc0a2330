"""Deferred Ctrl-C: stop between compiled stretches; and work that counts only if nothing interrupted it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any


class CtrlC:
    """While open, the first Ctrl-C is only noted in `pressed`; a second one raises KeyboardInterrupt as usual.

    An exception raised at any point can be swallowed (JAX installs a callback of the garbage collector) or fall into
    the writing of a file. Whoever returns a result that says "interrupted" sets `answered`; a Ctrl-C without an answer,
    or inside an open `AllOrNothing`, becomes a KeyboardInterrupt on leaving. Outside the main thread, or where the
    program has its own handler, nothing changes.
    """

    def __init__(self) -> None:
        self.pressed = self.answered = False

    def __enter__(self) -> CtrlC:
        self._before = _handler()
        self._around = getattr(self._before, "__self__", None)
        if not isinstance(self._around, AllOrNothing):
            self._around = None
        self._ours = _default(self._before)
        self.pressed = self._around is not None and self._around.pressed
        if self._ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, self._before)
        if self._around is not None:
            self._around.pressed |= self.pressed
            unanswered = self._around.pressed
        else:
            unanswered = self.pressed and not self.answered
        if unanswered and kind is None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            signal.default_int_handler(number, frame)
        self.pressed = True


class AllOrNothing:
    """Work whose result counts only if no Ctrl-C came while it was done: leaving it then raises KeyboardInterrupt.

    So a result that some part of the work cut short, or an error that a KeyboardInterrupt was turned into, is not kept.
    """

    def __init__(self) -> None:
        self.pressed = False

    def __enter__(self) -> AllOrNothing:
        self._before = _handler()
        if self._before is not None:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self.pressed:
            raise KeyboardInterrupt from None

    def _note(self, number: int, frame: FrameType | None) -> None:
        assert self._before is not None
        try:
            self._before(number, frame)
        except KeyboardInterrupt:
            self.pressed = True
            raise


@contextlib.contextmanager
def deaf_children() -> Generator[None, None, None]:
    """Processes that are started inside do not hear Ctrl-C, not even while they start; this one hears it afterwards."""
    resource_tracker.ensure_running()  # the start of it, which comes with the first process, would undo the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def same_ctrl_c() -> Generator[None, None, None]:
    """What Ctrl-C does is the same afterwards, whatever happens inside."""
    before = _handler()
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _handler() -> Callable[[int, FrameType | None], Any] | None:
    """What is called for Ctrl-C in this thread, if anything is."""
    if threading.current_thread() is not threading.main_thread():
        return None
    found = signal.getsignal(signal.SIGINT)
    return found if callable(found) else None


def _default(handler: Any) -> bool:
    """Whether a handler is Python's own, or asks it."""
    while isinstance(around := getattr(handler, "__self__", None), AllOrNothing):
        handler = around._before
    return handler is signal.default_int_handler
