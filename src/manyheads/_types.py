"""Names of array types."""

import jax
import numpy as np

AnyArray = jax.Array | np.ndarray  # a compiled function takes either
