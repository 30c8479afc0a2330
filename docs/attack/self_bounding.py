"""The slope of a smooth loss is bounded by its root: l'(z)² <= c l(z).

For a nonnegative loss with l'' <= H one may take c = 2H (folklore; 4H is often written), so 1/2 for the logistic loss.
For this loss less is enough, and the search says how much less.
"""

import jax

import manyheads as mh

lemma = mh.Statement(
    "the squared slope of the logistic loss is at most c times the loss",
    inputs=mh.inputs(z=mh.real()),
    measured=lambda p: jax.nn.sigmoid(-p.z) ** 2,
    bound=lambda p: p.c * jax.nn.softplus(-p.z),
)
settings = {"constant": "c"}

if __name__ == "__main__":
    print(mh.verify(lemma, **settings))
