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
        parts += [f"{count} {word}" for count, word in ((self.diverged, "diverged"), (self.failed, "failed")) if count]
        if self.rate > 0:
            parts.append(f"{self.rate:.3g} cells/s" if self.rate >= 0.1 else f"{60 * self.rate:.3g} cells/min")
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
    """Counts, and tells: `progress` is True (a bar on standard error), False, or a function of a State."""

    def __init__(self, total: int, progress: bool | Callable[[State], Any]):
        self.state = State(total)
        self.began = time.monotonic()
        self.tell = progress if callable(progress) else None
        self.bar = _Bar(total) if progress is True else None

    def say(self, line: str) -> None:
        """A line of talk."""
        if self.bar is not None:
            self.bar.say(line)

    def warn(self, line: str) -> None:
        """A line that is shown also where nobody asked for progress."""
        if self.bar is None:
            print(f"note: {line}", file=sys.stderr, flush=True)
        else:
            self.bar.say(line)

    def add(self, statuses: list[str], *, before: bool = False) -> None:
        """Count cells that are done."""
        s = self.state
        counts = {name: getattr(s, name) + statuses.count(name) for name in ("finished", "diverged", "failed")}
        self.state = replace(
            s, **counts, before=s.before + before * len(statuses), seconds=time.monotonic() - self.began
        )
        if not before:
            self.show()

    def show(self) -> None:
        if self.tell is not None:
            self.tell(self.state)
        if self.bar is not None:
            self.bar.show(self.state)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class _Bar:
    """A live bar on a terminal; a line now and then elsewhere."""

    def __init__(self, total: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        self.last = 0.0
        columns = (BarColumn(), TextColumn("{task.description}"))
        self.progress = Progress(*columns, console=self.console, refresh_per_second=5, disable=not self.live)
        self.task = self.progress.add_task("", total=max(total, 1))
        self.progress.start()

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(self, state: State) -> None:
        if self.live:
            self.progress.update(self.task, completed=state.done, description=str(state))
        elif time.monotonic() - self.last > 10 or state.done == state.total:
            self.last = time.monotonic()
            print(state, file=sys.stderr, flush=True)

    def close(self) -> None:
        self.progress.stop()
