"""Deferred Ctrl-C: stop between compiled stretches, and discard work that was interrupted."""

from __future__ import annotations

import contextlib
import inspect
import signal
import threading
from collections.abc import Callable, Generator
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any


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


class CtrlC:
    """While active, the first Ctrl-C only sets `pressed`; a second one raises KeyboardInterrupt, or ends a program.

    An exception raised at an arbitrary point can be swallowed (JAX installs a callback in the garbage collector) or
    interrupt the writing of a file. Code that returns a result with status "interrupted" sets `answered`; an unanswered
    Ctrl-C, or one inside an active `AllOrNothing`, raises KeyboardInterrupt on exit. Outside the main thread, or if the
    program has its own handler, nothing changes.
    """

    def __init__(self) -> None:
        self.pressed = self.answered = False

    def __enter__(self) -> CtrlC:
        self._before = _handler()
        self._around = getattr(self._before, "__self__", None)
        if not isinstance(self._around, AllOrNothing):
            self._around = None
        self._root = _root(self._before)
        self._ours = self._root is signal.default_int_handler or isinstance(self._root, Program)
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
        if isinstance(self._root, Program):
            self._root.press()
        elif self.pressed:
            signal.default_int_handler(number, frame)
        self.pressed = True


class AllOrNothing:
    """Raise KeyboardInterrupt on exit if Ctrl-C was pressed inside.

    A result that was cut short, or an error that a KeyboardInterrupt was turned into, is then not kept.
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
    """Processes started inside ignore Ctrl-C, even during startup; this process receives it on exit.

    Another thread may receive the signal while it is blocked here, and Python would then call the handler here all the
    same: inside, the handler only takes a note.
    """
    resource_tracker.ensure_running()  # started with the first process otherwise, which would reset the mask
    handler, presses = _handler(), []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if handler is not None:
        signal.signal(signal.SIGINT, lambda *press: presses.append(press))
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None and presses:
            handler(signal.SIGINT, inspect.currentframe())


@contextlib.contextmanager
def same_ctrl_c() -> Generator[None, None, None]:
    """Restore the handler of Ctrl-C on exit."""
    before = _handler()
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _handler() -> Callable[[int, FrameType | None], Any] | None:
    """The Python handler of Ctrl-C, or None outside the main thread or without one."""
    if threading.current_thread() is not threading.main_thread():
        return None
    found = signal.getsignal(signal.SIGINT)
    return found if callable(found) else None


def _root(handler: Any) -> Any:
    """The handler to which one delegates."""
    while isinstance(around := getattr(handler, "__self__", None), AllOrNothing):
        handler = around._before
    return handler
