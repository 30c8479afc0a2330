"""Settings of the test process: double precision, no silent broadcasting, programs that are compiled once."""

import gc
import importlib.metadata
import os
from pathlib import Path

import hypothesis
import psutil
import pytest

HERE = Path(__file__).parent
os.environ["MPLBACKEND"] = "Agg"
# Compiling is most of the work here: these settings of XLA halve it. `make test-full` sets XLA_FLAGS to nothing, and
# so tests the programs that users get. XLA aborts on a flag that it does not know, and some come and go.
flags = ["--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("XLA_FLAGS", " ".join(flags))
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(HERE.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

import jax  # noqa: E402  it reads the environment when it is imported

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
few = {"max_examples": 20, "deadline": None, "derandomize": True, "database": None}
calm = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("manyheads", **few, suppress_health_check=calm)
hypothesis.settings.load_profile("manyheads")

# Bytes. Programs that are dropped come back from the cache on disk, so that this need not be much.
MUCH_MEMORY = max(2000 * 2**20, psutil.virtual_memory().total // 8)


# Longest first: a long file that starts last leaves the other worker idle. `make test` keeps this order.
LONG = (
    "test_verify",
    "test_docs",
    "test_studies",
    "test_forecast",
    "test_devices",
    "test_processes",
)


def pytest_collection_modifyitems(items):
    """Order the files for two workers; the order within a file stays."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="module", autouse=True)
def programs_are_forgotten():
    """JAX keeps every program in memory: drop them after a module that leaves much of it in use."""
    yield
    if psutil.Process().memory_info().rss > MUCH_MEMORY:
        jax.clear_caches()
        gc.collect()
