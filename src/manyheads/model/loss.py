"""Losses of the margin m = y·score: convex, smooth, Lipschitz and self-bounded, each with its constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from manyheads._lazy import lazy
from manyheads._registry import Registry
from manyheads.data.door import shown

if TYPE_CHECKING:
    from manyheads._types import AnyArray

jax, jnp = lazy("jax"), lazy("jax.numpy")
LOSSES: Registry[Loss] = Registry("loss function")  # to add one, register a Loss in a plug-in under its name


@dataclass(frozen=True)
class Loss:
    r"""A decreasing convex loss $\ell(m)$ of the margin $m$.

    The constants are the best ones: $|\ell'| \le$ `lipschitz`, $\ell'' \le$ `smoothness` and
    $|\ell'| \le$ `self_bound` $\cdot\, \ell$, for every $m$. `log_value` is $\log\ell$ and `log_slope` $\log|\ell'|$,
    exact where these underflow; without them normalized descent stops there.
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


def _log_logistic(m: AnyArray) -> jax.Array:
    # log log(1 + e^-m); for large margins log(1 + x) = x (1 - x/2 + x²/3 - ...) with x = e^-m
    x = jnp.exp(-jnp.maximum(m, 15.0))
    return jnp.where(m > 15.0, -m + jnp.log1p(x * (x / 3 - 0.5)), jnp.log(jnp.logaddexp(0.0, -jnp.minimum(m, 15.0))))


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

for _loss in (LOGISTIC, HYPERBOLIC):
    LOSSES.register(_loss.name)(_loss)


def get_loss(name: str | Loss) -> Loss:
    """The loss of that name, or the loss itself."""
    if isinstance(name, Loss):
        return name
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(f"loss={shown(name)} is not known; choose one of {', '.join(map(repr, LOSSES))}.")
    return LOSSES[name]
