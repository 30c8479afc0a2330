"""The small problem that the checks share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from manyheads._lazy import lazy

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.data.mixture import TokenizedMixture

jax, mixtures = lazy("jax"), lazy("manyheads.data.mixture")


@cache
def small_problem(seed: int) -> tuple[TokenizedMixture, Dataset, Dataset]:
    """A small mixture with a training sample and disjoint first-phase data; one shape for all checks."""
    mixture = mixtures.TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, noise_mu=0.05, noise_nu=0.05, noise_norm=0.3,
        key=jax.random.key(seed),
    )  # fmt: skip
    data = mixture.sample(24, key=jax.random.key(1000 + seed))
    return mixture, data, mixture.sample(200, key=jax.random.key(2000 + seed))
