"""Losses of the margin m = y·score: convex, smooth, Lipschitz and self-bounded, each with its constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from manyheads._check import REFUSED, Constraint, array_of, checked
from manyheads._types import AnyArray


@dataclass(frozen=True)
class Loss:
    r"""A decreasing convex loss $\ell(m)$ of the margin $m$.

    The constants are the best ones: $|\ell'| \le$ `lipschitz`, $\ell'' \le$ `smoothness`, $|\ell'|
    \le$ `self_bound` $\cdot\, \ell$ and $\ell'' \le$ `self_curvature` $\cdot\, \ell$, for every
    $m$; infinite where there is none. `log_value` is $\log\ell$ and `log_slope` $\log|\ell'|$,
    exact where these underflow; without them normalized descent stops there. `inverse(times)` is a
    margin from which on the loss is at most 1/times (without it found by bisection), `numpy` the
    value, $|\ell'|$ and the curvature on NumPy arrays (JAX's without it), `peak` the margin up to
    which $\ell''$ rises and from which on it falls.
    """

    name: str
    value: Callable[[AnyArray], jax.Array]
    slope: Callable[[AnyArray], jax.Array]
    curvature: Callable[[AnyArray], jax.Array]
    lipschitz: float
    smoothness: float
    self_bound: float
    log_value: Callable[[AnyArray], jax.Array] | None = None
    log_slope: Callable[[AnyArray], jax.Array] | None = None
    self_curvature: float = math.inf
    inverse: Callable[[float], float] | None = None
    numpy: tuple[Callable, Callable, Callable] | None = None
    peak: float | None = None

    def at(self, m: Any) -> Any:
        """The loss of margins in float64, as NumPy."""
        return self._plain(0, self.value, m)

    def slope_at(self, m: Any) -> Any:
        r"""$|\ell'|$ at margins in float64, as NumPy."""
        return np.abs(self._plain(1, self.slope, m))

    def curvature_at(self, m: Any) -> Any:
        r"""$\ell''$ at margins in float64, as NumPy."""
        return self._plain(2, self.curvature, m)

    def _plain(self, which: int, function: Callable, m: Any) -> Any:
        if self.numpy is not None:
            return self.numpy[which](m)
        with jax.enable_x64(True):
            return np.asarray(function(jnp.asarray(m, jnp.float64)))[()]

    def margin_for(self, times: float) -> float:
        """A margin from which on the loss is at most 1/times; infinite where there is none below 1e12."""
        if self.inverse is not None:
            return self.inverse(times)
        level, low, high = 1 / times, -1.0, 1.0
        while self.at(high) > level:
            low, high = high, 2 * high
            if high > 1e12:
                return math.inf
        while self.at(low) <= level and low > -1e12:
            low, high = 2 * low, low
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if self.at(middle) > level else (low, middle)
        return high


def _log_logistic(m: AnyArray) -> jax.Array:
    # log log(1 + e^-m); for large margins log(1 + x) = x (1 - x/2 + x²/3 - ...) with x = e^-m
    x = jnp.exp(-jnp.maximum(m, 15.0))
    return jnp.where(
        m > 15.0,
        -m + jnp.log1p(x * (x / 3 - 0.5)),
        jnp.log(jnp.logaddexp(0.0, -jnp.minimum(m, 15.0))),
    )


def _logistic_slope(m: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, m))


def _hyperbolic(m: AnyArray) -> jax.Array:
    # sqrt(1 + m²) − m, without cancellation for large positive margins
    root = jnp.sqrt(1 + m * m)
    return jnp.where(m > 0, 1 / (root + jnp.abs(m)), root - m)


LOGISTIC = Loss(
    name="logistic",
    value=lambda m: jnp.logaddexp(0.0, -m),
    slope=lambda m: -jax.nn.sigmoid(-m),
    curvature=lambda m: jax.nn.sigmoid(m) * jax.nn.sigmoid(-m),
    lipschitz=1.0,
    smoothness=0.25,
    self_bound=1.0,
    log_value=_log_logistic,
    log_slope=lambda m: -jnp.logaddexp(0.0, m),
    self_curvature=1.0,
    inverse=math.log,
    peak=0.0,
    numpy=(
        lambda m: np.logaddexp(0.0, -m),
        _logistic_slope,
        lambda m: _logistic_slope(m) * _logistic_slope(-m),
    ),
)

HYPERBOLIC = Loss(
    name="hyperbolic",
    value=_hyperbolic,
    slope=lambda m: -_hyperbolic(m) / jnp.sqrt(1 + m * m),
    curvature=lambda m: jnp.power(1 + m * m, -1.5),
    lipschitz=2.0,
    smoothness=1.0,
    self_bound=1.0,
    log_value=lambda m: jnp.log(_hyperbolic(m)),
    log_slope=lambda m: jnp.log(_hyperbolic(m)) - 0.5 * jnp.log1p(m * m),
    self_curvature=32 / 27,
    inverse=lambda times: (times - 1 / times) / 2,
    peak=0.0,
)

