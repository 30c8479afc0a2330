"""Where descent starts: zero, Gaussian, or one randomized gradient step on fresh data (the paper's first phase)."""

from __future__ import annotations

import math

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.door import array_of, finite, random_stream, shown, whole
from manyheads.data.mixture import TokenizedMixture
from manyheads.model.attention import DECODERS, LARGEST_COUNT, Factored, MultiHead
from manyheads.model.gradient import Weights, checked_dataset, loss_and_gradient, prepare
from manyheads.model.loss import Loss, get_loss

SIGNS = ("balanced", "rademacher", "uniform")
_gradient = jax.jit(loss_and_gradient, static_argnames=("loss",))
LARGEST_EXPLICIT = 1_000_000  # heads that may be drawn one by one
LARGEST_START = 2**32  # numbers in a start: 32 GiB


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
            f"rank={rank} with a zero start: the gradient of both factors is zero there and training cannot begin. "
            "Use gaussian_start(..., rank=...)."
        )
    H, shape = whole_heads(num_heads), _readout_shape(1, num_tokens, dim, decoder)
    return MultiHead.create(
        np.zeros((1, dim, dim)),
        np.zeros(shape),
        multiplicity=[H],
        decoder=decoder,
        exponent=exponent,
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

    Every head is its own class: nothing collapses. With `rank` the key-query weights are factored, each factor with
    entries of equal variance such that $E\|W_Q W_K^\top\|_F^2$ is the square of `key_query_scale`.
    """
    H = whole_heads(num_heads, explicit="a Gaussian start")
    for name, value in (("key_query_scale", key_query_scale), ("readout_scale", readout_scale)):
        finite(name, value, positive=False)
    shape = _readout_shape(int(H), num_tokens, dim, decoder)
    if rank is not None and whole("rank", rank) > dim:
        raise ValueError(f"rank={rank} must be between 1 and dim={dim}.")
    _check_size(H, dim, shape)
    rng = random_stream(key)
    U = rng.standard_normal(shape) * readout_scale / np.sqrt(np.prod(shape[1:]))
    if rank is None:
        W = rng.standard_normal((int(H), dim, dim)) * key_query_scale / dim
    else:
        size = np.sqrt(key_query_scale / (dim * np.sqrt(rank)))
        W = Factored(*(size * rng.standard_normal((2, int(H), dim, rank))))
    return MultiHead.create(W, U, decoder=decoder, exponent=exponent)


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
    r"""One step of gradient descent from zero, $\theta_h = -\alpha_h H^{c} \nabla_{\theta_h} \hat L(0)$, on fresh data.

    Use sequences that are not used for training afterwards. `signs="balanced"` gives half of the heads
    $\alpha_h = +1$ and half $-1$ (the extra head of an odd number gets $+1$); `"rademacher"` flips a coin for each
    head; `"uniform"` draws $\alpha_h$ on `interval`. With signs there are at most two classes of identical heads.
    """
    if signs not in SIGNS:
        raise ValueError(f"signs={shown(signs)} is not known; choose 'balanced', 'rademacher' or 'uniform'.")
    alphas, counts = _alphas(num_heads, signs, interval, key)
    return _one_step(_negative_gradient_at_zero(dataset, decoder, get_loss(loss)), alphas, counts, decoder, exponent)


def population_first_phase(
    mixture: TokenizedMixture,
    num_heads: float,
    *,
    signs: str = "balanced",
    interval: tuple[float, float] = (-1.0, 1.0),
    key: jax.Array | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    r"""The first phase with infinitely many samples: $U_h = \alpha_h (\zeta/4)\, 1_T u_*^\top$, $W_h = 0$, exactly."""
    if signs not in SIGNS:
        raise ValueError(f"signs={shown(signs)} is not known; choose 'balanced', 'rademacher' or 'uniform'.")
    if not isinstance(mixture, TokenizedMixture):
        raise ValueError(f"mixture={shown(mixture)} must be a TokenizedMixture; first_phase takes data.")
    alphas, counts = _alphas(num_heads, signs, interval, key)
    step = (np.zeros((mixture.dim, mixture.dim)), mixture.sparsity / 4 * mixture.U_star)
    return _one_step(step, alphas, counts, "full", exponent)


def whole_heads(num_heads: float, explicit: str | None = None) -> float:
    """The number of heads, checked; `explicit` names a start that draws every head."""
    try:
        H = float(num_heads) if np.ndim(num_heads) == 0 and not isinstance(num_heads, bool | str) else float("nan")
    except (TypeError, ValueError, OverflowError):
        H = float("nan")
    if not (H >= 1 and H == np.floor(H) and H <= LARGEST_COUNT):
        raise ValueError(f"num_heads={shown(num_heads)} must be a whole number from 1 to {LARGEST_COUNT:g}.")
    if explicit and H > LARGEST_EXPLICIT:
        raise ValueError(
            f"num_heads={H:.15g} is too many for {explicit}, which draws every head: at most {LARGEST_EXPLICIT:,}. "
            "Starts with equal heads (zero_start, first_phase with signs) take any number."
        )
    return H


def _alphas(num_heads, signs, interval, key) -> tuple[np.ndarray, np.ndarray]:
    H = whole_heads(num_heads, explicit="uniform first-phase steps" if signs == "uniform" else None)
    if signs == "balanced":
        plus = np.ceil(H / 2)
    else:
        if key is None:
            raise ValueError(f"signs={signs!r} draws at random: pass key=jax.random.key(0), or signs='balanced'.")
        rng = random_stream(key)
        if signs == "uniform":
            ends = array_of(interval)
            if not (ends.shape == (2,) and ends.dtype.kind in "fiu" and np.isfinite(ends).all() and ends[0] < ends[1]):
                raise ValueError(f"interval={shown(interval)} must be (low, high) with low < high.")
            low, high = ends
            return rng.uniform(low, high, int(H)), np.ones(int(H))
        plus = float(rng.binomial(int(H), 0.5))
    alphas, counts = np.array([1.0, -1.0]), np.array([plus, H - plus])
    return alphas[counts > 0], counts[counts > 0]


def _negative_gradient_at_zero(dataset: Dataset, decoder: str, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    n, T, d = checked_dataset(dataset).tokens.shape
    model = zero_start(1, num_tokens=T, dim=d, decoder=decoder)
    with jax.enable_x64(True):
        one = Weights(np.ones(1), np.ones(()))
        gradient = _gradient(model.heads, one, prepare(dataset, model), np.full(n, 1 / n), loss=loss)[2]
        return -np.asarray(gradient.key_query[0]), -np.asarray(gradient.readout[0])


def _one_step(step, alphas, counts, decoder, exponent) -> MultiHead:
    W, U = step
    _check_size(len(alphas), len(W), (len(alphas), *U.shape))
    return MultiHead.create(
        alphas[:, None, None] * W + 0.0,  # + 0.0: no negative zeros
        alphas.reshape(-1, *(1,) * U.ndim) * U,
        multiplicity=counts,
        decoder=decoder,
        exponent=exponent,
    )


def _check_size(classes: float, dim: int, readout_shape: tuple[int, ...]) -> None:
    size = classes * dim**2 + math.prod(readout_shape)
    if size > LARGEST_START:
        raise ValueError(
            f"a start of {classes:.0f} different heads is {8 * size / 2**30:.0f} GiB, more than the "
            f"{8 * LARGEST_START / 2**30:.0f} GiB allowed; draw fewer heads, or use a start with equal heads."
        )


def _readout_shape(classes: int, num_tokens: int, dim: int, decoder: str) -> tuple[int, ...]:
    whole("num_tokens", num_tokens)
    whole("dim", dim)
    if decoder not in DECODERS:
        raise ValueError(f"decoder={decoder!r} is not known; choose 'full', 'pooled' or 'last'.")
    return (classes, num_tokens, dim) if decoder == "full" else (classes, dim)
