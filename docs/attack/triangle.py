"""The divergence obeys a triangle inequality up to a factor of 2.

False, as for every factor (folklore): the squared distances that the divergence resembles would allow 2, but the
divergence to a distribution that hardly gives a letter any mass is as large as one likes.
"""

import jax.numpy as jnp

import manyheads as mh


def divergence(p, q):
    return jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0) / q), 0.0))


lemma = mh.Statement(
    "KL(p, r) is at most 2 KL(p, q) + 2 KL(q, r)",
    inputs=mh.inputs(**{name: mh.theory.probabilities(2) for name in "pqr"}),
    measured=lambda p: divergence(p.p, p.r),
    bound=lambda p: 2 * divergence(p.p, p.q) + 2 * divergence(p.q, p.r),
    hypotheses={"q and r are positive": lambda p: jnp.minimum(p.q, p.r).min() > 0},
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
