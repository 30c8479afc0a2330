"""The same arithmetic everywhere: thread counts, the compilation cache, and facts about the worker.

XLA splits sums over its threads, so their number changes the last bits. Its pool has `NPROC` threads when that variable
is set before JAX first computes, and one per processor otherwise.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import sys
import warnings
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import platformdirs

from manyheads.data.budget import total_memory

PACKAGES = ("manyheads", "jax", "jaxlib", "numpy", "scipy", "equinox", "optax")
LINUX_THREADS = Path("/proc/self/task")
POOL_THREAD = "tf_XLAEigen"  # as the operating system names the threads of XLA's pool


def worker_environment(threads: int) -> dict[str, str]:
    """What must be set in a worker before Python starts."""
    blas = {
        name: str(threads)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    return {"NPROC": str(threads), "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **blas}


def start_backend(threads: int) -> None:
    """Start JAX in this process with this many threads, unless it is already running."""
    wanted = worker_environment(threads)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        import jax

        jax.devices()  # starts the backend, which reads the variables
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def pool_threads() -> int | None:
    """Threads of XLA's pool in this process; None if the operating system does not show them."""
    if not LINUX_THREADS.is_dir():
        return None
    count = 0
    for task in LINUX_THREADS.iterdir():
        with contextlib.suppress(OSError):
            count += (task / "comm").read_text().startswith(POOL_THREAD)
    return count


@contextlib.contextmanager
def working(threads: int, cache: str | None) -> Generator[None, None, None]:
    """Inside, linear algebra outside JAX uses `threads` threads, and compiled programs are kept in `cache`."""
    import jax

    with _blas().limit(limits=threads), _compilation_cache(jax, cache):
        yield


@functools.cache
def _blas() -> Any:
    """The linear algebra libraries of this process; finding them takes a while, so once."""
    import scipy.linalg  # noqa: F401  (brings its own library, which must be found too)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def _compilation_cache(jax: Any, folder: str | None) -> Generator[None, None, None]:
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    if folder is None or before[names[0]]:  # turned off, or the user has one of their own
        yield
        return
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    for name, value in zip(names, (folder, 0.0), strict=True):
        jax.config.update(name, value)
    try:
        with (
            warnings.catch_warnings()
        ):  # an entry that a killed process left half written is compiled again
            warnings.filterwarnings("ignore", message="Error reading persistent compilation cache")
            yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        reset_cache()


def cache_folder(threads: int) -> str:
    """Where compiled programs are kept, apart for every kind of processor and thread count."""
    kind = hashlib.sha256(f"{_processor()} {version('jaxlib')}".encode()).hexdigest()[:12]
    return str(platformdirs.user_cache_path("manyheads") / "compiled" / f"{kind}-{threads}")


def _processor() -> str:
    """The kind of processor and its instruction sets, as far as known."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        wanted = {
            line
            for line in lines
            if line.startswith(("model name", "flags", "Features", "CPU part"))
        }
        return "\n".join(sorted(wanted)) or platform.processor()
    return f"{platform.machine()} {platform.processor()}"


@functools.cache
def machine() -> str:
    """This machine in words: its processor, how many there are, and its memory."""
    named = re.search(r"^model name\s*:\s*(.+)$", _processor(), re.MULTILINE)
    kind = named[1] if named else platform.processor() or platform.machine()
    return f"{' '.join(kind.split())}, {os.cpu_count()} processors, {total_memory() / 2**30:.0f} GiB of memory"


@contextlib.contextmanager
def on_device(device: str | None) -> Generator[None, None, None]:
    """Inside, JAX computes on the first device of this kind, or on the default device if it is one."""
    import jax

    from manyheads.training.devices import choose_device

    if device is None:
        yield
        return
    with jax.default_device(choose_device(device)):
        yield


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def worker_facts(threads: int, device: str | None = None, git: str = "") -> dict[str, Any]:
    """Facts about a worker: host, machine, kind of device, threads, versions, and the git state of the code."""
    import jax

    seen = pool_threads()
    return dict(
        host=platform.node(),
        machine=machine(),
        process=os.getpid(),
        device=jax.devices(device)[0].device_kind,
        threads=seen or threads,
        versions=versions(),
        git=git,
    )


@functools.cache
def git_state(folder: Path) -> str:
    """The commit of the checkout that holds a folder, with "+ changes" where files differ from it; "" outside one.

    Cached: what a process has imported does not change when files do.
    """
    import subprocess

    def git(*words: str) -> str | None:
        command = ["git", "-C", str(folder), *words]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, text=True, timeout=10)
            return done.stdout.strip() if done.returncode == 0 else None
        return None

    commit = git("rev-parse", "HEAD")
    if not commit:
        return ""
    return f"{commit} + changes" if git("status", "--porcelain", "--untracked-files=no") else commit


def provenance(function: str) -> dict[str, Any]:
    """What produced a sweep: versions, and the git state of the code that its cells run."""
    module = sys.modules.get(function.partition(":")[0])
    file = getattr(module, "__file__", None) or __file__
    return dict(versions=versions(), git=git_state(Path(file).resolve().parent))
