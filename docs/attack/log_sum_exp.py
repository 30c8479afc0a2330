"""Log-sum-exp lies between the maximum and the maximum plus log n.

True, and log n cannot be smaller (folklore): it is reached where all entries are equal.
"""

import jax
import jax.numpy as jnp

import manyheads as mh

lemma = mh.Statement(
    "log-sum-exp exceeds the maximum by at most log n",
    inputs=mh.inputs(x=mh.real(6)),
    measured=lambda p: jax.nn.logsumexp(p.x) - jnp.max(p.x),
    bound=lambda p: jnp.log(6.0),
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
