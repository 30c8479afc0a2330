"""LayerNorm is 1/σ(x)-Lipschitz.

Its Jacobian at x has the norm 1/σ(x), and so the distance of two outputs is often bounded with the σ of one of the inputs
(folklore). False, by a factor of up to 2: the smaller σ of the two is needed.
"""

import jax.numpy as jnp

import manyheads as mh


def normalized(x):
    return (x - jnp.mean(x)) / jnp.std(x)


lemma = mh.Statement(
    "LayerNorm is Lipschitz with one over the deviation of one of the inputs",
    inputs=mh.inputs(x=mh.real(6), y=mh.real(6)),
    measured=lambda p: jnp.linalg.norm(normalized(p.x) - normalized(p.y)),
    bound=lambda p: jnp.linalg.norm(p.x - p.y) / jnp.std(p.x),
    hypotheses={"neither is constant": lambda p: (jnp.std(p.x) > 0) & (jnp.std(p.y) > 0)},
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
