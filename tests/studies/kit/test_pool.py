import os
import signal
import subprocess
import sys

import pytest
from processes import wait_for_the_end, wait_until

from manyheads.studies.kit.pool import worker_pool

SLOW = """
import sys, time
from pathlib import Path
from manyheads.studies.kit.pool import worker_pool

def slow(folder, number):
    (Path(folder) / str(number)).touch()
    time.sleep(10_000)

if __name__ == "__main__":
    with worker_pool(2) as pool:
        list(pool.map(slow, [sys.argv[1]] * 2, range(2)))
"""


def test_workers_begin_as_told_and_finish_their_work(tmp_path):
    with worker_pool(2, os.chdir, tmp_path) as pool:
        own = pool.submit(os.getpid)
        found = list(pool.map(os.path.abspath, "abcde"))
    assert found == [str(tmp_path / name) for name in "abcde"] and own.result() != os.getpid()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda one: one.name
)
def test_workers_end_with_their_driver(tmp_path, start, number):
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    process = start([sys.executable, str(program), str(tmp_path)], stderr=subprocess.DEVNULL)
    wait_until(
        lambda: {"0", "1"} <= {one.name for one in tmp_path.iterdir()}, process, "the workers"
    )
    os.kill(process.pid, number)
    wait_for_the_end(process)