# The score itself, for its derivatives: with weight y it is y·m. Nothing trains on it.
SCORE = Loss(
    name="score",
    value=lambda m: jnp.asarray(m),
    slope=lambda m: jnp.ones_like(m),
    curvature=lambda m: jnp.zeros_like(m),
    lipschitz=1.0,
    smoothness=0.0,
    self_bound=math.inf,
)


def softmax(scores: AnyArray, codes: AnyArray) -> tuple[jax.Array, jax.Array]:
    r"""The softmax loss $-\log p_{y}$ of each row of scores (n, outputs), and its derivative by the scores."""
    logs = jax.nn.log_softmax(scores, axis=-1)
    hot = jnp.arange(scores.shape[1])[None, :] == codes[:, None]
    return -jnp.sum(jnp.where(hot, logs, 0.0), axis=-1), jnp.exp(logs) - hot


# By the names that files and the command line have for them; a run with a loss of one's own is read once it is here.
LOSSES = {loss.name: loss for loss in (LOGISTIC, HYPERBOLIC)}


def _accept_loss(loss: Any) -> Any:
    if isinstance(loss, Loss):
        return loss
    return LOSSES.get(loss, REFUSED) if isinstance(loss, str) else REFUSED


is_loss = Constraint("'logistic', 'hyperbolic' or a Loss", _accept_loss)


def get_loss(loss: str | Loss) -> Loss:
    """The loss of that name, or the loss itself."""
    return checked("loss", loss, is_loss)


class Weighted(NamedTuple):
    r"""The loss $\sum_i w_i\ell(y_if(X_i))$ with these weights of the sequences instead of $1/n$ each, for `train`."""

    weights: AnyArray  # (n,), at least 0
    loss: str | Loss = "logistic"


def loss_and_weights(loss: str | Loss | Weighted, n: int) -> tuple[Loss, np.ndarray | None]:
    """The loss of a sequence, and the weights of n sequences in float64, None where they are 1/n."""
    if not isinstance(loss, Weighted):
        return get_loss(loss), None
    weights = array_of(loss.weights, "weights")
    fine = weights.shape == (n,) and weights.dtype.kind in "fiub" and np.isfinite(weights).all()
    if not (fine and (weights >= 0).all() and weights.any()):
        raise ValueError(
            f"Weighted(...) must hold {n} finite numbers >= 0, one for each sequence, not all zero."
        )
    return get_loss(loss.loss), weights.astype(np.float64)


ROUNDING = 1 + 1e-9
MARGINS = np.concatenate([-np.geomspace(1e3, 1e-3, 1500), [0.0], np.geomspace(1e-3, 1e3, 1500)])


@cache
def misdeclared(loss: Loss) -> str:
    """What is false about the constants of a loss, tried at 3,001 margins from -1000 to 1000; empty for nothing."""
    with jax.enable_x64(True):
        m = jnp.asarray(MARGINS)
        value, slope, curvature = (
            np.asarray(function(m)) for function in (loss.value, loss.slope, loss.curvature)
        )
        falls, bends = (
            np.asarray(jax.vmap(jax.grad(function))(m)) for function in (loss.value, loss.slope)
        )
    claims = {
        "its values are finite and not negative": np.isfinite(value) & (value >= 0),
        "slope is its derivative": np.isclose(slope, falls, rtol=1e-6, atol=1e-12),
        "curvature is the derivative of its slope": np.isclose(
            curvature, bends, rtol=1e-6, atol=1e-12
        ),
        "it is convex and does not rise": (slope <= 0) & (curvature >= 0),
        f"lipschitz={loss.lipschitz:.6g}": np.abs(slope) <= loss.lipschitz * ROUNDING,
        f"smoothness={loss.smoothness:.6g}": curvature <= loss.smoothness * ROUNDING,
        f"self_bound={loss.self_bound:.6g}": np.abs(slope)
        <= loss.self_bound * value * ROUNDING + 1e-300,
    }
    if loss.peak is not None:
        rises = np.diff(curvature) * np.where(MARGINS[1:] <= loss.peak, 1, -1)
        claims[f"peak={loss.peak:.6g}"] = (
            rises[(MARGINS[1:] <= loss.peak) | (MARGINS[:-1] >= loss.peak)] >= -1e-12
        )
    if math.isfinite(loss.self_curvature):
        most = loss.self_curvature * value * ROUNDING + 1e-300
        claims[f"self_curvature={loss.self_curvature:.6g}"] = curvature <= most
    for text, holds in claims.items():
        if not np.all(holds):
            return f"{text} is false at the margin {MARGINS[int(np.argmin(holds))]:.4g}"
    return ""
