"""Settings of the test process: double precision, no silent broadcasting, reproducible examples."""

import os

os.environ["MPLBACKEND"] = "Agg"

import hypothesis
import jax

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
