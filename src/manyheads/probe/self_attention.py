"""The probe with self-attention in place of learned queries: the closed forms of `model`, one column at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model import gradient, outputs
from manyheads.model.attention import Heads, MultiHead
from manyheads.probe.columns import Shape


@dataclass(frozen=True)
class SelfAttention:
    """Every token asks (`full`, `pooled`), or the last one: heads (W, U), with W first in a column."""

    decoder: str
    shape: Shape
    length: int
    batch: Any
    weights: Any
    order: int  # sequences

    @classmethod
    def of(
        cls, decoder: str, shape: Shape, features: np.ndarray, mask: np.ndarray, codes: np.ndarray
    ) -> SelfAttention:
        count, length, _ = features.shape
        made = cls(decoder, shape, length, None, None, count)
        model = made.model(np.zeros(made.size))
        data = Dataset(features, np.where(codes > 0, 1.0, -1.0), None if mask.all() else mask)
        batch = gradient.prepare(data, model)
        if shape.outputs > 1:
            padded = np.zeros(batch.labels.size)
            padded[:count] = codes
            batch = batch._replace(labels=padded.reshape(batch.labels.shape))
        return cls(decoder, shape, length, batch, gradient.head_weights(model), count)

    @property
    def rows(self) -> int:
        """How many tokens have a readout of their own."""
        return self.length if self.decoder == "full" else 1

    @property
    def size(self) -> int:
        heads, features = self.shape.heads, self.shape.features
        return heads * features * (features + self.rows * self.shape.outputs)

    def heads(self, theta: np.ndarray) -> Heads:
        """One column as parameters of the model."""
        heads, features, count = self.shape.heads, self.shape.features, self.shape.outputs
        squares = heads * features**2
        axes = [heads]
        if count > 1:
            axes.append(count)
        if self.decoder == "full":
            axes.append(self.length)
        key_query = theta[:squares].reshape(heads, features, features)
        return Heads(key_query, theta[squares:].reshape(*axes, features))

    def model(self, theta: np.ndarray) -> MultiHead:
        found = self.heads(theta)
        return MultiHead.create(found.key_query, found.readout, decoder=self.decoder)

    def start(self, queries: np.ndarray) -> np.ndarray:
        """Every token asks what a learned query would: the constant feature, which comes last, carries it."""
        heads, features = queries.shape
        constant = float(np.max(self.batch.tokens[..., -1]))
        key_query = np.zeros((heads, features, features))
        key_query[:, -1, :] = queries / constant
        return np.concatenate([key_query.ravel(), np.zeros(self.size - key_query.size)])

    def evaluate(
        self, theta: np.ndarray, weight: np.ndarray, penalty: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Penalized loss and gradient of every column."""
        values = np.empty(len(theta))
        gradients = np.empty_like(theta)
        with jax.enable_x64(True):
            for k, column in enumerate(theta):
                loss, found = _loss_and_gradient(
                    self.heads(column), self.weights, self.batch, weight[k], self.decoder
                )
                flat = np.concatenate([np.ravel(leaf) for leaf in found])
                # The gradient of a head in the model's scaling, H to the power -1/2, is that of the column.
                values[k] = float(loss) + penalty[k] * np.sum(column**2)
                gradients[k] = flat + 2.0 * penalty[k] * column
        return values, gradients

    def scores(self, theta: np.ndarray) -> np.ndarray:
        """Scores (columns, sequences, outputs)."""
        found = np.empty((len(theta), self.order, self.shape.outputs))
        with jax.enable_x64(True):
            for k, column in enumerate(theta):
                scores = _scores(self.heads(column), self.weights, self.batch, self.decoder)
                found[k] = np.asarray(scores).reshape(-1, self.shape.outputs)[: self.order]
        return found


@partial(jax.jit, static_argnames="decoder")
def _loss_and_gradient(heads, weights, batch, sample_weight, decoder):
    if heads.readout.ndim > (3 if decoder == "full" else 2):
        found = outputs.loss_and_gradient(heads, weights, batch, sample_weight, decoder=decoder)
    else:
        found = gradient.loss_and_gradient(heads, weights, batch, sample_weight)
    return found[0], found[2]


@partial(jax.jit, static_argnames="decoder")
def _scores(heads, weights, batch, decoder):
    if heads.readout.ndim > (3 if decoder == "full" else 2):
        return outputs.batch_scores(heads, weights, batch, decoder=decoder)
    return gradient.batch_scores(heads, weights, batch, batch.labels.size)
