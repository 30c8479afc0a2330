"""Softmax is co-coercive: ‖s(x) - s(y)‖² <= c ⟨s(x) - s(y), x - y⟩.

For the gradient of a convex function the best c is its Lipschitz constant (Baillon and Haddad), so c = 1/2 here, where
c = 1 is often copied together with the Lipschitz constant 1.
"""

import jax
import jax.numpy as jnp

import manyheads as mh


def change(p):
    return jax.nn.softmax(p.x) - jax.nn.softmax(p.y)


lemma = mh.Statement(
    "softmax is co-coercive with c",
    inputs=mh.inputs(x=mh.real(4), y=mh.real(4)),
    measured=lambda p: jnp.sum(change(p) ** 2),
    bound=lambda p: p.c * change(p) @ (p.x - p.y),
    hypotheses={"x differs from y": lambda p: (p.x != p.y).any()},
)
settings = {"constant": "c"}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
