"""A plug-in with one thing of each kind: a data source, a start, a loss and a measure."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

import manyheads as mh
from manyheads._fields import check, setting
from manyheads.data.door import random_stream
from manyheads.data.source import SOURCES
from manyheads.model.loss import LOSSES, Loss
from manyheads.sweeps.measures import MEASURES
from manyheads.training.start import STARTS, Start


@SOURCES.register("ring")
@dataclass(frozen=True)
class Ring:
    """Tokens around one of two points of a circle."""

    num_tokens: int = setting(3, "tokens per sequence", low=1, high=100)
    radius: float = setting(1.0, "radius of the circle", unit="cm", above=0)
    dim = 2

    def __post_init__(self):
        check(self)

    def sample(self, num_examples, *, key):
        rng = random_stream(key)
        labels = np.arange(num_examples) % 2 * 2.0 - 1
        angle = rng.normal(size=(num_examples, self.num_tokens)) * 0.3 + labels[:, None]
        tokens = self.radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        return mh.Dataset.from_arrays(tokens, labels, name="ring")


@STARTS.register("same_heads")
@dataclass(frozen=True)
class SameHeads(Start):
    """All heads equal, with a readout of ones."""

    height: float = setting(0.1, "entries of the readout", low=0)

    def make(self, num_heads, dataset, **_):
        W = np.zeros((1, dataset.dim, dataset.dim))
        U = np.full((1, dataset.num_tokens, dataset.dim), self.height)
        return mh.MultiHead.create(W, U, multiplicity=[num_heads])


EXPONENTIAL = Loss(
    "exponential",
    lambda m: jnp.exp(-m),
    lambda m: -jnp.exp(-m),
    lambda m: jnp.exp(-m),
    np.inf,
    np.inf,
    1.0,
)
LOSSES.register("exponential")(EXPONENTIAL)


@MEASURES.register("height")
def height(run):
    """The largest entry of the readout at the end."""
    return {"final_height": float(np.max(run.trajectory.final.readout))}
