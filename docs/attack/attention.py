"""Self-attention is Lipschitz.

False for every constant: tokens that are far apart make the weights of a third token change arbitrarily fast (Kim,
Papamakarios, Mnih, "The Lipschitz constant of self-attention", ICML 2021). A bound on the tokens has to enter.
"""

import jax
import jax.numpy as jnp

import manyheads as mh


def first_output(x):
    """Self-attention at the first of several scalar tokens."""
    return jax.nn.softmax(x[0] * x) @ x


lemma = mh.Statement(
    "self-attention is 10-Lipschitz",
    inputs=mh.inputs(x=mh.real(3), y=mh.real(3)),
    measured=lambda p: jnp.abs(first_output(p.x) - first_output(p.y)),
    bound=lambda p: 10 * jnp.linalg.norm(p.x - p.y),
    hypotheses={"x differs from y": lambda p: (p.x != p.y).any()},
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
