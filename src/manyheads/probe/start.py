"""Heads that differ without a seed: queries at tokens far from one another."""

from __future__ import annotations

import numpy as np

MOST_TOKENS = 20_000  # looked at; more add nothing


def far_tokens(features: np.ndarray, mask: np.ndarray, heads: int) -> np.ndarray:
    """Unit vectors (heads, features): tokens less their mean, each the farthest in angle from those before it.

    The first is the one nearest to all others, so that no outlier begins. Where tokens run out, they repeat: the
    values of equal heads move alike, and the report says that heads are equal.
    """
    tokens = features[mask]
    if len(tokens) > MOST_TOKENS:
        tokens = tokens[:: -(-len(tokens) // MOST_TOKENS)]
    tokens = tokens - tokens.mean(axis=0)
    lengths = np.linalg.norm(tokens, axis=1)
    tokens = tokens[lengths > 1e-9 * max(lengths.max(), 1e-300)]
    if not len(tokens):
        return np.zeros((heads, features.shape[2]))
    tokens = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
    chosen = [int(np.argmax(tokens @ tokens.sum(axis=0)))]
    nearest = tokens @ tokens[chosen[0]]
    for _ in range(heads - 1):
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, tokens @ tokens[chosen[-1]])
    return tokens[chosen]
