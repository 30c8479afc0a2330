"""Softmax is 1-Lipschitz.

The constant 1 is copied from paper to paper (folklore). The Jacobian diag(s) - s sᵀ is a covariance of unit vectors, so
its norm is at most 1/2, and the search finds that 1/2 is what survives: every bound that uses 1 can be halved.
"""

import jax
import jax.numpy as jnp

import manyheads as mh

lemma = mh.Statement(
    "softmax is c-Lipschitz in l2",
    inputs=mh.inputs(x=mh.real(5), y=mh.real(5)),
    measured=lambda p: jnp.linalg.norm(jax.nn.softmax(p.x) - jax.nn.softmax(p.y)),
    bound=lambda p: p.c * jnp.linalg.norm(p.x - p.y),
    hypotheses={"x differs from y": lambda p: (p.x != p.y).any()},
)
settings = {"constant": "c"}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
