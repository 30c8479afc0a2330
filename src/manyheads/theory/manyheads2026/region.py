"""The centers of a forecast's region, and the three bounds over a ball around one: docs/theory/forecast.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.measures import kernel as kernels
from manyheads.measures import margin as separations
from manyheads.measures import neighborhood
from manyheads.model import autodiff, gradient
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.theory.deora2023.sharper import ENLARGE, EXACT_UP_TO

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.measures.neighborhood import Drift, Neighborhood
    from manyheads.model.attention import Heads, MultiHead


SMALLEST, LARGEST = 1e-50, 1e50  # token norms and weights whose products float64 holds
RATIOS = np.linspace(0, 1, 21)
CELLS = 16  # of a box of margins


@dataclass(frozen=True, eq=False)
class Center:
    """A center of the region: the model there, its margins and its tangent kernel."""

    model: MultiHead
    dataset: Dataset
    loss: Loss
    margins: np.ndarray
    kernel: np.ndarray | None  # None for many sequences
    norms: np.ndarray  # of the tangent features
    accuracy: float  # of an entry of the kernel, relative to the norms of two features

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def at(cls, model: MultiHead, dataset: Dataset, loss: Loss = LOGISTIC) -> Center:
        margins = dataset.labels * model.scores(dataset)
        if dataset.num_examples <= EXACT_UP_TO:
            found = kernels.tangent_kernel(model, dataset)
            kernel, accuracy = found.matrix, found.accuracy
            square = kernel.diagonal()
        else:
            kernel, square = None, autodiff.gradient_norms(model, dataset) ** 2
            accuracy = 0.0
        norms = np.sqrt(square) * (1 + ENLARGE + accuracy)
        return cls(model, dataset, loss, margins, kernel, norms, accuracy)

    @cached_property
    def trouble(self) -> str:
        """Why the bounds prove nothing here; empty where they may."""
        weights = [np.abs(leaf).max() for leaf in jax.tree.leaves(self.model.heads)]
        values = [self.margins, self.norms, 0.0 if self.kernel is None else self.kernel]
        in_range = SMALLEST <= self.dataset.token_radius <= LARGEST and max(weights) <= LARGEST
        if not in_range or not all(np.isfinite(value).all() for value in values):
            return "range"
        return "" if self.ball.known else "logits"

    @cached_property
    def direction(self) -> tuple[Heads | None, float]:
        """A direction, at most a unit vector in class coordinates, and the margin of the tangent features along it."""
        y = self.dataset.labels
        if self.kernel is None:
            coefficients = self.loss.slope_at(self.margins) / np.sum(
                self.loss.slope_at(self.margins)
            )
        else:
            try:
                found = separations.hard_margin(
                    y, gram=self.kernel, tolerance=1e-4, gram_accuracy=1e-13
                )
            except ValueError:  # the kernel is rounding
                return None, 0.0
            if found.lower <= 0:
                return None, 0.0
            coefficients = np.maximum(found.direction, 0.0)
        vector = _features(self.model, self.dataset, coefficients)
        length = math.sqrt(sum(float(np.sum(leaf**2)) for leaf in vector))
        unit = jax.tree.map(lambda leaf: leaf * ((1 - 1e-12) / length), vector)
        along = float(self.ball.margins(unit, 0.0).min()) if self.kernel is None else found.lower
        return (unit, along) if along > 0 else (None, along)

    @cached_property
    def ball(self) -> Neighborhood:
        return neighborhood.Neighborhood(self.model, self.dataset)

    def moved(self, direction: Heads, length: float) -> Center:
        root = np.sqrt(self.model.multiplicity)
        step = jax.tree.map(
            lambda leaf: length * leaf / root.reshape(-1, *(1,) * (leaf.ndim - 1)), direction
        )
        return Center.at(self.model.displaced(step), self.dataset, self.loss)

    @cached_property
    def indicator(self) -> float:
        r"""$\chi=\gamma^2/\max_i\|\nabla^2m_i\|$: a cheap first estimate, larger where more is certified."""
        if self.trouble:
            return 0.0
        _, along = self.direction
        along, curved = max(along, 0.0), float(self.ball.drift(0.0).curvature.max())
        return along / curved * along if curved > 0 else math.inf


def margin_box(state: Center, drift: Drift, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """The interval in which each margin stays over a ball."""
    width = radius * (state.norms + radius / 2 * drift.curvature)
    width = width * (1 + ENLARGE) + 1e-12 * np.abs(state.margins)
    return state.margins - width, state.margins + width


def ratio_bound(low: np.ndarray, high: np.ndarray, level: float, loss: Loss = LOGISTIC) -> float:
    r"""A lower bound on mean slope over mean loss, where the loss is at most `level`.

    It is $\mu$ plus the mean of the least $w-\mu\ell$ over the boxes, where that is positive, over `level`.
    """
    share, floor = floors(low, high, loss)
    bounds = [share]
    for mu in RATIOS * loss.self_bound:
        rest = np.mean(floor(mu))
        if rest > 0:
            bounds.append(float(mu + rest / level))
    return max(bounds) * (1 - ENLARGE)


def floors(
    low: np.ndarray, high: np.ndarray, loss: Loss
) -> tuple[float, Callable[[float], np.ndarray]]:
    r"""The least $w/\ell$ over boxes of margins, and the least $w-\mu\ell$ over each as a function of $\mu$.

    For the logistic loss $w-\mu\ell$ has one maximum in $m$, so it is least at an end, and $w/\ell$ falls with the
    loss. For another loss a box is cut into cells: both $w$ and $\ell$ fall with $m$, so over a cell $w$ is at least
    that of its upper end, and the loss at most that of its lower end.
    """
    if loss is LOGISTIC:
        worst = loss.at(low)
        share = np.divide(-np.expm1(-worst), worst, out=np.ones_like(worst), where=worst > 0)
        ends = tuple((loss.slope_at(m), loss.at(m)) for m in (low, high))
        return float(np.min(share)), lambda mu: np.minimum(*(w - mu * value for w, value in ends))
    edges = low + (high - low) * np.linspace(0, 1, CELLS + 1)[:, None]
    edges[-1] = high
    least, most = loss.slope_at(edges[1:]), loss.at(edges[:-1])
    share = np.divide(least, most, out=np.zeros_like(least), where=most > 0)
    return float(np.min(share)), lambda mu: np.min(least - mu * most, axis=0)


def smoothness_bound(state: Center, drift: Drift, radius: float, level: float) -> float:
    """An upper bound on the Hessian of the loss over a ball, where the loss is at most `level`."""
    low, high = margin_box(state, drift, radius)
    loss = state.loss
    bend = np.full_like(low, loss.smoothness)  # the largest second derivative over the box
    if loss.peak is not None:
        bend = loss.curvature_at(np.clip(loss.peak, low, high))
    if state.kernel is None:
        top = float(np.mean(bend * state.norms**2))
    else:
        root = np.sqrt(bend)
        top = float(np.linalg.eigvalsh(root[:, None] * state.kernel * root / len(bend))[-1])
        top += state.accuracy * float(np.mean(bend * state.norms**2))
    features = (math.sqrt(max(top, 0.0)) + math.sqrt(float(np.mean(bend * drift.gradient**2)))) ** 2
    features = min(
        features, loss.self_curvature * level * float(np.max(state.norms + drift.gradient)) ** 2
    )
    scores = min(
        loss.self_bound * level * float(drift.curvature.max()),
        float(np.mean(loss.slope_at(low) * drift.curvature)),
    )
    return (features + scores) * (1 + ENLARGE)


def smoothness_per_loss(state: Center, drift: Drift) -> float:
    """An upper bound over a ball on the Hessian of the loss, over the loss itself."""
    loss = state.loss
    features = loss.self_curvature * float(np.max(state.norms + drift.gradient)) ** 2
    return (features + loss.self_bound * float(drift.curvature.max())) * (1 + ENLARGE)


def _features(model: MultiHead, dataset: Dataset, coefficients: np.ndarray) -> Heads:
    r"""$\sum_i a_i y_i\nabla\tilde\Phi(X_i)$ in class coordinates."""
    with jax.enable_x64(True):
        heads = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.heads)
        batch, weights = gradient.prepare(dataset, model), gradient.head_weights(model)
        found = _weighted(heads, weights, batch, np.asarray(coefficients, np.float64))
        root = np.sqrt(model.multiplicity)
        return jax.tree.map(
            lambda leaf: np.asarray(leaf) * root.reshape(-1, *(1,) * (leaf.ndim - 1)), found
        )


@jax.jit
def _weighted(heads, weights, batch, coefficients) -> Any:
    def score(parameters):
        scores = gradient.batch_scores(parameters, weights, batch, coefficients.shape[0])
        return jnp.sum(coefficients * batch.labels.reshape(-1)[: coefficients.shape[0]] * scores)

    return jax.grad(score)(heads)
