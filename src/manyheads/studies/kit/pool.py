"""Worker processes that end with the process that started them, however that one ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def worker_pool(
    workers: int, begin: Callable[..., None] | None = None, *arguments: Any
) -> Generator[ProcessPoolExecutor]:
    """A pool whose workers call `begin(*arguments)` first. An error or Ctrl-C ends them in the middle of their work."""
    theirs, ours = SPAWN.Pipe(duplex=False)
    with theirs, ProcessPoolExecutor(workers, SPAWN, _begin, (theirs, begin, arguments)) as pool:
        with ours:  # closed before the pool waits for its workers
            yield pool
            pool.shutdown()


def _begin(
    driver: Connection, begin: Callable[..., None] | None, arguments: tuple[Any, ...]
) -> None:
    """In a worker, before its first task: exit when the driver does."""

    def watch() -> None:
        driver.poll(None)  # until the driver closes its end or dies
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if begin is not None:
        begin(*arguments)
