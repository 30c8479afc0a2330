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
from manyheads.measures.tangent_features import Columns
from manyheads.measures.working_set import grow
from manyheads.model import autodiff, gradient
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.theory.deora2023.sharper import ENLARGE, EXACT_UP_TO

if TYPE_CHECKING:
    from manyheads.data.dataset import Dataset
    from manyheads.measures.neighborhood import Drift, Neighborhood
    from manyheads.model.attention import Heads, MultiHead


# token norms and weights whose products float64 holds
SMALLEST, LARGEST = 1e-50, 1e50
# of the margin of many sequences, which a direction may miss
NEARLY = 0.02
# bytes of the columns of a working set
MEMORY = 1e9
# vectors at most; a step that gains less is the last
LANCZOS, ENOUGH = 40, 0.98
RATIOS = np.linspace(0, 1, 21)
# of a box of margins
CELLS = 16


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
    near: np.ndarray | None = None  # a working set for the direction, from the center before

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def at(
        cls,
        model: MultiHead,
        dataset: Dataset,
        loss: Loss = LOGISTIC,
        near: np.ndarray | None = None,
    ) -> Center:
        margins = dataset.labels * model.scores(dataset)
        if dataset.num_examples <= EXACT_UP_TO:
            found = kernels.tangent_kernel(model, dataset)
            kernel, accuracy = found.matrix, found.accuracy
            square = kernel.diagonal()
        else:
            kernel, square = None, autodiff.gradient_norms(model, dataset) ** 2
            accuracy = 0.0
        norms = np.sqrt(square) * (1 + ENLARGE + accuracy)
        return cls(model, dataset, loss, margins, kernel, norms, accuracy, near)

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
        if self.kernel is None:
            coefficients = self._working_set[1]
        else:
            try:
                found = separations.hard_margin(
                    self.dataset.labels, gram=self.kernel, tolerance=1e-4, gram_accuracy=1e-13
                )
            except ValueError:  # the kernel is rounding
                return None, 0.0
            coefficients = np.maximum(found.direction, 0.0) if found.lower > 0 else None
        if coefficients is None:
            return None, 0.0
        vector = _features(self.model, self.dataset, coefficients)
        length = math.sqrt(sum(float(np.sum(leaf**2)) for leaf in vector))
        unit = jax.tree.map(lambda leaf: leaf * ((1 - 1e-12) / length), vector)
        along = float(self.ball.margins(unit, 0.0).min()) if self.kernel is None else found.lower
        return (unit, along) if along > 0 else (None, along)

    @cached_property
    def _working_set(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Of many sequences: a working set, and the coefficients of a direction that separates all of them."""
        n, y = self.dataset.num_examples, self.dataset.labels.astype(float)
        columns = Columns(self.model, self.dataset, MEMORY)
        grown = grow(
            n,
            lambda chosen: columns.solve(chosen, y, NEARLY),
            NEARLY,
            columns.most,
            first=self.near,
        )
        coefficients = np.zeros(n)
        coefficients[grown.chosen] = np.maximum(grown.direction, 0.0)
        holding = grown.chosen[grown.direction > 0]
        return holding, coefficients if grown.lower > 0 else None

    @cached_property
    def ball(self) -> Neighborhood:
        return neighborhood.Neighborhood(self.model, self.dataset)

    def moved(self, direction: Heads, length: float) -> Center:
        root = np.sqrt(self.model.multiplicity)
        step = jax.tree.map(
            lambda leaf: length * leaf / root.reshape(-1, *(1,) * (leaf.ndim - 1)), direction
        )
        near = None if self.kernel is not None else self._working_set[0]
        return Center.at(self.model.displaced(step), self.dataset, self.loss, near)

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

    It is $\mu$ plus the mean of the least $w-\mu\ell$ over the boxes, where that is positive, over
    `level`.
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

    For the logistic loss $w-\mu\ell$ has one maximum in $m$, so it is least at an end, and $w/\ell$
    falls with the loss. For another loss a box is cut into cells: both $w$ and $\ell$ fall with
    $m$, so over a cell $w$ is at least that of its upper end, and the loss at most that of its
    lower end.
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
    # the largest second derivative over the box
    bend = np.full_like(low, loss.smoothness)
    if loss.peak is not None:
        bend = loss.curvature_at(np.clip(loss.peak, low, high))
    if state.kernel is None:
        top = top_eigenvalue(state, bend)
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


def top_eigenvalue(state: Center, bend: np.ndarray) -> float:
    r"""An upper bound on the largest eigenvalue of $M=\frac1n\sum_i b_i\varphi_i\varphi_i^\top$, without a kernel.

    Lanczos' vectors V split M into blocks: $A=V^\top MV$, the residual $B=MV-VA$, and a rest whose
    norm is at most its trace, $\mathrm{tr}M-\mathrm{tr}A$. The norm of M is at most that of the 2 x
    2 matrix of these three norms.
    """
    root, n = np.sqrt(bend), len(bend)
    counts = np.sqrt(state.model.multiplicity)

    def product(v):
        moved = _features(state.model, state.dataset, root * v * state.dataset.labels)
        one = jax.tree.map(lambda leaf: leaf / counts.reshape(-1, *(1,) * (leaf.ndim - 1)), moved)
        return root * autodiff.slopes(state.model, state.dataset, one) / n

    trace = float(np.mean(bend * state.norms**2))
    V, MV, best = np.zeros((n, 0)), np.zeros((n, 0)), trace
    vector = root * state.norms
    for _ in range(LANCZOS):
        # once more: what rounding left
        for _ in range(2):
            vector = vector - V @ (V.T @ vector)
        length = float(np.linalg.norm(vector))
        if not 0 < length < math.inf:
            break
        V = np.column_stack([V, vector / length])
        MV = np.column_stack([MV, product(V[:, -1])])
        A = V.T @ MV
        residual = MV - V @ A
        held, beside = (float(np.linalg.norm(part, 2)) for part in (A, residual))
        rest = max(trace - float(np.trace(A)), 0.0) + 1e-10 * trace
        bound = (held + rest + math.hypot(held - rest, 2 * beside)) / 2
        done = bound > ENOUGH * best
        best, vector = min(best, bound), MV[:, -1]
        if done and rest < held:
            break
    return best * (1 + ENLARGE)


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
