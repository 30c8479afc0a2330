"""Pinsker: twice the squared total variation is at most the divergence.

True, and 2 is the best constant: it is approached by two nearly equal fair coins. Both sides vanish there, and the
search keeps away from the inputs at which rounding decides.
"""

import jax.numpy as jnp

import manyheads as mh


def divergence(p, q):
    return jnp.sum(jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0) / q), 0.0))


lemma = mh.Statement(
    "twice the squared total variation is at most the divergence",
    inputs=mh.inputs(p=mh.theory.probabilities(3), q=mh.theory.probabilities(3)),
    measured=lambda p: jnp.sum(jnp.abs(p.p - p.q)) ** 2 / 2,
    bound=lambda p: divergence(p.p, p.q),
    hypotheses={"q is positive": lambda p: jnp.min(p.q) > 0},
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
