"""The best margin of the model at parameter norm √2, found by ascent, and the best tangent margins of its starts."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads.data.dataset import Dataset
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.gradient import Weights, batch_scores, head_weights, prepare
from manyheads.studies.kit.cells import coordinate, mixture_of, p3_margin
from manyheads.sweeps.plan import Cell
from manyheads.sweeps.setup import set_up, stream
from manyheads.training.start import first_phase, gaussian_start, zero_start

NORM = np.sqrt(2.0)
SHARPNESS = (3.0, 1000.0)  # of the soft minimum, first and last
RATES = (0.05, 0.0005)  # of Adam, first and last, for parameters of norm √2
ASCENTS = 50  # first stream of a seed that the ascents use


def compare(cell: Cell, *, ascents: int, steps: int, norms: list[float]) -> dict:
    r"""`found`: the largest $\min_i y_i\tilde\Phi(X_i;\theta)$ over $\|\theta\|=\sqrt2$ that the ascents reached.

    It is attained, so the best margin is at least this. `tangent`: the best tangent margin of each kind of start for
    directions of norm $\sqrt2$, where the start itself is scaled to each of the `norms`: tangent features depend on
    it. The zero start has norm 0 at any of these norms. `key_query_share`: part of the squared norm that the
    best point gives to W; `heads_used`: how many heads carry its norm (participation ratio); `focus`: its attention on
    relevant tokens.
    """
    setup = set_up(cell)
    data, heads = setup.dataset, cell.model.num_heads
    T, d = data.num_tokens, data.dim
    if setup.first is None:
        raise ValueError(
            f"start.kind = {cell.start.kind!r} draws no first-phase data; write start.kind = 'first_phase'."
        )
    starts = {
        "zero": zero_start(heads, num_tokens=T, dim=d),
        "first_phase": first_phase(setup.first, heads),
        "gaussian": gaussian_start(heads, num_tokens=T, dim=d, key=stream(cell.seed, ASCENTS - 1)),
    }
    tangent = np.stack([_margins(start, data, norms) for start in starts.values()])
    found, point = best_margin(
        data, int(heads), [_first_point(setup, i) for i in range(ascents)], steps
    )
    squares = [np.sum(leaf.reshape(len(leaf), -1) ** 2, axis=1) for leaf in point]
    per_head = squares[0] + squares[1]
    focus = MultiHead(point.key_query, point.readout, np.ones(int(heads)))
    return {
        "found": found,
        "tangent": (("start_kind", "norm"), tangent),
        "start_norm": coordinate("norm", norms),
        "key_query_share": float(squares[0].sum() / NORM**2),
        "heads_used": float(per_head.sum() ** 2 / np.sum(per_head**2)),
        "focus": _focus(focus, data, per_head / per_head.sum()),
    }


def _margins(start: MultiHead, data: Dataset, norms: list[float]) -> list[float]:
    """The best tangent margin of a start scaled to each parameter norm; the zero start is not scaled."""
    squares = sum(
        np.sum(np.asarray(leaf, float).reshape(len(leaf), -1) ** 2, axis=1) for leaf in start.heads
    )
    size = float(np.sqrt(squares @ start.multiplicity))
    if size == 0:
        return [p3_margin(start, data)] * len(norms)
    scaled = (Heads(*(np.asarray(leaf) * (norm / size) for leaf in start.heads)) for norm in norms)
    return [
        p3_margin(MultiHead(one.key_query, one.readout, start.multiplicity), data) for one in scaled
    ]


def _first_point(setup, i: int) -> Heads:
    """Where an ascent begins: one head along the paper's optimum, all heads along it, and then Gaussian points."""
    task, heads = mixture_of(setup), int(setup.cell.model.num_heads)
    d, T = task.dim, task.num_tokens
    noise = gaussian_start(heads, num_tokens=T, dim=d, key=stream(setup.cell.seed, ASCENTS + i))
    if i >= 2:
        return Heads(noise.key_query, noise.readout)
    weight = np.ones(heads) if i else np.eye(heads)[0]
    return Heads(
        weight[:, None, None] * task.W_opt + 0.01 * noise.key_query,
        weight[:, None, None] * task.U_opt + 0.01 * noise.readout,
    )


def best_margin(
    data: Dataset, num_heads: int, starts: list[Heads], steps: int
) -> tuple[float, Heads]:
    """The margin and position of the best point that ascents from `starts` reach on the sphere of radius √2."""
    with jax.enable_x64(True):
        stacked = jax.tree.map(
            lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float64) for leaf in leaves]), *starts
        )
        example = MultiHead(starts[0].key_query, starts[0].readout, np.ones(num_heads))
        batch, weights = prepare(data, example), head_weights(example)
        points = _climb(stacked, batch, weights, jnp.asarray(data.labels), steps=steps)
        points = jax.tree.map(np.asarray, points)
    candidates = [jax.tree.map(lambda leaf, i=i: leaf[i], points) for i in range(len(starts))]
    margins = [
        np.min(
            data.labels * MultiHead(point.key_query, point.readout, np.ones(num_heads)).scores(data)
        )
        for point in candidates
    ]
    best = int(np.argmax(margins))
    return float(margins[best]), candidates[best]


@partial(jax.jit, static_argnames="steps")
def _climb(starts: Heads, batch, weights: Weights, labels, *, steps: int) -> Heads:
    decay = (RATES[1] / RATES[0]) ** (1 / steps)
    optimizer = optax.adam(optax.exponential_decay(RATES[0], 1, decay))
    sharpness = jnp.geomspace(*SHARPNESS, steps)

    def margins(point):
        return labels * batch_scores(point, weights, batch, labels.shape[0])

    def soft(point, sharp):
        values = margins(_on_sphere(point))
        return jax.nn.logsumexp(-sharp * values) / sharp, jnp.min(values)

    def one(start):
        def body(carry, sharp):
            point, state, best, best_point = carry
            (_, least), slope = jax.value_and_grad(soft, has_aux=True)(point, sharp)
            better = least > best
            best_point = jax.tree.map(lambda a, b: jnp.where(better, a, b), point, best_point)
            moves, state = optimizer.update(slope, state)
            point = _on_sphere(optax.apply_updates(point, moves))
            return (point, state, jnp.maximum(best, least), best_point), None

        start = _on_sphere(start)
        first = (start, optimizer.init(start), jnp.asarray(-jnp.inf, labels.dtype), start)
        return jax.lax.scan(body, first, sharpness)[0][3]

    return jax.lax.map(one, starts)


def _on_sphere(point: Any) -> Any:
    size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(point)))
    return jax.tree.map(lambda leaf: leaf * (NORM / size), point)


def _focus(model: MultiHead, data: Dataset, weight: np.ndarray) -> float:
    """Attention on relevant tokens, heads weighted by their part of the squared norm."""
    with jax.enable_x64(True):
        A = np.asarray(jax.vmap(model.attention)(jnp.asarray(data.tokens)))
    by_head = np.mean(np.einsum("nhts,ns->nht", A, np.asarray(data.relevant, float)), axis=(0, 2))
    return float(by_head @ weight)
