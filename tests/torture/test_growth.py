"""A short run of long use; `make torture ARGS=growth` makes the long one."""

import pytest

from torture import growth
from torture.test_kills import short_run


@pytest.mark.full
def test_nothing_grows(tmp_path):
    done = short_run("growth", tmp_path, growth.TRIALS, GROWTH_COUNT="80")
    assert done.returncode == 0, done.stdout + done.stderr


def test_growth_is_noticed(tmp_path, monkeypatch):
    found = growth.report((100.0, 7), (250.0, 8))
    assert found == {
        "megabytes after warm-up": 100,
        "megabytes added": 150.0,
        "descriptors added": 1,
    }
    kept = []
    grown = growth.grown(lambda number: kept.append(bytearray(2**22)), 12, warm=2)
    assert grown["megabytes added"] > 30 and grown["descriptors added"] == 0
