"""A model from outside: one Equinox module, and a start by which sweeps and the command line name it."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp

import manyheads as mh
from manyheads._fields import setting
from manyheads.training.start import STARTS, Start


class PooledNetwork(eqx.Module):
    """Two layers on the mean token."""

    hidden: jax.Array
    out: jax.Array

    def __call__(self, tokens, mask):
        mean = jnp.sum(jnp.where(mask[:, None], tokens, 0.0), axis=0) / jnp.sum(mask)
        return self.out @ jnp.tanh(self.hidden @ mean)


@STARTS.register("pooled_network")
@dataclass(frozen=True)
class PooledNetworkStart(Start):
    """Gaussian weights; each head of the command is one hidden unit."""

    scale: float = setting(1.0, "standard deviation of the weights", above=0)

    def make(self, num_heads, dataset, *, key, **_):
        first, second = jax.random.split(key)
        width = int(num_heads)
        return mh.as_model(
            PooledNetwork(
                self.scale * jax.random.normal(first, (width, dataset.dim)),
                self.scale * jax.random.normal(second, (width,)) / width**0.5,
            )
        )
