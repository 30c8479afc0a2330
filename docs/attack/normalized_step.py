"""A normalized step of descent on a convex loss does not drive two points apart.

True for plain descent with a step of at most 2/L, and proofs of stability rest on it. For normalized descent it is false:
gradients of different length become equally long, and the difference of their directions can drive the points apart, so
stability needs another argument (folklore).
"""

import jax
import jax.numpy as jnp

import manyheads as mh

DATA = jnp.array([[1.0, 0.5], [0.3, 1.0], [1.0, -0.4]])


def stepped(w):
    gradient = -jax.nn.sigmoid(-DATA @ w) @ DATA / 3
    return w - 0.5 * gradient / jnp.linalg.norm(gradient)


lemma = mh.Statement(
    "normalized steps on the logistic loss are nonexpansive",
    inputs=mh.inputs(v=mh.real(2, norm=5.0), w=mh.real(2, norm=5.0)),
    measured=lambda p: jnp.linalg.norm(stepped(p.v) - stepped(p.w)),
    bound=lambda p: jnp.linalg.norm(p.v - p.w),
    hypotheses={"v differs from w": lambda p: (p.v != p.w).any()},
)
settings = {}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
