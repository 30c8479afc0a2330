r"""What rounding may do to attention, scores and gradients.

A logit $x^\top W x'$ is known to about $\epsilon\,\|x\|\|W\|\|x'\|$, however small it is itself; an
attention weight to that many times its size. Scores and gradients inherit it, times the sizes of
what they add up, and the score of H heads adds terms of size $H^{1-c}\Phi$ that may cancel, at a
cost of $\sqrt H$ roundings for $c = 1/2$. The sizes are Frobenius norms and the longest real token:
estimates from above in all that can grow (logits, readouts, heads), not in the constant. For a
model other than attention, the rounding of a score is measured: what float32 makes of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import EACH_TOKEN, HIGHEST, Heads, MultiHead
from manyheads.model.autodiff import as_model, gradient_norms, scores
from manyheads.model.loss import Loss
from manyheads.model.variants import attention_of


class Sizes(NamedTuple):
    """What rounding depends on, per sequence and per class of heads."""

    # (n,) the longest real token
    longest: np.ndarray
    # (n,) how many queries are read
    queries: np.ndarray
    # (classes,) norm of W, for factors the product of their norms
    key_query: np.ndarray
    # (classes,) the longest row of U
    readout: np.ndarray
    weight: np.ndarray  # (classes,) N H^-c


def sizes(model: MultiHead, dataset: Dataset) -> Sizes:
    """The sizes of a model and a data set."""

    def frobenius(leaf):
        leaf = np.asarray(leaf, float)
        return np.sqrt(np.einsum("gij,gij->g", leaf, leaf))

    real = np.ones(dataset.tokens.shape[:2], bool) if dataset.mask is None else dataset.mask
    norms = np.where(real, np.sqrt(np.einsum("ntd,ntd->nt", dataset.tokens, dataset.tokens)), 0.0)
    U = np.asarray(model.readout, float)
    return Sizes(
        norms.max(axis=1),
        np.ones(len(real)) if model.decoder == "last" else real.sum(axis=1),
        np.prod([frobenius(leaf) for leaf in jax.tree.leaves(model.key_query)], axis=0),
        np.sqrt(np.sum(U.reshape(len(U), -1, U.shape[-1]) ** 2, axis=2)).max(axis=1),
        model.multiplicity * model.num_heads**-model.exponent,
    )


def attention_error(model: MultiHead, dataset: Dataset) -> float:
    """Error of an attention weight, absolutely, in units of one rounding."""
    size = sizes(model, dataset)
    return float(4 + 2 * size.longest.max() ** 2 * size.key_query.max())


def score_error(model: Any, dataset: Dataset) -> float:
    r"""Largest error of a score $\tilde\Phi(X_i)$, in units of one rounding: terms of size $H^{1-c}\Phi$ may cancel."""
    full = attention_of(model)
    if full is None:
        return _measured_score_error(model, dataset)
    r, q, W, U, weight = sizes(full, dataset)
    classes = weight * U
    return float(np.max(q * r * (4 * classes.sum() + 2 * r**2 * (classes @ W))))


def _measured_score_error(model: Any, dataset: Dataset) -> float:
    exact, single = scores(model, dataset), scores(model, dataset, np.float32)
    return float(
        4 * np.max(np.abs(exact)) + 2 * np.max(np.abs(exact - single)) / np.finfo(np.float32).eps
    )


def slope_error(model: MultiHead, dataset: Dataset, direction: Heads) -> float:
    r"""Largest error of $\langle\nabla\tilde\Phi(X_i), \theta\rangle$ for a move $\theta$ of full weights, in units."""
    r, q, W, U, weight = sizes(model, dataset)
    _, _, dW, dU, _ = sizes(model.replace_heads(direction), dataset)
    moved = q * r * (dU + (r**2)[:, None] * U * dW).T
    return float(np.max(weight @ (moved * (4 + 2 * np.outer(W, r**2)))))


def gradient_size(model: Any, dataset: Dataset) -> float:
    r"""A bound on $\|\nabla\tilde\Phi(X_i)\|$ over all heads and sequences; the largest of them for another model."""
    full = attention_of(model)
    if full is None:
        return float(np.max(gradient_norms(as_model(model), dataset)))
    r, q, W, U, _ = sizes(full, dataset)
    share = full.multiplicity * full.num_heads ** (-2 * full.exponent)
    chain = W if isinstance(full.key_query, tuple) else np.ones_like(W)
    # |B - phi| is 2 r |u| at most, and half of that on average
    by_key_query = q**2 * r**6 * (share @ (U**2 * chain))
    return float(np.sqrt(np.max(q**2 * r**2 * share.sum() + by_key_query)))


def hessian_error(
    model: Any, dataset: Dataset, loss: Loss | None, largest: float
) -> tuple[float, float]:
    r"""Error of an eigenvalue of the Hessian of the train loss, in units; and the size of a Hessian with slopes of one.

    The Hessian adds $\nabla\tilde\Phi_i\nabla\tilde\Phi_i^\top$ and $\nabla^2\tilde\Phi_i$,
    weighted by two derivatives of the loss. An error of the score moves these weights by that much
    of the derivative after; and an error of the attention is one of what they weigh, whose size is
    taken from the `largest` eigenvalue and the number of sequences that may cancel in it, and from
    the covariances of tokens, which are differences of products. Without a loss, of the summed
    scores.
    """
    slope, second, third = _loss_derivatives(model, dataset, loss)
    squares, full = gradient_norms(model, dataset) ** 2, attention_of(model)
    terms = np.sqrt(dataset.num_examples) * largest
    relative = np.divide(second, slope, out=np.zeros_like(slope), where=slope > 0)
    by_score = score_error(model, dataset) * (np.mean(third * squares) + np.max(relative) * terms)
    by_attention = (16.0 if full is None else 4 * attention_error(full, dataset)) * terms
    if full is not None:
        r, q, *_ = sizes(full, dataset)
        by_attention += 4 * np.mean(slope * q * r**3) * full.num_heads**-full.exponent
    return float(by_score + by_attention), float(np.mean(squares))


def _loss_derivatives(
    model: Any, dataset: Dataset, loss: Loss | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes of the first three derivatives of the loss at the margins; of a sum of scores the first alone."""
    n = dataset.num_examples
    if loss is None:
        return np.full(n, float(n)), np.zeros(n), np.zeros(n)
    margins, step = dataset.labels * scores(model, dataset), 1e-4
    with jax.enable_x64(True):
        places = [jnp.asarray(margins + shift) for shift in (-step, 0.0, step)]
        slope = np.abs(np.asarray(loss.slope(places[1])))
        below, second, above = (np.abs(np.asarray(loss.curvature(place))) for place in places)
    return slope, second, np.abs(above - below) / (2 * step)


