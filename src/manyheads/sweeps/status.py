"""The status of a sweep, from its folder alone. Needs no JAX."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.door import guarded
from manyheads.sweeps.progress import clock
from manyheads.sweeps.store import CorruptPart, Store


@dataclass(frozen=True)
class Status:
    """Counts of cells of the grid, what failed and why, and the pace of the last run."""

    name: str
    folder: str
    cells: int
    finished: int
    diverged: int
    failed: int
    missing: int
    batches: int
    batches_done: int
    corrupt: tuple[str, ...]
    running: bool
    rate: float  # cells per second in the last run
    seconds_left: float
    failures: dict[str, int]  # message -> how many cells

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN: what is not known is None."""
        known = self.seconds_left < float("inf")
        return {**asdict(self), "seconds_left": self.seconds_left if known else None}

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.cells - self.missing} of {self.cells} cells done "
            f"({self.finished} finished, {self.diverged} diverged, {self.failed} failed), {self.missing} missing",
            f"  {self.batches_done} of {self.batches} batches stored in {self.folder}",
        ]
        if self.running:
            pace = (
                f" at {self.rate:.3g} cells/s, {clock(self.seconds_left)} left"
                if self.rate > 0
                else ""
            )
            lines.append(f"  running{pace}")
        elif self.missing:
            lines.append(
                "  not running; rerun `manyheads sweep` with the same spec and folder to resume"
            )
        lines += [
            f"  corrupt: {name} (its cells count as missing and will run again)"
            for name in self.corrupt
        ]
        lines += [
            f"  failed {count} x: {message}" for message, count in list(self.failures.items())[:5]
        ]
        if len(self.failures) > 5:
            lines.append(
                f"  and {len(self.failures) - 5} other messages; see the variable `message`"
            )
        return "\n".join(lines)


@guarded()
def status(path: str | Path) -> Status:
    """Read how far the sweep in a folder is."""
    store = Store(path)
    manifest = store.manifest()
    weight = np.bincount(manifest["grid"], minlength=len(manifest["cells"])).tolist()
    counts = dict.fromkeys(("finished", "diverged", "failed"), 0)
    failures: dict[str, int] = {}
    corrupt, done = [], 0
    for batch, header in store.headers(manifest):
        if isinstance(header, CorruptPart):
            corrupt.append(store.part(batch["id"]).name)
            continue
        done += 1
        for position, cell in zip(batch["cells"], header["cells"], strict=True):
            counts[cell["status"]] += weight[position]
            if cell["status"] == "failed":
                failures[cell["message"]] = failures.get(cell["message"], 0) + weight[position]
    missing = sum(weight) - sum(counts.values())
    rate = _rate(store)
    return Status(
        name=manifest["name"],
        folder=str(path),
        cells=sum(weight),
        **counts,
        missing=missing,
        batches=len(manifest["batches"]),
        batches_done=done,
        corrupt=tuple(corrupt),
        running=store.is_locked(),
        rate=rate,
        seconds_left=missing / rate if rate > 0 else float("nan"),
        failures=dict(sorted(failures.items(), key=lambda item: -item[1])),
    )


def _rate(store: Store) -> float:
    events = store.journal()
    begun = max((i for i, event in enumerate(events) if event["event"] == "run"), default=None)
    if begun is None:
        return 0.0
    done = [event for event in events[begun:] if event["event"] == "done"]
    seconds = done[-1]["time"] - events[begun]["time"] if done else 0.0
    return sum(event.get("cells", 1) for event in done) / seconds if seconds > 0 else 0.0


def time_spent(paths: Iterable[str | Path]) -> tuple[float, float]:
    """Seconds that some sweeps took: on the clock, as their journals say, and of computing, summed over workers.

    Times at which none of them ran do not count, and those at which several ran count once.
    """
    spans, computing = [], 0.0
    for path in paths:
        store = Store(path)
        begun = None
        for event in store.journal():
            if event["event"] == "run":
                begun = event["time"]
            elif event["event"] == "done" and begun is not None:
                spans.append((begun, event["time"]))
        for _, header in store.headers(store.manifest()):
            if not isinstance(header, CorruptPart):
                computing += sum(cell["seconds"] for cell in header["cells"])
    elapsed, last = 0.0, float("-inf")
    for begun, ended in sorted(spans):
        elapsed += max(0.0, ended - max(begun, last))
        last = max(last, ended)
    return elapsed, computing
