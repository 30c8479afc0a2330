"""A live bar on standard error: steps done, loss, time left. It is drawn a few times a second where it is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar

_wanted = ContextVar("a bar is wanted", default=False)


@contextlib.contextmanager
def progress(on: bool = True) -> Generator[None, None, None]:
    """Inside, `train` and the long measurements show a bar on standard error."""
    before = _wanted.set(on)
    try:
        yield
    finally:
        _wanted.reset(before)


class Bar:
    """The bar of one piece of work; costs nothing where none is wanted."""

    def __init__(self, label: str, total: int, done: int = 0):
        self.label, self.total, self.done = label, total, done

    def __enter__(self) -> Bar:
        self.bar = None
        if _wanted.get():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            note = TextColumn("{task.fields[note]}", markup=False)
            parts = ("{task.description}", BarColumn(), MofNCompleteColumn(), note)
            self.bar = Progress(*parts, TimeRemainingColumn(), console=Console(stderr=True))
            self.task = self.bar.add_task(
                self.label, total=max(self.total, 1), completed=self.done, note=""
            )
            self.bar.start()
        return self

    def show(self, done: int, note: str = "") -> None:
        """Say how much is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=min(done, self.total), note=note)

    def __exit__(self, *_) -> None:
        if self.bar is not None:
            self.bar.stop()
