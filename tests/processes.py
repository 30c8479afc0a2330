"""Processes that tests start: waited for by events, never by seconds, and ended whatever happens to the test."""

import contextlib
import os
import signal
import subprocess
import time

import psutil

LIMIT = 600.0  # seconds; far beyond what a busy machine needs, so that only a test that hangs reaches it
LOOK_EVERY = 0.05


def wait_until(condition, process=None, what="the event", limit=LIMIT):
    """Wait until `condition()` is true; fail if `process` ends before, or after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert process is None or process.poll() is None, (
            f"the process ended ({process.returncode}) before {what}"
        )
        assert time.monotonic() < deadline, f"no {what} in {limit:g} seconds"
        time.sleep(LOOK_EVERY)


def descendants(process):
    """The processes below one that is running."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [
            child for child in psutil.Process(process.pid).children(recursive=True) if _alive(child)
        ]
    return []


def wait_for_the_end(process):
    """Wait for a process and all others of its group."""
    process.wait(LIMIT)
    wait_until(lambda: not _group(process.pid), what=f"end of the processes of group {process.pid}")


def end(process):
    """Kill a process that leads a group, and the group with it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()


@contextlib.contextmanager
def processes():
    """A function that starts commands, each in a group of its own; the groups are killed at the end."""
    started = []

    def start(command, **options):
        process = subprocess.Popen(command, start_new_session=True, **options)
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            end(process)


def _group(number):
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == number and _alive(process):
                members.append(process)
    return members


def _alive(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
