r"""Target parameters $\theta$ of the theory: where the loss is small near the start.

A `Direction` is $\theta_*$ of Definition 1 ($\|\theta_*\|=\sqrt2$) as one array per class of heads,
so that $\theta=\theta_0+c\,\theta_*$ is a target at distance $\sqrt2\,c$ whatever the number of
heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from manyheads._check import a, check, text
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import is_mixture
from manyheads.model.attention import HIGHEST, Heads, MultiHead, is_multi_head
from manyheads.model.autodiff import as_model, flatten, float64, scores, slopes, unflatten
from manyheads.model.loss import Loss, get_loss
from manyheads.model.variants import attention_of


@dataclass(frozen=True, eq=False)
class Target:
    r"""A point $\theta$ given by the displacement of one head of each class, with the numbers the theorems need.

    `readout_norm` is NaN for a model without a readout.
    """

    name: str
    displacement: Any
    loss: float
    distance: float
    readout_norm: float
    parameter_norm: float

    def __str__(self) -> str:
        return f"{self.name}: loss {self.loss:.4g} at distance {self.distance:.4g} from the start"


@dataclass(frozen=True, eq=False)
class Direction:
    r"""$\sqrt H\,\theta_*$ for one head of each class: $\sum_g (N_g/H)\|\cdot\|^2=2$."""

    name: str
    heads: Heads

    def displacement(self, scale: float, num_heads: float) -> Heads:
        """The displacement of one head of each class at θ_0 + scale·θ_*."""
        return jax.tree.map(lambda leaf: leaf * (scale / math.sqrt(num_heads)), self.heads)

    def head_norm(self) -> float:
        r"""$\sqrt H\,\|\theta_*\|_{2,\infty}$."""
        return parameter_norm(self.heads)


is_direction = a(Direction, "mixture_direction and combined_direction make one")


def with_heads(start: MultiHead, num_heads: float) -> MultiHead:
    """The same heads in the same shares, with another (possibly fractional or huge) total."""
    counts = start.multiplicity * (num_heads / start.num_heads)
    return MultiHead(start.key_query, start.readout, counts, start.decoder, start.exponent)


def measure_target(
    name: str, start: Any, dataset: Dataset, displacement: Any, loss: str | Loss = "logistic"
) -> Target:
    """Loss, distance and norms of the point at `displacement` from the start."""
    displacement, start = float64(displacement), as_model(start)
    point = start.displaced(displacement)
    full = attention_of(point)
    copies = np.ones(1) if start.copies is None else start.copies
    return Target(
        name,
        displacement,
        train_loss(point, dataset, loss),
        float(np.sqrt(np.sum(copies * _class_squares(displacement, len(copies))))),
        math.nan if full is None else readout_norm(full, dataset),
        parameter_norm(point.parameters, len(copies)),
    )


def train_loss(model: Any, dataset: Dataset, loss: str | Loss = "logistic") -> float:
    """Mean loss over a dataset, in float64."""
    margins = dataset.labels * scores(model, dataset)
    with jax.enable_x64(True):
        return float(np.mean(np.asarray(get_loss(loss).value(jnp.asarray(margins)))))


@check(start=is_multi_head, mixture=is_mixture)
def mixture_direction(start: MultiHead, mixture) -> Direction:
    r"""The paper's $\theta_*$ of Section 5.2: $(\bar U_*,\ \mathrm{sign}(\alpha_h)\bar W_*)$ in every head.

    `mixture` has `U_opt` and `W_opt`; the sign of a head is that of its readout along $U_*$ (plus
    where it has none).
    """
    U, W = mixture.U_opt, mixture.W_opt
    along = np.einsum("gtd,td->g", np.asarray(start.readout, np.float64), U)
    signs = np.where(along >= 0, 1.0, -1.0)
    return Direction(
        "the paper's direction",
        Heads(signs[:, None, None] * W, np.repeat(U[None], len(signs), axis=0)),
    )


@check(name=text, start=is_multi_head, dataset=is_dataset)
def combined_direction(
    name: str, start: MultiHead, dataset: Dataset, weights: np.ndarray
) -> Direction:
    r"""$\theta_*\propto\sum_i w_i y_i\nabla\tilde\Phi(X_i;\theta_0)$ with norm $\sqrt2$, from dual weights $w$."""
    with jax.enable_x64(True):
        cotangent = jnp.asarray(weights * dataset.labels)
        gradient = _pull_back(start.objective(dataset), float64(start.heads), cotangent)
    counts, share = start.multiplicity, start.multiplicity / start.num_heads
    one = jax.tree.map(
        lambda leaf: np.asarray(leaf) / counts.reshape(-1, *(1,) * (leaf.ndim - 1)), gradient
    )
    norm = math.sqrt(float(np.sum(share * _class_squares(one, start.num_classes))))
    if not norm > 0:
        raise ValueError(
            "the tangent features cancel: no direction separates the data; use another start"
        )
    return Direction(name, jax.tree.map(lambda leaf: leaf * (math.sqrt(2) / norm), one))


def tangent_margins(direction: Direction, start: MultiHead, dataset: Dataset) -> np.ndarray:
    r"""$y_i\langle\nabla\tilde\Phi(X_i;\theta_0),\theta_*\rangle$ for every sequence."""
    unit = jax.tree.map(lambda leaf: leaf / math.sqrt(start.num_heads), direction.heads)
    return dataset.labels * slopes(start, dataset, unit)


def along(
    direction: Direction,
    scale: float,
    start: MultiHead,
    dataset: Dataset,
    loss: str | Loss = "logistic",
) -> Target:
    """The target θ_0 + scale·θ_*."""
    displacement = direction.displacement(scale, start.num_heads)
    return measure_target(
        f"{direction.name}, scale {scale:.4g}", start, dataset, displacement, loss
    )


def attention_target(
    start: MultiHead,
    dataset: Dataset,
    mixture,
    sharpness: float | None = None,
    *,
    loss: str | Loss = "logistic",
) -> Target:
    r"""The target of Section 5.3 in every head: $U_h=\frac{\log n}{\gamma_{attn}\sqrt H}U_{opt}$, $W_h=\Gamma W_{opt}$.

    `sharpness` is $\Gamma$; by default the one of Proposition 3 that leaves an irrelevant mass of
    $1/n$.
    """
    T, S, M, zeta = mixture.num_tokens, mixture.signal, mixture.num_patterns, mixture.sparsity
    n = dataset.num_examples
    if sharpness is None:
        sharpness = max(0.0, 8 * math.sqrt(2 * (M + 1)) / (3 * S**2) * math.log((1 / zeta - 1) * n))
    size = math.log(n) / (S * math.sqrt(T / 2)) / math.sqrt(start.num_heads)
    place = Heads(
        np.repeat(sharpness * mixture.W_opt[None], start.num_classes, axis=0),
        np.repeat(size * mixture.U_opt[None], start.num_classes, axis=0),
    )
    displacement = jax.tree.map(lambda a, b: a - np.asarray(b, np.float64), place, start.heads)
    return measure_target("the attention target of Section 5.3", start, dataset, displacement, loss)


def proximal_target(
    start: Any,
    dataset: Dataset,
    *,
    step_size: float,
    num_steps: float,
    loss: str | Loss = "logistic",
) -> Target:
    r"""Minimizer of $\hat L(\theta)+\|\theta-\theta_0\|^2/(2\eta K)$ found by L-BFGS, constant on each class.

    Any point is a legitimate target; this one makes the certificate along the run small.
    """
    strength = 1 / (step_size * num_steps)
    n, loss, start = dataset.num_examples, get_loss(loss), as_model(start)
    with jax.enable_x64(True):
        parameters, objective = float64(start.parameters), start.objective(dataset)
        root, mean = np.sqrt(objective.copies), jnp.full(n, 1 / n)

        # class coordinates sqrt(N) * displacement
        def value_and_gradient(flat):
            value, gradient = _value_and_gradient(
                objective, parameters, root, flat, mean, loss=loss
            )
            return float(value) + 0.5 * strength * float(flat @ flat), np.asarray(
                gradient
            ) + strength * flat

        size = sum(leaf.size for leaf in jax.tree.leaves(parameters))
        found = scipy.optimize.minimize(
            value_and_gradient,
            np.zeros(size),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 2000, "maxfun": 4000, "gtol": 1e-9, "ftol": 1e-14, "maxcor": 20},
        )
        displacement = _per_head(jnp.asarray(found.x), parameters, root)
    return measure_target("the proximal target", start, dataset, displacement, loss)


def losses_along(
    direction: Direction,
    scales: np.ndarray,
    start: MultiHead,
    dataset: Dataset,
    loss: str | Loss = "logistic",
) -> np.ndarray:
    """Train loss at θ_0 + scale·θ_* for many scales at once."""
    unit = jax.tree.map(lambda leaf: leaf / math.sqrt(start.num_heads), direction.heads)
    with jax.enable_x64(True):
        given = start.objective(dataset), float64(start.heads), unit, jnp.asarray(scales)
        return np.asarray(_losses_along(*given, loss=get_loss(loss)))


@partial(jax.jit, static_argnames="loss")
def _losses_along(objective, heads, unit, scales, *, loss):
    def one(scale):
        point = jax.tree.map(lambda a, b: a + scale * b, heads, unit)
        return jnp.mean(loss.value(objective.labels * objective.scores(point)))

    return jax.lax.map(one, scales)


@partial(jax.jit, static_argnames="loss")
def _value_and_gradient(objective, parameters, root, flat, sample_weight, *, loss):
    point = jax.tree.map(jnp.add, parameters, _per_head(flat, parameters, root))
    value, _, gradient = objective.loss_and_gradient(
        point, sample_weight, loss=loss, precision=HIGHEST
    )
    return value, flatten(gradient, root)


def _per_head(flat, parameters, root):
    """Class coordinates as the displacement of one head of each class."""

    def divided(leaf):
        return leaf / jnp.reshape(root, (-1, *(1,) * (leaf.ndim - 1)) if leaf.ndim else ())

    return jax.tree.map(divided, unflatten(flat, parameters, np.ones(1)))


@jax.jit
def _pull_back(objective, heads, cotangent):
    return jax.vjp(objective.scores, heads)[1](cotangent)[0]


def _class_squares(tree: Any, num_classes: int) -> np.ndarray:
    """Squared norm of one head of each class, or of a model that has no classes."""
    return sum(
        np.sum(np.asarray(leaf).reshape(num_classes, -1) ** 2, axis=1)
        for leaf in jax.tree.leaves(tree)
    )


def parameter_norm(parameters: Any, num_classes: int | None = None) -> float:
    r"""$\|\theta\|_{2,\infty}$: the largest norm of one head; of everything for a model of one class."""
    classes = len(jax.tree.leaves(parameters)[0]) if num_classes is None else num_classes
    return float(np.sqrt(np.max(_class_squares(parameters, classes))))


def readout_norm(model: MultiHead, dataset: Dataset) -> float:
    r"""$\|U\|_{2,\infty}$, with $U = 1_T u^\top$ counted in full for a pooled readout."""
    U = np.asarray(model.readout, np.float64).reshape(model.num_classes, -1)
    return float(math.sqrt(readout_repeat(model, dataset)) * np.linalg.norm(U, axis=1).max())


def readout_repeat(model: MultiHead, dataset: Dataset) -> float:
    """How often the stored readout of a head occurs in U: T times for a pooled one."""
    return float(dataset.num_tokens) if model.decoder == "pooled" else 1.0
