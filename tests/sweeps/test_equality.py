import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.full)])
def test_three_engines_give_the_same_bits(tmp_path, workers):
    """One of the measures depends on the number of threads (see the next test), so this fails if engines differ in it."""
    found = _run(tmp_path, workers)
    assert found["equal"] == {"here": True, "processes": True, "dask": True}
    assert set(found["threads"].values()) == {"1"}
    assert {"train_loss", "test_loss", "margin", "status", "final_test_loss", "product"} <= set(
        found["names"]
    )


def test_the_number_of_threads_does_change_bits():
    """Why every engine fixes it: the same product with one and with two threads."""
    code = (
        "import hashlib, jax, numpy as np; a = np.random.default_rng(0).normal(size=(8000, 60)).astype('float32'); "
        "print(hashlib.sha256(np.asarray(jax.jit(lambda a: a.T @ a)(a)).tobytes()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NPROC": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(digests) == 2


def _run(folder, workers) -> dict:
    script = Path(__file__).with_name("equal_engines.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(folder), str(workers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
