r"""What rounding may do to attention, scores and gradients.

A logit $x^\top W x'$ is known to about $\epsilon\,\|x\|\|W\|\|x'\|$, however small it is itself; an attention weight to
that many times its size. Scores and gradients inherit it, times the sizes of what they add up, and the score of H heads
adds terms of size $H^{1-c}\Phi$ that may cancel, at a cost of $\sqrt H$ roundings for $c = 1/2$. The sizes are
Frobenius norms and the longest real token: estimates from above in all that can grow (logits, readouts, heads), not in
the constant.
"""

from __future__ import annotations

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import Heads, MultiHead


def lengths(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The longest real token of every sequence, and how many real tokens it has."""
    norms = np.sqrt(np.einsum("ntd,ntd->nt", dataset.tokens, dataset.tokens))
    if dataset.mask is None:
        return norms.max(axis=1), np.full(len(norms), dataset.num_tokens)
    return np.where(dataset.mask, norms, 0.0).max(axis=1), dataset.mask.sum(axis=1)


def head_sizes(model: MultiHead) -> tuple[np.ndarray, np.ndarray]:
    r"""Per class: $\|W\|$ (for factors the product of their norms) and the longest row of $U$."""

    def size(leaf):
        return np.sqrt(np.einsum("gij,gij->g", leaf, leaf))

    U = np.asarray(model.readout, float)
    rows = np.sqrt(np.sum(U.reshape(len(U), -1, U.shape[-1]) ** 2, axis=2)).max(axis=1)
    if isinstance(model.key_query, tuple):
        query, key = (size(np.asarray(factor, float)) for factor in model.key_query)
        return query * key, rows
    return size(np.asarray(model.key_query, float)), rows


def attention_error(model: MultiHead, dataset: Dataset) -> float:
    """Error of an attention weight, absolutely, in units of one rounding."""
    return float(4 + 2 * lengths(dataset)[0].max() ** 2 * head_sizes(model)[0].max())


def score_error(model: MultiHead, dataset: Dataset) -> float:
    r"""Largest error of a score $\tilde\Phi(X_i)$, in units of one rounding: terms of size $H^{1-c}\Phi$ may cancel."""
    r, real = lengths(dataset)
    W, U = head_sizes(model)
    q = np.ones_like(real) if model.decoder == "last" else real
    classes = model.multiplicity * model.num_heads**-model.exponent * U
    return float(np.max(q * r * (4 * classes.sum() + 2 * r**2 * (classes @ W))))


def slope_error(model: MultiHead, dataset: Dataset, direction: Heads) -> float:
    r"""Largest error of $\langle\nabla\tilde\Phi(X_i), \theta\rangle$ for a move $\theta$ of full weights, in units."""
    r, real = lengths(dataset)
    W, U = head_sizes(model)
    dW, dU = head_sizes(MultiHead(*direction, model.multiplicity, model.decoder, model.exponent))
    q = np.ones_like(real) if model.decoder == "last" else real
    scale = model.multiplicity * model.num_heads**-model.exponent
    moved = q * r * (dU + (r**2)[:, None] * U * dW).T
    return float(np.max(scale @ (moved * (4 + 2 * np.outer(W, r**2)))))


def gradient_size(model: MultiHead, dataset: Dataset) -> float:
    r"""A bound on $\|\nabla\tilde\Phi(X_i)\|$ over all heads and sequences."""
    r, real = lengths(dataset)
    W, U = head_sizes(model)
    q = np.ones_like(real) if model.decoder == "last" else real
    share = model.multiplicity * model.num_heads ** (-2 * model.exponent)
    chain = W if isinstance(model.key_query, tuple) else np.ones_like(W)
    by_key_query = q**2 * r**6 * (share @ (U**2 * chain))  # |B - phi| is 2 r |u| at most, and half of that on average
    return float(np.sqrt(np.max(q**2 * r**2 * share.sum() + by_key_query)))
