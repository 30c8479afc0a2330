"""A short run of the attacks by kills, in a process without threads; `make torture ARGS=kills` makes the long ones."""

import os
import subprocess
import sys

import pytest

from torture import kills


def short_run(part, out, trials, **more):
    command = [
        sys.executable,
        "-m",
        "torture",
        part,
        "--trials",
        str(trials),
        "--seed",
        "3",
        "--out",
        str(out),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.full
def test_each_kind_of_kill_once(tmp_path):
    done = short_run("kills", tmp_path, len(kills.KINDS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "attacks: " in done.stdout


def test_a_lost_result_is_noticed(tmp_path):
    victim = kills.make("here", tmp_path)
    victim.store.parts.mkdir(parents=True)
    part = victim.store.part("1")
    victim.before = {part.name: (1, 1)}
    with pytest.raises(kills.Fault) as caught:
        victim.check()
    assert caught.value.args[0] == "result lost"
    victim.before = {}
    part.write_bytes(b"half")
    with pytest.raises(kills.Fault) as caught:
        victim.check()
    assert caught.value.args[0] == "unreadable part"
