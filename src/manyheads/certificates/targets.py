r"""Target parameters $\theta$ of the theory: where the loss is small near the start.

A `Direction` is $\theta_*$ of Definition 1 ($\|\theta_*\|=\sqrt2$) as one array per class of heads, so that
$\theta=\theta_0+c\,\theta_*$ is a target at distance $\sqrt2\,c$ whatever the number of heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from manyheads.data.dataset import Dataset
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.gradient import batch_scores, head_weights, loss_and_gradient, prepare
from manyheads.model.loss import LOGISTIC, Loss, get_loss


@dataclass(frozen=True, eq=False)
class Target:
    r"""A point $\theta$ given by the displacement of one head of each class, with what the theorems ask about it."""

    name: str
    displacement: Heads
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


def with_heads(start: MultiHead, num_heads: float) -> MultiHead:
    """The same heads in the same shares, with another (possibly fractional or huge) total."""
    counts = start.multiplicity * (num_heads / start.num_heads)
    return MultiHead(start.key_query, start.readout, counts, start.decoder, start.exponent)


def measure_target(
    name: str, start: MultiHead, dataset: Dataset, displacement: Heads, loss: str | Loss = "logistic"
) -> Target:
    """Loss, distance and norms of the point at `displacement` from the start."""
    displacement = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), displacement)
    point = start.displaced(displacement)
    squares = _class_squares(displacement)
    return Target(
        name,
        displacement,
        train_loss(point, dataset, loss),
        float(np.sqrt(np.sum(start.multiplicity * squares))),
        readout_norm(point, dataset),
        parameter_norm(point.heads),
    )


def train_loss(model: MultiHead, dataset: Dataset, loss: str | Loss = "logistic") -> float:
    """Mean loss over a dataset, in float64."""
    margins = dataset.labels * model.scores(dataset)
    with jax.enable_x64(True):
        return float(np.mean(np.asarray(get_loss(loss).value(jnp.asarray(margins)))))


def mixture_direction(start: MultiHead, mixture) -> Direction:
    r"""The paper's $\theta_*$ of Section 5.2: $(\bar U_*,\ \mathrm{sign}(\alpha_h)\bar W_*)$ in every head.

    `mixture` has `U_opt` and `W_opt`; the sign of a head is that of its readout along $U_*$ (plus where it has none).
    """
    U, W = mixture.U_opt, mixture.W_opt
    along = np.einsum("gtd,td->g", np.asarray(start.readout, np.float64), U)
    signs = np.where(along >= 0, 1.0, -1.0)
    return Direction("the paper's direction", Heads(signs[:, None, None] * W, np.repeat(U[None], len(signs), axis=0)))


def combined_direction(name: str, start: MultiHead, dataset: Dataset, weights: np.ndarray) -> Direction:
    r"""$\theta_*\propto\sum_i w_i y_i\nabla\tilde\Phi(X_i;\theta_0)$ with norm $\sqrt2$, from dual weights $w$."""
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start.heads)
        gradient = _pull_back(
            heads, head_weights(start), prepare(dataset, start), jnp.asarray(weights * dataset.labels)
        )
        gradient = jax.tree.map(np.asarray, gradient)
    share = start.multiplicity / start.num_heads

    def per_head(leaf):
        return leaf / start.multiplicity.reshape(-1, *(1,) * (leaf.ndim - 1))

    one = jax.tree.map(per_head, gradient)
    norm = math.sqrt(float(np.sum(share * _class_squares(one))))
    if not norm > 0:
        raise ValueError("the tangent features cancel: no direction separates the data; use another start")
    return Direction(name, jax.tree.map(lambda leaf: leaf * (math.sqrt(2) / norm), one))


def tangent_margins(direction: Direction, start: MultiHead, dataset: Dataset) -> np.ndarray:
    r"""$y_i\langle\nabla\tilde\Phi(X_i;\theta_0),\theta_*\rangle$ for every sequence."""
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start.heads)
        unit = jax.tree.map(lambda leaf: jnp.asarray(leaf / math.sqrt(start.num_heads)), direction.heads)
        slopes = _push_forward(
            heads, unit, head_weights(start), prepare(dataset, start), num_examples=dataset.num_examples
        )
        return dataset.labels * np.asarray(slopes)


def along(
    direction: Direction, scale: float, start: MultiHead, dataset: Dataset, loss: str | Loss = "logistic"
) -> Target:
    """The target θ_0 + scale·θ_*."""
    displacement = direction.displacement(scale, start.num_heads)
    return measure_target(f"{direction.name}, scale {scale:.4g}", start, dataset, displacement, loss)


def attention_target(start: MultiHead, dataset: Dataset, mixture, sharpness: float | None = None) -> Target:
    r"""The target of Section 5.3 in every head: $U_h=\frac{\log n}{\gamma_{attn}}H^{-1/2}U_{opt}$, $W_h=\Gamma
    W_{opt}$.

    `sharpness` is $\Gamma$; by default the one of Proposition 3 that leaves an irrelevant mass of $1/n$.
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
    return measure_target("the attention target of Section 5.3", start, dataset, displacement)


