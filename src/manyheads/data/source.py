"""Data sources by the names that the command line has for them.

A source has `sample(num_examples, *, key)` if it can draw any number of sequences, or `load()` if
it is a fixed collection, of which disjoint parts are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manyheads.data.mixture import TokenizedMixture
from manyheads.data.planted import Planted, RandomLabels
from manyheads.data.real import Digits

# Name -> the source of an example, made with a random key.
SOURCES: dict[str, Callable[[Any], Any]] = {
    "mixture": lambda key: TokenizedMixture(noise_mu=0.1, noise_nu=0.1, noise_norm=0.5, key=key),
    "planted": lambda key: Planted(dim=10, margin=0.1, key=key),
    "random_labels": lambda key: RandomLabels(num_tokens=6, dim=6),
    "digits": lambda key: Digits(),
}
