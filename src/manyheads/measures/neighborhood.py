r"""Rigorous bounds on how scores, their gradients and their curvature can change inside a ball of parameters.

The ball is $B(\hat\theta, \rho)$ in the norm of the full H-head model. At its center everything is
computed exactly: the attention of every query, the covariance of the tokens under it, the readout's
values on the tokens. A head of a class of $N$ moves by at most $b = \rho/\sqrt N$, so the logits of
query $t$ are tilted by $\langle u, x_s\rangle$ with $|u| \le b\|x_t\|$; what a tilt can do to
means, variances, third and fourth cumulants gives the bounds. Where a number leaves the range of
float64, or the logits are too large to be known, a bound is infinite or NaN: it then proves
nothing, and no other number takes its place. Proofs: docs/theory/forecast.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.model.attention import Heads, MultiHead

# relative; float64 loses less than 1e-12 here
ENLARGE = 1e-9
# of a value, relative to the terms that it is a difference of
ROUNDING = 1e-14
# beyond it the attention itself may be off by more than ENLARGE allows
LARGEST_LOGIT = 1e4


class Tilted(NamedTuple):
    """What the attention of each query can become: bounds over all tilts of a given size."""

    # largest eigenvalue of the tokens' covariance
    variance: np.ndarray
    # largest distance of a token from the mean
    radius: np.ndarray
    # by which the mean of a nonnegative function changes at most
    factor: np.ndarray
    # standard deviation of a centered linear function's square
    square: np.ndarray


class Drift(NamedTuple):
    """Per sequence, over a ball: the norm of the score's Hessian, and how far its gradient moves from the center's."""

    curvature: np.ndarray
    gradient: np.ndarray


class Neighborhood:
    """The center of a ball, with all that the bounds need of it. `drift` and `margins` take the ball's radius.

    `known` says whether the attention at the center is known as exactly as the bounds need.
    """

    @np.errstate(over="ignore", invalid="ignore")
    def __init__(self, model: MultiHead, dataset: Dataset):
        X, mask = dataset.tokens.astype(float), dataset.mask
        n, T, _ = X.shape
        self.labels, self.tokens = dataset.labels.astype(float), X
        self.counts, self.scale = model.multiplicity, model.num_heads**-model.exponent
        self.keys = np.ones((n, 1, T), bool) if mask is None else mask[:, None, :]
        if model.decoder == "last":
            last = np.full(n, T - 1) if mask is None else T - 1 - np.argmax(mask[:, ::-1], axis=1)
            self.queries = X[np.arange(n), last][:, None, :]
        elif model.decoder == "query":
            # looks with q = 1·W, W of one row: its norm is one
            self.queries = np.ones((n, 1, 1))
        else:
            # a masked query weighs nothing
            self.queries = X if mask is None else X * mask[:, :, None]
        self.pooled = model.decoder == "pooled"
        real = T if mask is None else mask.sum(axis=1)
        self.spread = np.sqrt(np.broadcast_to(real, n)) if self.pooled else np.ones(n)
        self.query_gram = self.queries @ self.queries.transpose(0, 2, 1)
        self.query_norm = np.sqrt(np.einsum("ntt->nt", self.query_gram))
        self.counted = np.ones((n, T), bool) if mask is None or self.queries.shape[1] < T else mask
        self.counted = self.counted[:, : self.queries.shape[1]]
        self.diameter = _diameter(X, self.keys[:, 0])
        norms = np.sqrt(np.einsum("ntd,ntd->nt", X, X))
        self.longest = np.where(self.keys[:, 0], norms, 0.0).max(axis=1)[:, None]
        W = np.asarray(
            model.key_query
            if not isinstance(model.key_query, tuple)
            else _product(model.key_query),
            float,
        )
        self.known = True
        self.classes = [
            self._class(np.atleast_2d(w), u)
            for w, u in zip(W, np.asarray(model.readout, float), strict=True)
        ]

    def _class(self, W: np.ndarray, U: np.ndarray) -> dict[str, np.ndarray]:
        X = self.tokens
        S = np.where(self.keys, self.queries @ W @ X.transpose(0, 2, 1), -np.inf)
        logits = np.where(self.keys, S, 0.0)
        if not np.abs(logits).max() <= LARGEST_LOGIT:
            self.known, S = False, np.where(self.keys, 0.0, -np.inf)
        A = np.exp(S - S.max(axis=2, keepdims=True))
        A /= A.sum(axis=2, keepdims=True)
        # n, q, d
        mean = A @ X
        rows = U if U.ndim == 2 else U[None]
        # n, s, q
        values = X @ np.broadcast_to(rows, (self.queries.shape[1], X.shape[2])).T
        xi = values.transpose(0, 2, 1)
        variance, radius = _spread(A, X, mean, self.keys)
        # the terms of a logit
        reach = np.linalg.norm(self.queries @ W, axis=2) * self.longest
        return dict(
            A=A,
            rounding=ROUNDING * (1 + reach),
            size=self.longest * np.linalg.norm(rows, axis=1),
            mean=mean,
            xi=xi,
            variance=variance,
            radius=radius,
            sd=_deviation(A, xi),
            osc=self._oscillation(xi),
        )

    def _oscillation(self, values: np.ndarray) -> np.ndarray:
        high = np.where(self.keys, values, -np.inf).max(axis=2)
        low = np.where(self.keys, values, np.inf).min(axis=2)
        return (high - low) * (1 + ENLARGE) + ROUNDING * np.maximum(np.abs(high), np.abs(low))

    def _tilted(self, one: dict[str, np.ndarray], step: np.ndarray) -> Tilted:
        """Bounds for all tilts with |u| <= step, (n, q)."""
        lam, r, D = one["variance"], one["radius"], self.diameter[:, None]
        # Popoviciu
        limit = D**2 / 4
        # of an overflow, the limit
        grown = np.fmin(lam * np.exp(step * D), limit)
        for _ in range(3):
            far = np.minimum(D, r + step * grown)
            grown = np.fmin(lam * np.exp(step * np.sqrt(np.maximum(far**2 - lam, 0))), limit)
        v = np.minimum(grown, far**2 / 2)
        return Tilted(grown, far, np.exp(step * far), np.sqrt(v * np.maximum(far**2 - v, 0)))

    def _largest(self, weight: np.ndarray) -> np.ndarray:
        r"""$\lambda_{\max}(\sum_t a_t x_t x_t^\top)$ over queries, per sequence."""
        if weight.shape[1] == 1:
            return weight[:, 0] * self.query_norm[:, 0] ** 2
        root = np.sqrt(weight * self.counted)
        return _top(root[:, :, None] * self.query_gram * root[:, None, :])

    @np.errstate(over="ignore", invalid="ignore")
    def drift(self, radius: float) -> Drift:
        """How curved the scores can be, and how far their gradients can move, over the ball."""
        if not self.known:
            return Drift(*np.full((2, len(self.labels)), np.inf))
        curvature, gradient = np.zeros((2, len(self.labels)))
        for one, N in zip(self.classes, self.counts, strict=True):
            b = radius / np.sqrt(N)
            t = self._tilted(one, b * self.query_norm)
            sd = np.fmin(np.sqrt(t.factor) * one["sd"], one["osc"] / 2)
            k = np.minimum(np.sqrt(t.variance) * t.square, t.variance * self.diameter[:, None])
            B = self.spread * np.sqrt(self._largest(t.variance**2))
            C = self._largest(np.minimum(sd * t.square, one["osc"] * t.variance))
            E = self.spread * np.sqrt((k * self.query_norm**2).max(axis=1) * self._largest(k))
            curvature = np.maximum(curvature, _block(B, C + b * E))
            gradient = np.maximum(gradient, _block(B, C))
        return Drift(
            self.scale * curvature * (1 + ENLARGE), radius * self.scale * gradient * (1 + ENLARGE)
        )

    @np.errstate(over="ignore", invalid="ignore")
    def third(self, radius: float) -> np.ndarray:
        r"""Per sequence, a bound over the ball on the third derivative of the score.

        Along a move it is $\sum_t\kappa_4(\xi,\delta,\delta,\delta)+3\kappa_3(\langle
        x,dU_t\rangle,\delta,\delta)$.
        """
        if not self.known:
            return np.full(len(self.labels), np.inf)
        found = np.zeros(len(self.labels))
        for one, N in zip(self.classes, self.counts, strict=True):
            b, D = radius / np.sqrt(N), self.diameter[:, None]
            t = self._tilted(one, b * self.query_norm)
            root = np.sqrt(t.variance)
            # the readout moves by b
            sd = np.fmin(np.sqrt(t.factor) * one["sd"], one["osc"] / 2) + b * root
            osc = one["osc"] + b * D
            fourth = np.minimum(osc * root, D * sd) * t.square + 2 * sd * root * t.variance
            k = np.minimum(root * t.square, t.variance * D)
            mixed = self.spread * np.sqrt((k * self.query_norm**2).max(axis=1) * self._largest(k))
            cubic = self._largest(fourth * self.query_norm)
            found = np.maximum(found, (cubic + 2 / np.sqrt(3) * mixed) / np.sqrt(N))
        return self.scale * found * (1 + ENLARGE)

    @np.errstate(over="ignore", invalid="ignore")
    def margins(self, direction: Heads, radius: float) -> np.ndarray:
        r"""Per sequence, a lower bound on $y_i\langle\nabla\tilde\Phi(X_i), v\rangle$ over the ball.

        `direction` is v in class coordinates: the part of a class of N identical heads, which each
        move by v/√N.
        """
        n = len(self.labels)
        if not self.known:
            return np.full(n, -np.inf)
        center, square, remainder, floor, lost = np.zeros((5, n))
        alone = not np.any(direction.key_query)
        X, y = self.tokens, self.labels[:, None, None]
        for one, N, vW, vU in zip(
            self.classes, self.counts, direction.key_query, direction.readout, strict=True
        ):
            A, xi, sigma = one["A"], one["xi"], np.sqrt(N) * self.scale
            t = self._tilted(one, radius / np.sqrt(N) * self.query_norm)
            rows, vW = np.atleast_2d(vU), np.atleast_2d(vW)
            f = y * (X @ np.broadcast_to(rows, (A.shape[1], X.shape[2])).T).transpose(0, 2, 1)
            dv = y * (self.queries @ vW @ X.transpose(0, 2, 1))
            f_mean, f0 = _centered(A, f)
            _, xi0 = _centered(A, xi)
            _, d0 = _centered(A, dv)
            product = xi0 * d0
            both, product0 = _centered(A, product)
            counted = self.counted
            center += sigma * np.sum((f_mean + both) * counted, axis=1)
            # weights that add up to 0: no mean is left to subtract
            to_W = (A * (f0 + product0)) @ X
            to_U = ((A * d0) @ X) * counted[:, :, None]
            gram = np.einsum("nqd,npd->nqp", to_W, to_W)
            square += self.scale**2 * np.einsum("nqp,nqp->n", self.query_gram, gram)
            to_U = to_U.sum(axis=1) if self.pooled else to_U.reshape(n, -1)
            square += self.scale**2 * np.sum(to_U**2, axis=1)
            low = np.where(self.keys, f, np.inf).min(axis=2)
            f_sd, f_osc, above = _deviation(A, f), self._oscillation(f), np.maximum(f_mean - low, 0)
            f_sd = np.fmin(np.sqrt(t.factor) * f_sd, f_osc / 2)
            d_osc = self._oscillation(dv)
            d_sd = np.fmin(np.sqrt(t.factor) * _deviation(A, dv), d_osc / 2)
            x_sd = np.fmin(np.sqrt(t.factor) * one["sd"], one["osc"] / 2)
            third = np.fmin(
                np.minimum(f_sd * t.square, f_osc * t.variance), t.factor * above * t.variance
            )
            fourth = (
                np.minimum(one["osc"] * d_sd, d_osc * x_sd) * t.square
                + 2 * x_sd * d_sd * t.variance
            )
            mixed = np.minimum(d_osc * t.variance, t.radius * d_sd * np.sqrt(t.variance))
            second = _block(
                self.spread * np.sqrt(self._largest(mixed**2)), self._largest(third + fourth)
            )
            remainder = np.maximum(remainder, second / np.sqrt(N))
            terms = self.longest * np.linalg.norm(rows, axis=1) + one["size"] * d_osc
            terms += one["osc"] * np.linalg.norm(self.queries @ vW, axis=2) * self.longest
            by_attention = one["rounding"] * (f_osc + one["osc"] * d_osc)
            lost += sigma * np.sum((ROUNDING * terms + by_attention) * counted, axis=1)
            floor += sigma * np.sum((low + above / t.factor) * counted, axis=1)
        slack = ENLARGE * (np.abs(center) + radius * np.sqrt(square) + 1e-300) + lost
        bound = (
            center
            - radius * np.sqrt(square)
            - radius * (0.5 * radius * self.scale * remainder * (1 + ENLARGE))
            - slack
        )
        if alone:
            bound = np.maximum(bound, floor - ENLARGE * np.abs(floor) - lost)
        return bound


def _product(factors) -> np.ndarray:
    return np.einsum("gdr,ger->gde", np.asarray(factors[0], float), np.asarray(factors[1], float))


def _diameter(X: np.ndarray, real: np.ndarray) -> np.ndarray:
    """The largest distance between two real tokens of each sequence."""
    difference = X[:, :, None, :] - X[:, None, :, :]
    squares = np.einsum("nstd,nstd->nst", difference, difference)
    return np.sqrt(np.where(real[:, :, None] & real[:, None, :], squares, 0).max(axis=(1, 2))) * (
        1 + ENLARGE
    )


def _spread(A, X, mean, keys) -> tuple[np.ndarray, np.ndarray]:
    """Per query: the largest eigenvalue of the tokens' covariance, and the largest distance from their mean."""
    n, q, T = A.shape
    variance, radius = np.zeros((n, q)), np.zeros((n, q))
    # one query of all sequences at a time
    for t in range(q):
        away = X - mean[:, t, None, :]
        radius[:, t] = np.sqrt(np.where(keys[:, 0], np.sum(away**2, axis=2), 0).max(axis=1))
        rooted = np.sqrt(A[:, t, :, None]) * away
        small = (
            rooted @ rooted.transpose(0, 2, 1)
            if T <= X.shape[2]
            else rooted.transpose(0, 2, 1) @ rooted
        )
        variance[:, t] = _top(small)
    # what rounding of the centered tokens can add
    size = np.sum(X**2, axis=2).max(axis=1)[:, None]
    return variance * (1 + ENLARGE) + 1e-28 * size, radius * (1 + ENLARGE) + 1e-14 * np.sqrt(size)


def _centered(A, values) -> tuple[np.ndarray, np.ndarray]:
    """Mean under the attention, and the values less their mean."""
    mean = np.einsum("nqs,nqs->nq", A, values)
    return mean, values - mean[:, :, None]


def _deviation(A, values) -> np.ndarray:
    found = np.sqrt(np.einsum("nqs,nqs->nq", A, _centered(A, values)[1] ** 2)) * (1 + ENLARGE)
    return found + ROUNDING * np.abs(values).max(axis=2)


def _top(matrices: np.ndarray) -> np.ndarray:
    """The largest eigenvalue of each matrix; infinite where an entry is not finite."""
    finite = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
    if not finite.all():
        matrices = np.where(finite[:, None, None], matrices, 0.0)
    found = np.maximum(np.linalg.eigvalsh(matrices)[..., -1], 0) * (1 + ENLARGE)
    return np.where(finite, found, np.inf)


def _block(B, C):
    """The norm of a symmetric block matrix with blocks of norm 0, B and C."""
    return (C + np.sqrt(C**2 + 4 * B**2)) / 2