def proximal_target(
    start: MultiHead, dataset: Dataset, *, step_size: float, num_steps: float, loss: str | Loss = "logistic"
) -> Target:
    r"""Minimizer of $\hat L(\theta)+\|\theta-\theta_0\|^2/(2\eta K)$ found by L-BFGS, constant on each class.

    Any point is a legitimate target; this one makes the certificate along the run small.
    """
    strength = 1 / (step_size * num_steps)
    n = dataset.num_examples
    loss = get_loss(loss)
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start.heads)
        leaves, tree = jax.tree.flatten(heads)
        shapes = [leaf.shape for leaf in leaves]
        sizes = np.cumsum([0, *(leaf.size for leaf in leaves)])
        roots = [np.sqrt(start.multiplicity).reshape(-1, *(1,) * (len(s) - 1)) for s in shapes]
        weights, batch, mean = head_weights(start), prepare(dataset, start), jnp.full(n, 1 / n)

        def unpack(flat):  # class coordinates sqrt(N) * displacement -> displacement of one head
            parts = [flat[a:b].reshape(s) for a, b, s in zip(sizes, sizes[1:], shapes, strict=False)]
            return [part / root for part, root in zip(parts, roots, strict=True)]

        def objective(flat):
            value, gradient = _value_and_gradient(heads, tree.unflatten(unpack(flat)), weights, batch, mean, loss=loss)
            slopes = [np.asarray(g) * root for g, root in zip(jax.tree.leaves(gradient), roots, strict=True)]
            total = np.concatenate([s.ravel() for s in slopes]) + strength * flat
            return float(value) + 0.5 * strength * float(flat @ flat), total

        found = scipy.optimize.minimize(
            objective, np.zeros(sizes[-1]), jac=True, method="L-BFGS-B",
            options={"maxiter": 2000, "maxfun": 4000, "gtol": 1e-9, "ftol": 1e-14, "maxcor": 20},
        )  # fmt: skip
        displacement = tree.unflatten(unpack(found.x))
    return measure_target("the proximal target", start, dataset, displacement, loss)


def losses_along(direction: Direction, scales: np.ndarray, start: MultiHead, dataset: Dataset) -> np.ndarray:
    """Train loss at θ_0 + scale·θ_* for many scales at once (logistic)."""
    with jax.enable_x64(True):
        return np.asarray(
            _losses_along(
                jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), start.heads),
                jax.tree.map(lambda leaf: jnp.asarray(leaf / math.sqrt(start.num_heads)), direction.heads),
                jnp.asarray(scales, jnp.float64),
                head_weights(start),
                prepare(dataset, start),
                jnp.asarray(dataset.labels),
            )
        )


@jax.jit
def _losses_along(heads, unit, scales, weights, batch, labels):
    def one(scale):
        point = jax.tree.map(lambda a, b: a + scale * b, heads, unit)
        return jnp.mean(LOGISTIC.value(labels * batch_scores(point, weights, batch, labels.shape[0])))

    return jax.lax.map(one, scales)


@partial(jax.jit, static_argnames="loss")
def _value_and_gradient(heads, displacement, weights, batch, sample_weight, *, loss):
    point = jax.tree.map(jnp.add, heads, displacement)
    value, _, gradient = loss_and_gradient(point, weights, batch, sample_weight, loss=loss)
    return value, gradient


@partial(jax.jit, static_argnames="num_examples")
def _push_forward(heads, direction, weights, batch, *, num_examples):
    return jax.jvp(lambda h: batch_scores(h, weights, batch, num_examples), (heads,), (direction,))[1]


@jax.jit
def _pull_back(heads, weights, batch, cotangent):
    _, back = jax.vjp(lambda h: batch_scores(h, weights, batch, cotangent.shape[0]), heads)
    return back(cotangent)[0]


def _class_squares(heads: Heads) -> np.ndarray:
    """Squared norm of one head of each class."""
    return sum(np.sum(np.asarray(leaf).reshape(len(leaf), -1) ** 2, axis=1) for leaf in jax.tree.leaves(heads))


def parameter_norm(heads: Heads) -> float:
    r"""$\|\theta\|_{2,\infty}$: the largest norm of one head."""
    return float(np.sqrt(np.max(_class_squares(heads))))


def readout_norm(model: MultiHead, dataset: Dataset) -> float:
    r"""$\|U\|_{2,\infty}$, with $U = 1_T u^\top$ counted in full for a pooled readout."""
    U = np.asarray(model.readout, np.float64).reshape(model.num_classes, -1)
    return float(math.sqrt(readout_repeat(model, dataset)) * np.linalg.norm(U, axis=1).max())


def readout_repeat(model: MultiHead, dataset: Dataset) -> float:
    """How often the stored readout of a head occurs in U: T times for a pooled one."""
    return float(dataset.num_tokens) if model.decoder == "pooled" else 1.0
