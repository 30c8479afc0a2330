"""The loss-and-gradient that bench_step.py times, for given sizes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads import Dataset, MultiHead
from manyheads.model.gradient import head_weights, loss_and_gradient, prepare


def random_case(n, T, d, classes, heads=None) -> tuple[MultiHead, Dataset]:
    """A model and data of these sizes; `heads` are shared out among the classes, one each unless given."""
    rng = np.random.default_rng(0)
    X = 2 * rng.standard_normal((n, T, d)) / np.sqrt(d)
    W, U = (
        rng.standard_normal((classes, d, d)) / np.sqrt(d),
        rng.standard_normal((classes, T, d)) / np.sqrt(T),
    )
    counts = None if heads is None else np.full(classes, heads // classes)
    labels = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return MultiHead.create(W, U, multiplicity=counts), Dataset.from_arrays(X, labels)


def step_of(model: MultiHead, data: Dataset, dtype):
    """The compiled call, without arguments left."""
    heads, weights, batch = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, dtype),
        (model.heads, head_weights(model, dtype), prepare(data, model, dtype)),
    )
    n = data.num_examples
    return partial(jax.jit(loss_and_gradient), heads, weights, batch, jnp.full(n, 1 / n, dtype))
