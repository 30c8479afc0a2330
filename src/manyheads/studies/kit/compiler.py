"""XLA settings for short runs: at quick scale much of the time is spent compiling, not computing.

Results differ from those of the usual settings by rounding only. A user's own XLA_FLAGS are left alone.
"""

from __future__ import annotations

import importlib.metadata
import os

FLAGS = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")
FLAGS_OF_0_10 = (
    "--xla_cpu_use_fusion_emitters=false",
)  # XLA aborts on a flag that it does not know


def quick_flags() -> str:
    """Settings with which XLA compiles faster, for the version of JAX that is installed."""
    emitters = FLAGS_OF_0_10 if importlib.metadata.version("jaxlib").startswith("0.10.") else ()
    return " ".join([*FLAGS, *emitters])


def compile_quickly() -> None:
    """Use these settings in this process; XLA must not have started, and the user's own settings win."""
    os.environ.setdefault("XLA_FLAGS", quick_flags())
