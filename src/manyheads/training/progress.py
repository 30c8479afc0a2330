"""A live bar on standard error: steps done, loss, steps per second, time left."""

from __future__ import annotations


class Bar:
    """A progress bar that costs nothing when it is off, and is drawn a few times a second."""

    def __init__(self, total: int, start: int = 0, on: bool = True, label: str = "training"):
        self.total, self.start, self.on, self.label = total, start, on, label

    def __enter__(self) -> Bar:
        if self.on:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.completed:,}/{task.total:,}"),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                refresh_per_second=5,
            )
            self._progress.start()
            self._task = self._progress.add_task(
                self.label, total=max(self.total, 1), completed=self.start, note=""
            )
        return self

    def show(
        self, done: int, loss: float | None = None, unit: str = "steps", more: str = ""
    ) -> None:
        if not self.on:
            return
        done = min(done, self.total)
        speed = self._progress.tasks[self._task].speed
        note = ", ".join(
            part for part in ("" if loss is None else f"loss {loss:.4g}", more) if part
        )
        if speed:
            note += f"  {speed:,.0f} {unit}/s" if speed >= 10 else f"  {speed:.2g} {unit}/s"
        self._progress.update(self._task, completed=done, note=note.strip())

    def __exit__(self, *_) -> None:
        if self.on:
            self._progress.stop()
