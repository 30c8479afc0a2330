"""Random models and data of every kind, and the plain formula that autodiff differentiates."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import manyheads as mh

KINDS = [
    dict(decoder=decoder, factored=factored, masked=masked)
    for decoder, factored, masked in itertools.product(
        ("full", "pooled", "last"), (False, True), (False, True)
    )
]
KINDS += [dict(decoder="query", factored=False, masked=masked) for masked in (False, True)]

# Every choice occurs in the first three; the rest are for the long run.
SOME_KINDS = [
    pytest.param(kind, marks=() if i in (0, 5, 10) else pytest.mark.full)
    for i, kind in enumerate(KINDS)
]


def random_case(
    seed,
    *,
    decoder="full",
    factored=False,
    masked=False,
    shape=(7, 5, 4),
    counts=(1, 5, 3),
    exponent=0.5,
    outputs=(),
):
    rng = np.random.default_rng(seed)
    (n, T, d), g, r = shape, len(counts), 2
    mask = rng.random((n, T)) < 0.6
    mask[np.arange(n), rng.integers(0, T, n)] = True
    labels = np.where(np.arange(n) % 2, 1.0, -1.0)
    data = mh.Dataset(
        rng.standard_normal((n, T, d)), labels, mask if masked else None
    )  # masked tokens are not zero here
    W = (
        mh.model.Factored(*rng.standard_normal((2, g, d, r)))
        if factored
        else rng.standard_normal((g, d) if decoder == "query" else (g, d, d))
    )
    U = rng.standard_normal((g, *outputs, *((T, d) if decoder == "full" else (d,))))
    return mh.MultiHead.create(W, U, multiplicity=counts, decoder=decoder, exponent=exponent), data


def plain_scores(model, heads, data):
    moved = model.replace_heads(heads)
    X = jnp.asarray(data.tokens)
    return jax.vmap(moved)(X) if data.mask is None else jax.vmap(moved)(X, jnp.asarray(data.mask))


def plain_loss(model, heads, data, weight, loss):
    return jnp.sum(weight * loss.value(jnp.asarray(data.labels) * plain_scores(model, heads, data)))


def dense_hessian(model, data, loss, of=None):
    """Hessian of the mean loss, or of the score of example `of`, over all parameters of all heads, by autodiff."""
    mask = None if data.mask is None else jnp.asarray(data.mask)
    tokens, labels = jnp.asarray(data.tokens), jnp.asarray(data.labels)
    return np.asarray(_dense_hessian(mh.expand(model), tokens, mask, labels, loss, of))


@eqx.filter_jit  # compiled once for models and data of one shape
def _dense_hessian(full, tokens, mask, labels, loss, of):
    flat, unflatten = ravel_pytree(full.heads)

    def value(vector):
        moved = full.replace_heads(unflatten(vector))
        scores = jax.vmap(moved)(tokens) if mask is None else jax.vmap(moved)(tokens, mask)
        return jnp.mean(loss.value(labels * scores)) if of is None else scores[of]

    return jax.hessian(value)(flat)


def per_head(model, class_gradient):
    """The gradient of one head: all members of a class share the derivative with respect to its parameters."""
    N = model.multiplicity
    return jax.tree.map(lambda leaf: leaf / N.reshape(-1, *(1,) * (leaf.ndim - 1)), class_gradient)


def relative_error(got, want):
    pairs = list(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True))
    scale = max(float(jnp.abs(b).max()) for _, b in pairs)
    return max(float(jnp.abs(a - b).max()) for a, b in pairs) / scale
