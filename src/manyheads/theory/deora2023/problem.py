"""The small problems that the checks share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import jax
import numpy as np

from manyheads.data import mixture as mixtures

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.data.mixture import TokenizedMixture


Problem: TypeAlias = "tuple[TokenizedMixture, Dataset, Dataset]"


@cache
def small_problem(seed: int) -> Problem:
    """A small mixture with a training sample and disjoint first-phase data; one shape for all checks."""
    mixture = mixtures.TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.0,
        noise_mu=0.05,
        noise_nu=0.05,
        noise_norm=0.3,
        key=jax.random.key(seed),
    )
    return _samples(mixture, seed)


def _samples(mixture: TokenizedMixture, seed: int) -> Problem:
    data = mixture.sample(24, key=jax.random.key(1000 + seed))
    return mixture, data, mixture.sample(200, key=jax.random.key(2000 + seed))


def small_problems(seed: int, count: int) -> Iterator[Problem]:
    """The small problem, then others of its shape with random signal, sparsity and noise; one program for all."""
    yield small_problem(seed)
    rng = np.random.default_rng(seed)
    for k in range(1, count):
        S, ends = float(rng.uniform(0.8, 1.6)), str(rng.choice(["uniform", "vertex"]))
        mixture = mixtures.TokenizedMixture(
            num_tokens=4,
            dim=6,
            num_patterns=2,
            sparsity=float(rng.choice([0.25, 0.5, 0.75])),
            signal=S,
            noise_mu=float(rng.uniform(0, 0.05)) * S**2,
            noise_nu=float(rng.uniform(0, 0.05)) * S**2,
            noise_norm=float(rng.uniform(0.2, 0.4)) * S,
            noise=ends,
            key=jax.random.key(seed + 10_000 * k),
        )
        yield _samples(mixture, seed + 10_000 * k)
