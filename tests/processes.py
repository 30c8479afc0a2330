"""Processes that tests start: waited for by events, never by seconds, and ended whatever happens to the test."""

import contextlib
import os
import signal
import subprocess
import time

LIMIT = 600.0  # seconds; far beyond what a busy machine needs, so that only a test that hangs reaches it
LOOK_EVERY = 0.05


def wait_until(condition, what="the event"):
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"no {what} in {LIMIT:g} seconds"
        time.sleep(LOOK_EVERY)


@contextlib.contextmanager
def processes():
    """A function that starts commands, each in a group of its own; the groups are killed at the end."""
    started = []

    def start(command, **options):
        started.append(subprocess.Popen(command, start_new_session=True, **options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait()
