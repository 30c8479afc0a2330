"""One loss-and-gradient of ours with JAX's own settings, on all cores; answers JSON lines on standard input."""

import os
import sys
from pathlib import Path

for name in (
    "XLA_FLAGS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
):
    os.environ.pop(name, None)
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
sys.path.insert(0, str(Path(__file__).parents[1]))

import jax  # noqa: E402
from answering import serve, timed  # noqa: E402
from step_case import random_case, step_of  # noqa: E402

STATE = {}


def answer(request):
    if request["action"] == "versions":
        return {"versions": {}}
    if request["action"] == "load":
        STATE["dtype"] = request["dtype"]
        with jax.enable_x64(request["dtype"] == "float64"):
            STATE["step"] = step_of(*random_case(*request["shape"]), request["dtype"])
        return {}
    with jax.enable_x64(STATE["dtype"] == "float64"):
        return timed(lambda: jax.block_until_ready(STATE["step"]()), request["repeats"])


serve(answer)
