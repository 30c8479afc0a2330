r"""The paper's ladder of margins for a data set, each with its normalization.

On the **readout scale** (score over $\|\tilde U\|_F$): $\gamma_{lin}$ of the linear model,
$\gamma_{attn}$ of attention that sees relevant tokens only, the margin of the current iterate, and
the best one found over all attention weights. On the **tangent scale** (linearized score,
directions of norm $\sqrt 2$ as in P3): the best margin of the tangent kernel and the one along the
paper's $\theta_*$. Numbers on different scales do not compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from manyheads import _check
from manyheads._check import check, none, share, whole
from manyheads.data.budget import descent_seconds, fits_memory, fits_time
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import TokenizedMixture, is_mixture
from manyheads.measures.kernel import tangent_kernel
from manyheads.measures.margin import MarginInterval, hard_margin
from manyheads.measures.rounding import score_error, slope_error
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.autodiff import is_model, slopes
from manyheads.model.variants import attention_of


@dataclass(frozen=True, eq=False)
class MarginLadder:
    """The margins on both scales.

    Readout scale: `linear`, `attention` (None without relevant tokens), `iterate`, `iterate_moved`
    (over ‖U − U₀‖; None without a start), `found` (a lower bound on the best margin of any
    attention). Tangent scale, for the start (or the model): `tangent` and `along_star` (None
    without a mixture), both for directions of norm √2. Intervals are proved; `accuracy` has the
    rounding that `iterate`, `iterate_moved` and `along_star` may have, by their names. A model
    other than attention has no readout scale: its `iterate` and `iterate_moved` are None.
    """

    linear: MarginInterval
    attention: MarginInterval | None
    iterate: float | None
    iterate_moved: float | None
    found: MarginInterval
    tangent: MarginInterval
    along_star: float | None
    accuracy: dict[str, float]

    def __str__(self) -> str:
        lines = [
            "margins on the readout scale, min y·score / ‖U‖:",
            f"  linear model        {self.linear}",
        ]
        if self.attention is not None:
            lines.append(f"  relevant tokens     {self.attention}")
        if self.iterate is not None:
            lines.append(
                f"  this model          {self.iterate:.10g} ± {self.accuracy['iterate']:.1e}"
            )
        if self.iterate_moved is not None:
            lines.append(
                f"  this model, ‖U−U₀‖  {self.iterate_moved:.10g} ± "
                f"{self.accuracy['iterate_moved']:.1e}"
            )
        lines.append(
            f"  best found          at least {self.found.lower:.10g} (a lower bound by search)"
        )
        low, high = self.tangent.p3_interval
        lines += [
            "margins on the tangent scale, directions of norm √2:",
            f"  best direction      in [{low:.10g}, {high:.10g}]",
        ]
        if self.along_star is not None:
            lines.append(
                f"  along theta_*       {self.along_star:.10g} ± {self.accuracy['along_star']:.1e}"
            )
        return "\n".join(lines)


@check(
    model=is_model,
    dataset=is_dataset,
    start=is_model | none,
    mixture=is_mixture | none,
    num_starts=whole(),
    num_steps=whole(0),
    key=_check.key,
)
def margin_ladder(
    model: Any,
    dataset: Dataset,
    *,
    start: Any = None,
    mixture: TokenizedMixture | None = None,
    num_starts: int = 16,
    num_steps: int = 300,
    key: jax.Array,
) -> MarginLadder:
    """All margins of a data set and a model. `start` is where the run began: its tangent kernel is the one of P3."""
    origin = model if start is None else start
    full, kernel = attention_of(model), tangent_kernel(origin, dataset)
    values: dict[str, float | None] = dict.fromkeys(("iterate", "iterate_moved", "along_star"))
    accuracy: dict[str, float] = {}
    if mixture is not None:
        values["along_star"], accuracy["along_star"] = margin_along(
            origin, dataset, paper_direction(origin, mixture)
        )
    if full is not None:
        values["iterate"], accuracy["iterate"] = iterate_margin(full, dataset)
    if full is not None and start is not None:
        values["iterate_moved"], accuracy["iterate_moved"] = iterate_margin(
            full, dataset, start=attention_of(origin)
        )
    return MarginLadder(
        linear=linear_margin(dataset),
        attention=None if dataset.relevant is None else attention_margin(dataset),
        found=found_margin(dataset, num_starts=num_starts, num_steps=num_steps, key=key),
        tangent=hard_margin(dataset.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy),
        accuracy=accuracy,
        **values,
    )


@check(dataset=is_dataset, tolerance=share)
def linear_margin(dataset: Dataset, tolerance: float = 1e-6) -> MarginInterval:
    r"""$\gamma_{lin} = \max_{\|U\|_F = 1} \min_i y_i \langle U, X_i \rangle$; padding counts as zeros."""
    X = dataset.tokens if dataset.mask is None else dataset.tokens * dataset.mask[:, :, None]
    return hard_margin(dataset.labels, features=X.reshape(len(X), -1), tolerance=tolerance)


@check(dataset=is_dataset, tolerance=share)
def attention_margin(dataset: Dataset, tolerance: float = 1e-6) -> MarginInterval:
    r"""$\gamma_{attn}$: the same with every query attending uniformly to the relevant tokens.

    The features are then $1_{\text{real}} \bar x_{\mathcal R}^\top$: one row for every real query.
    Without a mask their margin is $\sqrt T$ times that of the mean relevant tokens; $S\sqrt{T/2}$
    for the noiseless mixture.
    """
    if dataset.relevant is None:
        raise ValueError(
            "the relevant tokens are not known; pass relevant= to Dataset.from_arrays, or use "
            "another margin."
        )
    mask = np.ones(dataset.relevant.shape, bool) if dataset.mask is None else dataset.mask
    R = (dataset.relevant & mask).astype(float)
    if not R.any(axis=1).all():
        raise ValueError(
            f"sequence {int(np.argmin(R.any(axis=1)))} has no relevant token; attention to them is "
            "undefined."
        )
    mean = np.einsum("nt,ntd->nd", R / R.sum(axis=1, keepdims=True), dataset.tokens)
    if dataset.mask is None:
        features = np.sqrt(dataset.num_tokens) * mean
    else:
        features = (mask[:, :, None] * mean[:, None, :]).reshape(len(mean), -1)
    return hard_margin(dataset.labels, features=features, tolerance=tolerance)


def frobenius_norm(model: MultiHead, num_tokens: int, start: MultiHead | None = None) -> float:
    r"""$\|\tilde U\|_F$ of all heads as the T×d matrices they stand for, or $\|\tilde U - \tilde U_0\|_F$."""
    U = np.asarray(model.readout, float) - (
        0.0 if start is None else np.asarray(start.readout, float)
    )
    square = model.multiplicity @ np.sum(U.reshape(len(U), -1) ** 2, axis=1)
    return float(np.sqrt(square * (num_tokens if model.decoder == "pooled" else 1)))


def iterate_margin(
    model: MultiHead, dataset: Dataset, *, start: MultiHead | None = None
) -> tuple[float, float]:
    r"""$\min_i y_i \tilde\Phi(X_i) / \|\tilde U\|_F$ (with `start`, $\|\tilde U - \tilde U_0\|_F$) and its rounding.

    Heads that started with cancelling readouts dilute the first; the second measures what training
    added. The rounding is that of the scores, and that of a small difference of readouts.
    """
    size = frobenius_norm(model, dataset.num_tokens, start)
    least = float(np.min(dataset.labels * model.scores(dataset)))
    if size == 0:
        return 0.0 if least == 0 else float(np.copysign(np.inf, least)), 0.0
    lost = 4 + (0 if start is None else 2 * frobenius_norm(model, dataset.num_tokens) / size)
    rounding = np.finfo(float).eps * (score_error(model, dataset) / size + lost * abs(least / size))
    return least / size, float(rounding)


def paper_direction(model: MultiHead, mixture: TokenizedMixture) -> Heads:
    r"""$\tilde\theta_* = H^{-1/2}(\bar U_*, \operatorname{sign}(\alpha_h) \bar W_*)_h$, of norm $\sqrt2$, by classes.

    The sign of $\alpha_h$ is read off the readout: that of $\langle U_h, U_*\rangle$ (plus for
    zero).
    """
    if not isinstance(model, MultiHead):
        raise ValueError(
            "the paper's direction moves both blocks of a MultiHead; leave mixture= out for "
            f"{model}."
        )
    if model.decoder != "full":
        raise ValueError(
            "the paper's direction is for a full readout; this model has "
            f"decoder={model.decoder!r}."
        )
    if isinstance(model.key_query, tuple):
        raise ValueError(
            "the paper's direction is for full key-query weights; this model has factored ones."
        )
    U, W, H = mixture.U_opt, mixture.W_opt, model.num_heads
    sign = np.where(np.einsum("gtd,td->g", np.asarray(model.readout, float), U) < 0, -1.0, 1.0)
    classes = np.ones(model.num_classes)[:, None, None] / np.sqrt(H)
    return Heads(sign[:, None, None] * W * classes, U * classes)


def margin_along(model: MultiHead, dataset: Dataset, direction: Heads) -> tuple[float, float]:
    r"""$\min_i y_i \langle \nabla\tilde\Phi(X_i), \theta \rangle$ and the rounding in it.

    $\theta$ moves one head of each class and is not normalized.
    """
    rounding = np.finfo(float).eps * slope_error(model, dataset, direction)
    return float(np.min(dataset.labels * slopes(model, dataset, Heads(*direction)))), float(
        rounding
    )


@check(
    dataset=is_dataset,
    num_starts=whole(),
    num_steps=whole(0),
    key=_check.key,
    tolerance=share,
)
def found_margin(
    dataset: Dataset,
    *,
    num_starts: int = 16,
    num_steps: int = 300,
    key: jax.Array,
    tolerance: float = 1e-6,
) -> MarginInterval:
    """The best readout-scale margin found over one attention head: a lower bound on the best there is.

    From many starts, ascent on a smoothed margin over attention and readout; then, for the best
    attention of each, the exact margin of the readout. Only the lower end of the interval is a
    statement about all attention weights.
    """
    n, T, d = dataset.tokens.shape
    fits_memory(
        f"{num_starts:,} starts",
        8.0 * num_starts * (2 * d * d + T * d + n * T * d),
        "pass fewer num_starts",
    )
    fits_time(
        f"{num_starts:,} ascents",
        num_starts * descent_seconds(num_steps, n, T, d, 1),
        "pass fewer num_steps",
    )
    size = max(dataset.token_radius, 1.0)
    mask = np.ones((n, T), bool) if dataset.mask is None else dataset.mask
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    scales = (
        np.concatenate([[0.0], np.geomspace(0.1, 10, max(num_starts - 1, 1))])[:num_starts]
        / size**2
    )
    W = rng.standard_normal((num_starts, d, d)) / np.sqrt(d) * scales[:, None, None]
    U = np.tile(
        np.mean(dataset.labels[:, None, None] * dataset.tokens * mask[:, :, None], axis=0),
        (num_starts, 1, 1),
    )
    with jax.enable_x64(True):
        X, y, real = (jnp.asarray(a) for a in (dataset.tokens, dataset.labels, mask))
        W = jax.lax.map(
            lambda pair: _ascend(pair, X, y, real, num_steps), (jnp.asarray(W), jnp.asarray(U))
        )
        features = np.asarray(jax.lax.map(lambda w: _attended(w, X, real), W))
    margins = [
        hard_margin(dataset.labels, features=F.reshape(n, -1), tolerance=tolerance)
        for F in features
    ]
    return max(margins, key=lambda margin: margin.lower)


def _attended(W, X, mask):
    S = jnp.where(mask[:, None, :], jnp.einsum("ntd,de,nse->nts", X, W, X), -jnp.inf)
    return jnp.einsum("nts,nsd->ntd", jax.nn.softmax(S, axis=-1), X) * mask[:, :, None]


@partial(jax.jit, static_argnums=4)
def _ascend(start, X, y, mask, num_steps):
    """Adam on the soft minimum of the normalized margins, which hardens along the way."""
    W, U = start
    adam = optax.adam(optax.cosine_decay_schedule(0.05, max(num_steps, 1)))
    unit = jnp.sqrt(jnp.mean(jnp.sum(X**2, axis=(1, 2))))

    def smooth(pair, sharpness):
        W, U = pair
        margins = (
            y
            * jnp.einsum("ntd,td->n", _attended(W, X, mask), U)
            / (jnp.sqrt(jnp.sum(U**2)) + 1e-30)
            / unit
        )
        return jax.nn.logsumexp(-sharpness * margins) / sharpness

    def step(state, k):
        pair, memory = state
        sharpness = 10.0 * 100.0 ** (k / max(num_steps, 1))
        moves, memory = adam.update(jax.grad(smooth)(pair, sharpness), memory)
        return (optax.apply_updates(pair, moves), memory), None

    pair = (W, U)
    (pair, _), _ = jax.lax.scan(step, (pair, adam.init(pair)), jnp.arange(num_steps, dtype=float))
    return pair[0]