def gradient_errors(heads, root, keys, mean, Xq, W, A, B, rest):
    r"""What rounding does to the gradients, followed through the formulas, and the terms of the one by W; squared.

    A logit is known to $\|x_t W\| \|x_s\|$ roundings however small it is, an attention weight to
    $A(1-A)$ times that, and the centered readout to what B and the changes of A leave in it. B is
    taken less its value at the key with most attention, where nothing is lost.
    """
    (c, _, d), q, g = keys.shape, Xq.shape[1], W.shape[0]
    # c, s
    size = jnp.sqrt(jnp.sum(keys**2, axis=2))
    # c, q
    queries = jnp.sqrt(jnp.sum(Xq**2, axis=2))
    # as in the scores: the compiler does it once
    Q = jax.lax.dot_general(
        Xq, W.transpose(1, 0, 2).reshape(d, g * d), EACH_TOKEN, precision=HIGHEST
    )
    reach = jnp.sqrt(jnp.sum(Q.reshape(c, q, g, d) ** 2, axis=3))
    reach = reach + queries[:, :, None] * jnp.sqrt(jnp.sum(W**2, axis=(1, 2)) / d)[None, None, :]
    logit = (reach * jnp.max(size, axis=1)[:, None, None]).reshape(c, 1, q * g)
    by_A = A * (1 + (1 - A) * logit)
    centered = jnp.abs(rest)
    top = A == jnp.max(A, axis=1, keepdims=True)
    of_top = jnp.max(jnp.where(top, jnp.abs(B), 0.0), axis=1, keepdims=True)
    by_B = jnp.where(top, 0.0, jnp.abs(B) + of_top)
    low = jnp.max(jnp.where(top, centered, 0.0), axis=1, keepdims=True)
    by_mean = jnp.sum(A * by_B + jnp.where(top, 0.0, by_A * (centered + low)), axis=1)
    by_D = by_A * centered + A * (by_B + by_mean[:, None, :])

    def over_keys(M):
        return jnp.sum(M * size[:, :, None], axis=1).reshape(c, q, g)

    middle = jnp.sqrt(jnp.sum(mean**2, axis=2, keepdims=True))
    of_U = over_keys(by_A) + middle
    of_U = of_U if heads.readout.ndim == 3 else jnp.sum(of_U, axis=1, keepdims=True)
    queries = queries[:, :, None]
    # c, g
    of_W = jnp.sum(over_keys(by_D) * queries, axis=1)
    terms = jnp.sum(
        over_keys(A * centered) * jnp.maximum(queries, middle + size[:, :q, None]), axis=1
    )
    chain = jnp.ones(g, keys.dtype)
    if isinstance(heads.key_query, tuple):
        query, key = heads.key_query
        chain = jnp.sum(query**2, axis=(1, 2)) + jnp.sum(key**2, axis=(1, 2))
    square = (root**2)[None, :]
    by_U, by_W = jnp.sum(of_U**2, axis=1), of_W**2 * chain[None, :]
    errors = jnp.stack([jnp.sum(part * square, axis=1) for part in (by_U, by_W)])
    return errors, jnp.sum(terms**2 * square, axis=1)
