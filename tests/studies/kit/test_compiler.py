import os
import subprocess
import sys

import pytest

from manyheads.studies.kit import compiler

CODE = """
from manyheads.studies.kit.compiler import compile_quickly
compile_quickly()
import os, jax.numpy as jnp
print(float(jnp.sum(jnp.ones(3))), os.environ["XLA_FLAGS"])
"""


def test_xla_knows_the_flags():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, timeout=600
    )
    assert done.stdout == f"3.0 {compiler.quick_flags()}\n", done.stderr


def test_the_users_flags_win(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    compiler.compile_quickly()
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    monkeypatch.setenv("XLA_FLAGS", "")
    compiler.compile_quickly()
    assert os.environ["XLA_FLAGS"] == ""


@pytest.mark.parametrize(("version", "emitters"), [("0.10.2", True), ("0.11.0", False)])
def test_flags_that_come_and_go_are_for_their_version(monkeypatch, version, emitters):
    monkeypatch.setattr(compiler.importlib.metadata, "version", lambda name: version)
    assert ("fusion_emitters" in compiler.quick_flags()) == emitters
