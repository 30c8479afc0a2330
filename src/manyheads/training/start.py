"""Where descent starts: zero, Gaussian, or one randomized gradient step on fresh data (the paper's first phase).

To add a start, subclass `Start` in a plug-in and register it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from manyheads._fields import check, setting
from manyheads._names import DECODERS
from manyheads._registry import Registry
from manyheads.data.budget import fits_memory
from manyheads.data.dataset import Dataset
from manyheads.data.door import array_of, guarded, number_of, random_stream, shown, whole
from manyheads.data.mixture import TokenizedMixture
from manyheads.model import attention, gradient
from manyheads.model import loss as losses
from manyheads.model.attention import MultiHead
from manyheads.model.loss import Loss

STARTS: Registry[Any] = Registry("start")
LARGEST_EXPLICIT = 1_000_000  # heads that may be drawn one by one


class Start:
    """A start by its settings. One with a setting `num_examples` gets that many sequences that are not trained on.

    `make(num_heads, dataset, **facts)` returns the model at step 0 for data of this shape. Among the facts are `fresh`
    (the sequences that are not trained on), `source` (where the data come from), `key`, `decoder`, `rank`, `exponent`
    and `loss`; a start takes what it needs.
    """

    takes_rank: ClassVar[bool] = False  # whether the key-query weights may be factored
    needs_mixture: ClassVar[bool] = (
        False  # whether it is computed from the tokenized mixture itself
    )

    def __post_init__(self) -> None:
        check(self)

    def num_classes(self, num_heads: float) -> int:
        """How many different heads it makes at most; cost and memory are estimated from it."""
        return 1


class Shape(NamedTuple):
    """All that a start from numbers needs to know of the data."""

    num_tokens: int
    dim: int


@STARTS.register("zero")
@dataclass(frozen=True)
class ZeroStart(Start):
    """All parameters zero: one class, however many heads. Zero factors would never move, so `rank` is refused."""

    def make(
        self, num_heads, dataset, *, decoder="full", rank=None, exponent=0.5, **_
    ) -> MultiHead:
        """The zero model."""
        if rank is not None:
            raise ValueError(
                f"rank={rank} with a zero start: the gradient of both factors is zero there and training cannot begin. "
                "Use gaussian_start(..., rank=...)."
            )
        H, shape = whole_heads(num_heads), _readout_shape(1, dataset, decoder)
        _check_size(1, dataset.dim, shape)
        W, U = np.zeros((1, dataset.dim, dataset.dim)), np.zeros(shape)
        return attention.MultiHead.create(
            W, U, multiplicity=[H], decoder=decoder, exponent=exponent
        )


@guarded(exponent={"low": 0})
def zero_start(
    num_heads: float,
    *,
    num_tokens: int,
    dim: int,
    decoder: str = "full",
    rank: int | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    """All parameters zero: one class, however many heads."""
    return ZeroStart().make(
        num_heads, Shape(num_tokens, dim), decoder=decoder, rank=rank, exponent=exponent
    )


@STARTS.register("gaussian")
@dataclass(frozen=True)
class GaussianStart(Start):
    r"""Independent Gaussian heads, scaled so that $E\|W_h\|_F^2$ and $E\|U_h\|_F^2$ are the squares of the scales.

    Every head is its own class: nothing collapses. With `rank` the key-query weights are factored, each factor with
    entries of equal variance such that $E\|W_Q W_K^\top\|_F^2$ is the square of `key_query_scale`.
    """

    key_query_scale: float = setting(1.0, "root mean square of a head's norm of W", unit="1", low=0)
    readout_scale: float = setting(1.0, "root mean square of a head's norm of U", unit="1", low=0)
    takes_rank: ClassVar[bool] = True

    def num_classes(self, num_heads: float) -> int:
        """Every head is different."""
        return int(num_heads)

    def make(
        self, num_heads, dataset, *, key, decoder="full", rank=None, exponent=0.5, **_
    ) -> MultiHead:
        """Draw every head."""
        H, dim = whole_heads(num_heads, explicit="a Gaussian start"), dataset.dim
        shape = _readout_shape(int(H), dataset, decoder)
        if rank is not None and whole("rank", rank) > dim:
            raise ValueError(f"rank={rank} must be between 1 and dim={dim}.")
        _check_size(H, dim, shape)
        rng = random_stream(key)
        U = rng.standard_normal(shape) * self.readout_scale / np.sqrt(np.prod(shape[1:]))
        if rank is None:
            W = rng.standard_normal((int(H), dim, dim)) * self.key_query_scale / dim
        else:
            size = np.sqrt(self.key_query_scale / (dim * np.sqrt(rank)))
            W = attention.Factored(*(size * rng.standard_normal((2, int(H), dim, rank))))
        return attention.MultiHead.create(W, U, decoder=decoder, exponent=exponent)


@guarded(exponent={"low": 0})
def gaussian_start(
    num_heads: float,
    *,
    num_tokens: int,
    dim: int,
    key: jax.Array,
    key_query_scale: float = GaussianStart.key_query_scale,
    readout_scale: float = GaussianStart.readout_scale,
    decoder: str = "full",
    rank: int | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    """Independent Gaussian heads of these scales; see `GaussianStart`."""
    start = GaussianStart(key_query_scale, readout_scale)
    return start.make(
        num_heads, Shape(num_tokens, dim), key=key, decoder=decoder, rank=rank, exponent=exponent
    )


@dataclass(frozen=True)
class _Signed(Start):
    """One step from zero, with a random or balanced factor alpha_h for each head."""

    signs: str = setting(
        "balanced",
        "signs of the heads after the first phase",
        choices=("balanced", "rademacher", "uniform"),
    )
    interval: Any = (-1.0, 1.0)

    def num_classes(self, num_heads: float) -> int:
        """Two with signs; coin flips may make one less."""
        return int(num_heads if self.signs == "uniform" else min(num_heads, 2))

    def _stepped(self, num_heads, key, decoder, exponent, step) -> MultiHead:
        alphas, counts = self._alphas(num_heads, key)
        W, U = step()
        _check_size(len(alphas), len(W), (len(alphas), *U.shape))
        return attention.MultiHead.create(
            alphas[:, None, None] * W + 0.0,  # + 0.0: no negative zeros
            alphas.reshape(-1, *(1,) * U.ndim) * U,
            multiplicity=counts,
            decoder=decoder,
            exponent=exponent,
        )

    def _alphas(self, num_heads, key) -> tuple[np.ndarray, np.ndarray]:
        H = whole_heads(
            num_heads, explicit="uniform first-phase steps" if self.signs == "uniform" else None
        )
        if self.signs == "balanced":
            plus = np.ceil(H / 2)
        else:
            if key is None:
                raise ValueError(
                    f"signs={self.signs!r} draws at random: pass key=jax.random.key(0), or signs='balanced'."
                )
            rng = random_stream(key)
            if self.signs == "uniform":
                ends = array_of(self.interval)
                real = ends.shape == (2,) and ends.dtype.kind in "fiu" and np.isfinite(ends).all()
                if not (real and ends[0] < ends[1]):
                    raise ValueError(
                        f"interval={shown(self.interval)} must be (low, high) with low < high."
                    )
                return rng.uniform(*ends, int(H)), np.ones(int(H))
            plus = float(rng.binomial(int(H), 0.5))
        alphas, counts = np.array([1.0, -1.0]), np.array([plus, H - plus])
        return alphas[counts > 0], counts[counts > 0]


@STARTS.register("first_phase")
@dataclass(frozen=True)
class FirstPhase(_Signed):
    r"""One step of gradient descent from zero, $\theta_h = -\alpha_h H^{c} \nabla_{\theta_h} \hat L(0)$, on fresh data.

    `signs="balanced"` gives half of the heads $\alpha_h = +1$ and half $-1$ (the extra head of an odd number gets
    $+1$); `"rademacher"` flips a coin for each head; `"uniform"` draws $\alpha_h$ on `interval`. With signs there are
    at most two classes of identical heads.
    """

    num_examples: int = setting(
        200,
        "sequences of the first phase, apart from the training data",
        unit="sequences",
        low=2,
        high=10**7,
    )

    def make(
        self,
        num_heads,
        dataset,
        *,
        fresh,
        key=None,
        decoder="full",
        exponent=0.5,
        loss="logistic",
        **_,
    ) -> MultiHead:
        """One gradient step on `fresh`."""
        loss = losses.get_loss(loss)
        return self._stepped(
            num_heads,
            key,
            decoder,
            exponent,
            lambda: _negative_gradient_at_zero(fresh, decoder, loss),
        )


@guarded(exponent={"low": 0})
def first_phase(
    dataset: Dataset,
    num_heads: float,
    *,
    signs: str = FirstPhase.signs,
    interval: tuple[float, float] = FirstPhase.interval,
    key: jax.Array | None = None,
    decoder: str = "full",
    exponent: float = 0.5,
    loss: str | Loss = "logistic",
) -> MultiHead:
    r"""The paper's first phase: one randomized gradient step from zero on `dataset`; see `FirstPhase`.

    Use sequences that are not used for training afterwards.
    """
    start = FirstPhase(signs, interval)
    return start.make(
        num_heads, dataset, fresh=dataset, key=key, decoder=decoder, exponent=exponent, loss=loss
    )


@STARTS.register("population")
@dataclass(frozen=True)
class Population(_Signed):
    r"""The first phase with infinitely many samples: $U_h = \alpha_h (\zeta/4)\, 1_T u_*^\top$, $W_h = 0$, exactly."""

    needs_mixture: ClassVar[bool] = True

    def make(self, num_heads, dataset=None, *, source, key=None, exponent=0.5, **_) -> MultiHead:
        """The exact step for a tokenized mixture."""
        if not isinstance(source, TokenizedMixture):
            raise ValueError(
                f"mixture={shown(source)} must be a TokenizedMixture; first_phase takes data."
            )
        step = (np.zeros((source.dim, source.dim)), source.sparsity / 4 * source.U_star)
        return self._stepped(num_heads, key, "full", exponent, lambda: step)


@guarded(exponent={"low": 0})
def population_first_phase(
    mixture: TokenizedMixture,
    num_heads: float,
    *,
    signs: str = Population.signs,
    interval: tuple[float, float] = Population.interval,
    key: jax.Array | None = None,
    exponent: float = 0.5,
) -> MultiHead:
    """The first phase with infinitely many samples of a tokenized mixture; see `Population`."""
    return Population(signs, interval).make(num_heads, source=mixture, key=key, exponent=exponent)


def whole_heads(num_heads: float, explicit: str | None = None) -> float:
    """The number of heads, checked; `explicit` names a start that draws every head."""
    H = number_of(num_heads)
    if not (H >= 1 and H == np.floor(H) and H <= attention.LARGEST_COUNT):
        raise ValueError(
            f"num_heads={shown(num_heads)} must be a whole number from 1 to {attention.LARGEST_COUNT:g}."
        )
    if explicit and H > LARGEST_EXPLICIT:
        raise ValueError(
            f"num_heads={H:.15g} is too many for {explicit}, which draws every head: at most {LARGEST_EXPLICIT:,}. "
            "Starts with equal heads (zero_start, first_phase with signs) take any number."
        )
    return H


def _negative_gradient_at_zero(
    dataset: Dataset, decoder: str, loss: Loss
) -> tuple[np.ndarray, np.ndarray]:
    n = gradient.checked_dataset(dataset).num_examples
    model = ZeroStart().make(1, dataset, decoder=decoder)
    with jax.enable_x64(True):
        one = gradient.Weights(np.ones(1), np.ones(()))
        found = _gradient(
            model.heads,
            one,
            gradient.prepare(dataset, model, stream=True),
            np.full(n, 1 / n),
            loss=loss,
        )[2]
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


def _readout_shape(classes: int, data: Any, decoder: str) -> tuple[int, ...]:
    T, d = whole("num_tokens", data.num_tokens), whole("dim", data.dim)
    if decoder not in DECODERS:
        raise ValueError(f"decoder={decoder!r} is not known; choose 'full', 'pooled' or 'last'.")
    return (classes, T, d) if decoder == "full" else (classes, d)
