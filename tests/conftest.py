"""Settings of the test process: double precision, no silent broadcasting, reproducible examples."""

import importlib.metadata
import os
import signal

os.environ["MPLBACKEND"] = "Agg"

import contextlib
import ctypes
import gc
import re
from pathlib import Path

import hypothesis
import jax
import processes
import psutil
import pytest

# Compiling is most of the work here: these settings of XLA halve it. `make test-full` sets XLA_FLAGS to nothing, and
# so tests the programs that users get. XLA aborts on a flag that it does not know, and some come and go.
flags = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("XLA_FLAGS", " ".join(flags))

signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # workers of xdist ignore Ctrl-C; some tests press it
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

processes.mark_session()

# Bytes. Forgotten programs are compiled again by the next module, so a large machine keeps more of them; the heaviest
# module adds about 1000 MiB to this, and two workers run side by side.
MUCH_MEMORY = max(1000 * 2**20, psutil.virtual_memory().total // 8)

# Longest first: a long file that starts last leaves the other worker idle. `make test` keeps this order.
LONG_FILES = (
    "theory/test_verify.py",
    "theory/deora2023/test_planner.py",
    "sweeps/test_cluster.py",
    "test_docs.py",
    "sweeps/test_kill.py",
    "cli/test_theory_commands.py",
    "studies/test_run.py",
    "sweeps/test_equality.py",
    "training/test_devices.py",
    "training/test_until.py",
    "training/test_hosts.py",
    "sweeps/test_interrupt.py",
    "studies/kit/test_catalog.py",
    "theory/manyheads2026/test_before.py",
    "model/test_plugin.py",
    "theory/deora2023/test_carried.py",
)


def pytest_collection_modifyitems(items):
    """Order the files for two workers; the order within a file stays."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten():
    """JAX keeps every program that was compiled; drop them after a module that leaves much memory in use.

    The allocator keeps what is freed in arenas of the compiler's threads, and has to be told to give it back.
    """
    yield
    if psutil.Process().memory_info().rss > MUCH_MEMORY:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def no_process_is_left():
    """A test that starts processes ends them, those that they started included."""
    before = processes.ever_started()
    held = set() if before is not None else set(processes.left_behind())
    yield
    after = processes.ever_started()
    if after is not None and after == before:
        return
    with contextlib.suppress(AssertionError):
        processes.wait_until(lambda: not processes.left_behind(held), limit=120)
    left = processes.left_behind(held)
    for number in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    assert not left, f"processes are left: {left}"


@pytest.fixture
def start():
    """Start a command in a process group of its own, which is killed after the test."""
    with processes.processes() as starting:
        yield starting


@pytest.fixture(scope="session")
def example_study(tmp_path_factory):
    """The study of docs/studies.md as a file of its own."""
    text = (Path(__file__).parent.parent / "docs" / "studies.md").read_text()
    path = tmp_path_factory.mktemp("own") / "example_study.py"
    path.write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    return path
