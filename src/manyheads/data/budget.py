"""What a call costs, said before it begins: more memory than there is, and more than half a day, are refused.

Estimates of memory count the arrays that cannot be avoided, those of time the arithmetic at a speed
that few machines reach, so what is refused would not have finished. Two environment variables raise
the limits.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import jax

MEMORY, HOURS = (
    "MANYHEADS_MEMORY",
    "MANYHEADS_HOURS",
)  # GiB that may be used, hours that a call may take
USUAL_HOURS = 12.0
FEWER = "pass fewer sequences, dataset.subset(range(1000)) say"
# least time of a step, however small
STEP_SECONDS = 3e-5
FLOP, ENTRY = (
    {"cpu": 2e-11, "gpu": 2e-14},
    {"cpu": 1e-9, "gpu": 1e-12},
)  # seconds of a core, of a GPU, at best


def fits_memory(what: str, size: float, remedy: str) -> None:
    """Refuse arrays of `size` bytes that this machine has no room for; `remedy` says what to pass instead."""
    there = available_memory()
    if not size <= there:
        raise ValueError(
            f"{what} needs about {size / 2**30:.3g} GiB, and {there / 2**30:.3g} GiB are free; "
            f"{remedy} "
            f"({MEMORY}=N allows N GiB)."
        )


def fits_time(what: str, seconds: float, remedy: str) -> None:
    """Refuse work that takes at least `seconds`, if that is more than half a day; `remedy` is what to pass instead."""
    hours = _told(HOURS, USUAL_HOURS)
    if not seconds <= 3600 * hours:
        raise ValueError(
            f"{what} takes at least {duration(seconds)}; {remedy} ({HOURS}=N allows N hours)."
        )


def fits_unpacked(path: Path) -> None:
    """Refuse a ZIP archive that would unpack to more than there is room for; a file that is none is left to others."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except Exception:  # not an archive, or a damaged one
        return
    fits_memory(f"{path} unpacked", size, "is it the right file?")


def available_memory() -> float:
    """Bytes that can be allocated without swapping: what the user allows, or the system says is free."""
    allowed = _told(MEMORY, 0.0) * 2**30
    if allowed:
        return allowed
    there = total_memory()
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            there = min(there, 1024.0 * int(line.split()[1]))
    return there


def total_memory() -> float:
    """Bytes of memory of this machine, or of the container that this process runs in."""
    there = float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    limits = (line for line in _lines("/sys/fs/cgroup/memory.max") if line.strip().isdigit())
    return min([there, *map(float, limits)])


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def descent_seconds(
    num_steps: float, num_examples: int, num_tokens: int, dim: int, num_classes: int
) -> float:
    """The least time of that many steps of descent.

    A step is n H (4 T d^2 + 8 T^2 d) operations for H different heads, and passes over n H T (T +
    d) entries.
    """
    n, H, T, d = float(num_examples), num_classes, num_tokens, dim
    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    seconds = n * H * (FLOP[kind] * (4.0 * T * d * d + 8.0 * T * T * d) + ENTRY[kind] * T * (T + d))
    return num_steps * max(STEP_SECONDS, seconds / (processors() if kind == "cpu" else 1))


def duration(seconds: float) -> str:
    """A time as people say it."""
    for size, unit in ((365.25 * 86400, "years"), (86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:.3g} s"


def _told(variable: str, usual: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        value = float(text) if text else usual
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ValueError(
            f"{variable}={text!r} must be a number >= 0; unset it, or set it to 64, say."
        )
    return value


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:  # another system than Linux
        return []
