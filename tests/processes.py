"""Processes that tests start: waited for by events, never by seconds, and ended whatever happens to the test."""

import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import time

import psutil

LIMIT = 600.0  # seconds; far beyond what a busy machine needs, so that only a test that hangs reaches it
LOOK_EVERY = 0.05
SESSION = "MANYHEADS_TEST_SESSION"  # in the environment of everything that this process starts


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


def mark_session():
    """From now on, `left_behind` recognizes what this process starts, however deep, also without its parent."""
    os.environ[SESSION] = str(os.getpid())


def ever_started():
    """Changes when a process has been started and waited for; None while there is one, ended or not."""
    multiprocessing.active_children()  # waits for those that have ended
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def left_behind(before=frozenset()):
    """The processes of this session that are not in `before`: {pid: command line}."""
    own, found = os.getpid(), {}
    for process in psutil.process_iter():
        if process.pid == own or process.pid in before:
            continue
        with contextlib.suppress(psutil.Error):
            zombie = process.status() == psutil.STATUS_ZOMBIE
            if process.ppid() == own or (not zombie and process.environ().get(SESSION) == str(own)):
                line = "not waited for" if zombie else " ".join(process.cmdline())
                if (
                    "multiprocessing.resource_tracker" not in line
                ):  # one for as long as this process lives
                    found[process.pid] = line
    return found


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
