"""Settings of the test process: double precision, no silent broadcasting, reproducible examples."""

import os
import signal

os.environ["MPLBACKEND"] = "Agg"

import re
from pathlib import Path

import hypothesis
import jax
import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of xdist ignore Ctrl-C; some tests press it
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile(
    "manyheads",
    deadline=None,  # the first example of a shape compiles
    derandomize=True,
    database=None,
    max_examples=20,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("manyheads")


@pytest.fixture(scope="session")
def example_study(tmp_path_factory):
    """The study of docs/studies.md as a file of its own."""
    text = (Path(__file__).parent.parent / "docs" / "studies.md").read_text()
    path = tmp_path_factory.mktemp("own") / "example_study.py"
    path.write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    return path
