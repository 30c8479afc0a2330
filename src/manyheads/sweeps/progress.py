"""How far a sweep is: cells done, failed, rate, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class State:
    """Counts of cells; `before` were done when this run began."""

    total: int
    before: int = 0
    finished: int = 0
    diverged: int = 0
    failed: int = 0
    seconds: float = 0.0

    @property
    def done(self) -> int:
        return self.finished + self.diverged + self.failed

    @property
    def rate(self) -> float:
        """Cells per second in this run."""
        return (self.done - self.before) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float:
        """Seconds to go at this rate."""
        return (self.total - self.done) / self.rate if self.rate > 0 else float("nan")

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} cells done"]
        parts += [
            f"{count} {word}"
            for count, word in ((self.diverged, "diverged"), (self.failed, "failed"))
            if count
        ]
        if self.rate > 0:
            parts.append(
                f"{self.rate:.3g} cells/s"
                if self.rate >= 0.1
                else f"{60 * self.rate:.3g} cells/min"
            )
            if self.done < self.total:
                parts.append(f"{clock(self.left)} left")
        return ", ".join(parts)


def clock(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"


class Reporter:
    """Counts cells and shows progress: True (a bar on standard error), False, or a function of a State."""

    def __init__(self, total: int, progress: bool | Callable[[State], Any]):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.state, self.began, self.last = State(total), time.monotonic(), 0.0
        self.tell = progress if callable(progress) else None
        self.shown = progress is True
        self.console = Console(stderr=True)
        self.live = self.shown and self.console.is_terminal
        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        self.bar = Progress(
            *columns, console=self.console, refresh_per_second=5, disable=not self.live
        )
        self.task = self.bar.add_task("", total=max(total, 1))
        self.bar.start()

    def say(self, line: str) -> None:
        """A message for those who asked for progress."""
        if self.shown:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def warn(self, line: str) -> None:
        """A message for everybody."""
        if self.shown:
            self.say(line)
        else:
            print(f"note: {line}", file=sys.stderr, flush=True)

    def add(self, statuses: list[str], *, before: bool = False) -> None:
        """Count cells that are done, or were done before this run."""
        s, seconds = self.state, time.monotonic() - self.began
        counts = {
            name: getattr(s, name) + statuses.count(name)
            for name in ("finished", "diverged", "failed")
        }
        self.state = replace(s, **counts, before=s.before + before * len(statuses), seconds=seconds)
        if before:
            return
        if self.tell is not None:
            self.tell(self.state)
        if self.live:
            self.bar.update(self.task, completed=self.state.done, description=str(self.state))
        elif self.shown and (
            time.monotonic() - self.last > 10 or self.state.done == self.state.total
        ):
            self.last = time.monotonic()
            print(self.state, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar down."""
        self.bar.stop()
