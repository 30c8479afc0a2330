"""A local worker process: `python -m manyheads.sweeps.worker FD` takes jobs from a pipe and gives back results."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from multiprocessing.connection import Connection


def main(descriptor: int) -> None:
    """Serve jobs until the driver closes the pipe; end at once when the driver is gone."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    with Connection(descriptor) as pipe:
        from manyheads.sweeps.cell import run_batch

        with contextlib.suppress(EOFError, OSError):  # the driver has closed the pipe, or is gone
            pipe.send("ready")
            while True:
                job = pipe.recv()
                pipe.send(run_batch(job))


def _follow(driver: int) -> None:
    """End when the driver is gone; a killed driver cannot end its workers."""
    while os.getppid() == driver:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
