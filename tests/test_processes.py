"""The check after every test finds what the test has started, and the fixture ends it."""

import os
import signal
import subprocess

import psutil
import pytest
from processes import (
    descendants,
    ever_started,
    left_behind,
    processes,
    wait_for_the_end,
    wait_until,
)


def orphan(**options):
    """The id of a process whose parent, a shell, has ended."""
    shell = subprocess.run(
        ["sh", "-c", "sleep 1000 >&- 2>&- & echo $!"], stdout=subprocess.PIPE, text=True, **options
    )
    return int(shell.stdout)


def test_an_orphan_is_found_and_one_that_was_there_before_is_not():
    before = ever_started()
    number = orphan()
    try:
        assert ever_started() != before or before is None
        assert left_behind() == {number: "sleep 1000"}
        assert left_behind({number}) == {}
    finally:
        os.kill(number, signal.SIGKILL)
    wait_until(lambda: not left_behind(), what="end of the orphan")


def test_a_process_that_nobody_waited_for_is_found():
    process = subprocess.Popen(["true"])
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert ever_started() is None and left_behind() == {process.pid: "not waited for"}
    process.wait()
    assert left_behind() == {}


def test_the_whole_group_is_ended_when_a_test_fails():
    with pytest.raises(ZeroDivisionError), processes() as start:
        process = start(["sh", "-c", "sleep 1000 & sleep 1000"], stdout=subprocess.PIPE)
        wait_until(lambda: len(descendants(process)) == 2, process, "two children")
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL and process.stdout.closed
    wait_for_the_end(process)
    assert left_behind() == {}


def test_waiting_ends_with_the_process_or_the_limit():
    with processes() as start:
        process = start(["sh", "-c", "exit 3"])
        with pytest.raises(AssertionError, match=r"the process ended \(3\) before the event"):
            wait_until(lambda: False, process)
    with pytest.raises(AssertionError, match="no miracle in 0 seconds"):
        wait_until(lambda: False, what="miracle", limit=0)
