"""Models that are not the paper's, written as a user would write them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model.cases import random_case

import manyheads as mh


class PooledMLP(eqx.Module):
    """A two-layer network on the mean of the real tokens; `power` is a whole-number array, which does not train."""

    inner: jax.Array
    bias: jax.Array
    outer: jax.Array
    power: jax.Array

    def __call__(self, tokens, mask):
        mean = jnp.sum(jnp.where(mask[:, None], tokens, 0), axis=0) / jnp.sum(mask)
        return jnp.tanh(self.inner @ mean + self.bias) ** self.power @ self.outer


class AttentionMLP(eqx.Module):
    """The attention of a MultiHead without its readout, then a two-layer network of Equinox."""

    key_query: jax.Array
    mlp: eqx.nn.MLP

    def __call__(self, tokens, mask):
        weights = jnp.where(mask[None, :], tokens @ self.key_query @ tokens.T, -jnp.inf)
        attended = jax.nn.softmax(weights, axis=-1) @ tokens
        return self.mlp(jnp.sum(jnp.where(mask[:, None], attended, 0), axis=0))


def pooled_mlp(dim, width=5, seed=0):
    rng = np.random.default_rng(seed)
    sizes = [(width, dim), (width,), (width,)]
    return PooledMLP(*(jnp.asarray(rng.standard_normal(size)) for size in sizes), jnp.asarray(3))


def attention_mlp(dim, width=4, seed=0):
    key, other = jax.random.split(jax.random.key(seed))
    mlp = eqx.nn.MLP(dim, "scalar", width, 1, activation=jax.nn.softplus, key=key)
    return AttentionMLP(jax.random.normal(other, (dim, dim)), mlp)


def low_rank(num_tokens, dim, seed=0):
    return mh.model.LowRank.random(
        2, num_tokens=num_tokens, dim=dim, scale=2.0, key=jax.random.key(seed)
    )


def any_model(name, seed=0, masked=True, shape=(7, 5, 4)):
    """One of several models, and data with a mask."""
    model, data = random_case(seed, masked=masked, shape=shape)
    _, T, d = shape
    made = {
        "mlp": lambda: pooled_mlp(d, seed=seed),
        "attention and mlp": lambda: attention_mlp(d, seed=seed),
        "low rank": lambda: low_rank(T, d, seed=seed),
        "learned queries": lambda: mh.MultiHead.create(
            *np.random.default_rng(seed).standard_normal((2, 2, d)), decoder="query"
        ),
        "readout frozen": lambda: mh.frozen(model, "readout"),
        "key_query frozen": lambda: mh.frozen(model, "key_query"),
    }
    return made[name](), data


OTHERS = ("mlp", "attention and mlp", "low rank", "learned queries")


def mostly(*names: str, among: tuple[str, ...] = OTHERS) -> list:
    """These models in every run of the tests, the others in the long one."""
    return [pytest.param(name, marks=() if name in names else pytest.mark.full) for name in among]


FROZEN = ("readout frozen", "key_query frozen")
