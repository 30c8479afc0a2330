"""Where descent starts: zero, Gaussian, or one randomized gradient step on fresh data (the paper's first phase)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._check import (
    REFUSED,
    Constraint,
    array_of,
    check,
    none,
    not_negative,
    one_of,
    random_stream,
    real,
    shown,
    whole,
)
from manyheads._names import DECODERS
from manyheads.data.budget import fits_memory
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import TokenizedMixture, is_mixture
from manyheads.model import attention, gradient
from manyheads.model.attention import MultiHead
from manyheads.model.loss import Loss, get_loss, is_loss

# their names at the command line
STARTS = ("first_phase", "zero", "gaussian", "population")
# heads that may be drawn one by one
LARGEST_EXPLICIT = 1_000_000


def _accept_heads(value: Any) -> Any:
    H = real(low=1, high=attention.LARGEST_COUNT).accept(value)
    return H if H is not REFUSED and H == math.floor(H) else REFUSED


is_heads = Constraint(f"a whole number from 1 to {attention.LARGEST_COUNT:g}", _accept_heads)
is_decoder = one_of(*DECODERS)
is_sign = one_of("balanced", "rademacher", "uniform")


@check(
    num_heads=is_heads,
    num_tokens=whole(),
    dim=whole(),
    decoder=is_decoder,
    rank=whole() | none,
    exponent=not_negative,
)
def zero_start(
    num_heads: float,
    *,
    num_tokens: int,
    dim: int,
    decoder: str = "full",
    rank: int | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    """All parameters zero: one class, however many heads. Zero factors would never move, so `rank` is refused."""
    if rank is not None:
        raise ValueError(
            f"rank={rank} with a zero start: the gradient of both factors is zero there and "
            "training cannot begin. "
            "Use gaussian_start(..., rank=...)."
        )
    shape = _readout_shape(1, num_tokens, dim, decoder)
    _check_size(1, dim, shape)
    W, U = np.zeros((1, dim, dim)), np.zeros(shape)
    return MultiHead.create(W, U, multiplicity=[num_heads], decoder=decoder, exponent=exponent)


@check(
    num_heads=is_heads,
    num_tokens=whole(),
    dim=whole(),
    key=_check.key,
    key_query_scale=not_negative,
    readout_scale=not_negative,
    decoder=is_decoder,
    rank=whole() | none,
    exponent=not_negative,
)
def gaussian_start(
    num_heads: float,
    *,
    num_tokens: int,
    dim: int,
    key: jax.Array,
    key_query_scale: float = 1.0,
    readout_scale: float = 1.0,
    decoder: str = "full",
    rank: int | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    r"""Independent Gaussian heads, scaled so that $E\|W_h\|_F^2$ and $E\|U_h\|_F^2$ are the squares of the scales.

    Every head is its own class: nothing collapses. With `rank` the key-query weights are factored,
    each factor with entries of equal variance such that $E\|W_Q W_K^\top\|_F^2$ is the square of
    `key_query_scale`.
    """
    H = _drawn_one_by_one(num_heads, "a Gaussian start")
    shape = _readout_shape(H, num_tokens, dim, decoder)
    if rank is not None and rank > dim:
        raise ValueError(f"rank={rank} must be between 1 and dim={dim}.")
    _check_size(H, dim, shape)
    rng = random_stream(key)
    U = rng.standard_normal(shape) * readout_scale / np.sqrt(np.prod(shape[1:]))
    if rank is None:
        W = rng.standard_normal((H, dim, dim)) * key_query_scale / dim
    else:
        size = np.sqrt(key_query_scale / (dim * np.sqrt(rank)))
        W = attention.Factored(*(size * rng.standard_normal((2, H, dim, rank))))
    return MultiHead.create(W, U, decoder=decoder, exponent=exponent)


@check(
    dataset=is_dataset,
    num_heads=is_heads,
    signs=is_sign,
    key=_check.key | none,
    decoder=is_decoder,
    exponent=not_negative,
    loss=is_loss,
)
def first_phase(
    dataset: Dataset,
    num_heads: float,
    *,
    signs: str = "balanced",
    interval: tuple[float, float] = (-1.0, 1.0),
    key: jax.Array | None = None,
    decoder: str = "full",
    exponent: float = 0.5,
    loss: str | Loss = "logistic",
) -> MultiHead:
    r"""One step of gradient descent from zero, $\theta_h = -\alpha_h H^{c} \nabla_{\theta_h} \hat L(0)$, on `dataset`.

    Use sequences that are not used for training afterwards. With `signs="balanced"` half of the
    heads have $\alpha_h = +1$ and half $-1$ (the extra head of an odd number has $+1$), with
    `"rademacher"` a coin is flipped for each head, and these have at most two classes of identical
    heads; `"uniform"` draws $\alpha_h$ on `interval`.
    """
    alphas, counts = _alphas(num_heads, signs, interval, key)
    W, U = _negative_gradient_at_zero(dataset, decoder, get_loss(loss))
    return _stepped(alphas, counts, W, U, decoder, exponent)


@check(
    mixture=is_mixture,
    num_heads=is_heads,
    signs=is_sign,
    key=_check.key | none,
    exponent=not_negative,
)
def population_first_phase(
    mixture: TokenizedMixture,
    num_heads: float,
    *,
    signs: str = "balanced",
    interval: tuple[float, float] = (-1.0, 1.0),
    key: jax.Array | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    r"""The first phase with infinitely many samples: $U_h = \alpha_h (\zeta/4)\, 1_T u_*^\top$, $W_h = 0$, exactly.

    `signs` and `interval` are as for `first_phase`.
    """
    alphas, counts = _alphas(num_heads, signs, interval, key)
    W, U = np.zeros((mixture.dim, mixture.dim)), mixture.sparsity / 4 * mixture.U_star
    return _stepped(alphas, counts, W, U, "full", exponent)


def _alphas(num_heads: float, signs: str, interval, key) -> tuple[np.ndarray, np.ndarray]:
    """The factors of one step from zero, and how many heads have each."""
    H = num_heads
    if signs == "balanced":
        plus = float(np.ceil(H / 2))
    elif key is None:
        raise ValueError(
            f"signs={signs!r} draws at random: pass key=jax.random.key(0), or signs='balanced'."
        )
    elif signs == "uniform":
        count, ends = _drawn_one_by_one(H, "uniform first-phase steps"), array_of(interval)
        numbers = ends.shape == (2,) and ends.dtype.kind in "fiu" and np.isfinite(ends).all()
        if not (numbers and ends[0] < ends[1]):
            raise ValueError(f"interval={shown(interval)} must be (low, high) with low < high.")
        return random_stream(key).uniform(*ends, count), np.ones(count)
    else:
        plus = float(random_stream(key).binomial(int(H), 0.5))
    alphas, counts = np.array([1.0, -1.0]), np.array([plus, H - plus])
    return alphas[counts > 0], counts[counts > 0]


def _stepped(alphas, counts, W, U, decoder: str, exponent: float) -> MultiHead:
    _check_size(len(alphas), len(W), (len(alphas), *U.shape))
    return MultiHead.create(
        # + 0.0: no negative zeros
        alphas[:, None, None] * W + 0.0,
        alphas.reshape(-1, *(1,) * U.ndim) * U,
        multiplicity=counts,
        decoder=decoder,
        exponent=exponent,
    )


def _drawn_one_by_one(num_heads: float, start: str) -> int:
    """The number of heads of a start that draws each of them."""
    if num_heads > LARGEST_EXPLICIT:
        raise ValueError(
            f"num_heads={num_heads:.15g} is too many for {start}, which draws every head: at most "
            f"{LARGEST_EXPLICIT:,}. "
            "Starts with equal heads (zero_start, first_phase with signs) take any number."
        )
    return int(num_heads)


def _negative_gradient_at_zero(
    dataset: Dataset, decoder: str, loss: Loss
) -> tuple[np.ndarray, np.ndarray]:
    n, T, d = dataset.tokens.shape
    model = zero_start(1, num_tokens=T, dim=d, decoder=decoder)
    with jax.enable_x64(True):
        one = gradient.Weights(np.ones(1), np.ones(()))
        batch = gradient.prepare(dataset, model, stream=True)
        found = _gradient(model.heads, one, batch, np.full(n, 1 / n), loss=loss)[2]
        return -np.asarray(found.key_query[0]), -np.asarray(found.readout[0])


@partial(jax.jit, static_argnames=("loss",))
def _gradient(heads, weights, batch, sample_weight, loss):
    return gradient.loss_and_gradient(heads, weights, batch, sample_weight, loss=loss)


def _check_size(classes: float, dim: int, readout_shape: tuple[int, ...]) -> None:
    size = classes * dim**2 + math.prod(readout_shape)
    remedy = (
        "draw fewer heads, or use a start with equal heads"
        if classes > 2
        else "pass a smaller dim or num_tokens"
    )
    fits_memory(f"a start of {classes:.0f} different heads in dimension {dim}", 8 * size, remedy)


def _readout_shape(classes: int, num_tokens: int, dim: int, decoder: str) -> tuple[int, ...]:
    return (classes, num_tokens, dim) if decoder == "full" else (classes, dim)
