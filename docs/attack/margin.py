"""On separable data the gradient is at least the margin times the mean slope.

The step behind every rate of normalized descent (folklore). True, and reached by equal examples. The margin is a
hypothesis with a size: inputs that miss it are pushed back while they are climbed.
"""

import jax
import jax.numpy as jnp

import manyheads as mh


def slopes(p):
    return jax.nn.sigmoid(-p.X @ p.w)  # of the logistic loss; labels are part of X


lemma = mh.Statement(
    "the gradient's norm is at least the margin times the mean slope",
    inputs=mh.inputs(X=mh.real(4, 3), w=mh.real(3)),
    measured=lambda p: jnp.linalg.norm(slopes(p) @ p.X / 4),
    bound=lambda p: jnp.mean(slopes(p)),
    hypotheses={"margin 1 along e1": lambda p: (jnp.min(p.X[:, 0]), 1.0)},
    sense=">=",
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
