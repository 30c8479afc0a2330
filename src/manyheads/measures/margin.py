r"""Hard margin through the origin, as an interval that two feasible points prove.

For labels $y_i = \pm 1$ and features $g_i$,
$$\gamma = \max_{\|\theta\| \le 1} \min_i y_i \langle g_i, \theta \rangle
         = \min_{\lambda \in \Delta} \Big\| \sum_i \lambda_i y_i g_i \Big\|.$$
Any direction bounds it from below and any point of the simplex from above. Both are evaluated in
extended precision with an allowance for rounding, so the interval is right whatever the solver did.
Data that no direction separates have $\gamma = 0$; then the simplex point proves "no margin above
u".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from manyheads._check import check, none, not_negative, real_array, share
from manyheads.data.budget import fits_memory
from manyheads.measures.nearest_point import nearest_by_gram, nearest_by_rows
from manyheads.measures.working_set import Round, grow

# examples that are solved at once; of more, a working set
MOST_DIRECT = 5000
# examples in a working set
LARGEST_SET = 4000
NEGLIGIBLE = (
    # of the largest feature norm: an upper bound below it is reported as "not separable"
    1e-7
)
# of two feature norms in the solver; the proof takes them as they are
SMALLEST_RATIO = 1e-150
# entries converted to extended precision at a time
BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class MarginInterval:
    r"""Certified interval of a hard margin.

    `weights` is a point of the simplex that proves `upper`. `direction` proves `lower`: a unit
    vector for a feature matrix, coefficients $a$ with $\theta = \sum_i a_i y_i g_i$ for a Gram
    matrix. `scale` is the largest feature norm.
    """

    lower: float
    upper: float
    weights: np.ndarray
    direction: np.ndarray
    scale: float
    tolerance: float
    # behind a Gram matrix that is a Monte Carlo mean, with three standard errors
    draws: int = 0

    @property
    def relative_gap(self) -> float:
        """(upper − lower) / upper; 0 for the empty interval at 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    @property
    def verdict(self) -> str:
        """One of "separable", "not separable" and "undecided".

        "Not separable" says that there is no margin above `upper`, a negligible one: data that a
        smaller margin separates are named so too.
        """
        if self.lower > 0:
            return "separable"
        return "not separable" if self.upper <= NEGLIGIBLE * self.scale else "undecided"

    @property
    def converged(self) -> bool:
        """Whether the gap asked for was reached, or a margin of more than a negligible size was refuted."""
        return self.verdict == "not separable" or self.relative_gap <= self.tolerance

    @property
    def p3_interval(self) -> tuple[float, float]:
        """The same margin for directions of norm √2, the normalization of the paper's property P3."""
        return float(np.sqrt(2) * self.lower), float(np.sqrt(2) * self.upper)

    def __str__(self) -> str:
        if self.verdict == "not separable":
            text = f"not separable: no margin above {self.upper:.3g} for directions of norm 1"
            return f"{text} (largest feature norm {self.scale:.3g})"
        text = f"margin in [{self.lower:.10g}, {self.upper:.10g}] for directions of norm 1, "
        text += f"relative gap {self.relative_gap:.1e}"
        if self.draws:
            text += f", with three standard errors of a kernel from {self.draws:,} draws"
        if self.verdict == "undecided":
            return f"undecided: {text}; features instead of a Gram matrix would resolve smaller margins"
        return text if self.converged else f"{text}, more than the {self.tolerance:g} asked for"


@check(tolerance=share, gram_accuracy=not_negative | none)
def hard_margin(
    labels, *, gram=None, features=None, tolerance: float = 1e-6, gram_accuracy=None
) -> MarginInterval:
    r"""The margin of a Gram matrix $\langle g_i, g_j\rangle$ or of a feature matrix with rows $g_i$.

    `gram` may be a `TangentKernel`, whose accuracy is then used, or a `KernelLimit`: the interval
    then allows for three standard errors of every entry. `gram_accuracy` is the error that an entry
    of the Gram matrix may have, relative to the norms of its two features; one rounding by default.
    Margins below its square root times the norms cannot be told from zero by a Gram matrix; a
    feature matrix has no such limit. More than 5,000 features are solved by a working set
    (`measures.working_set`): the interval is proved for all of them, and no matrix of all pairs is
    made.
    """
    y = real_array("labels", labels).astype(float)
    if y.ndim != 1 or not len(y) or not np.all(np.abs(y) == 1):
        raise ValueError(
            f"labels must be a non-empty list of +1 and -1, got an array of shape {y.shape}"
        )
    if (gram is None) == (features is None):
        raise ValueError(
            "pass either gram=, an (n, n) matrix, or features=, an (n, p) matrix, and not both"
        )
    largest = len(y) if features is None else min(len(y), MOST_DIRECT)
    fits_memory(f"the margin of {len(y):,} examples", 4.0 * 8 * largest**2, "pass fewer of them")
    if features is not None:
        solve = _of_features if len(y) <= MOST_DIRECT else _of_many_features
        return solve(_checked(features, len(y), None), y, tolerance)
    draws = getattr(gram, "num_draws", 0)
    if hasattr(gram, "matrix"):
        gram_accuracy = max(gram.accuracy, gram_accuracy or 0.0)
        gram = gram.matrix
    K = _checked(gram, len(y), len(y))
    if not np.allclose(K, K.T, rtol=1e-8, atol=1e-8 * np.abs(K).max()):
        raise ValueError("gram is not symmetric; pass (gram + gram.T) / 2 if that is what you mean")
    if np.any(K.diagonal() < 0):
        raise ValueError(
            f"gram has a negative diagonal entry {K.diagonal().min():g}; inner products cannot"
        )
    accuracy = float(np.finfo(float).eps) if gram_accuracy is None else gram_accuracy
    _check_inner_products(K, accuracy)
    return replace(of_gram(K, y, tolerance, accuracy), draws=draws)


def _check_inner_products(K, accuracy) -> None:
    """Refuse a matrix that no features have: one with an eigenvalue below zero by more than its entries may be off."""
    norms = np.sqrt(K.diagonal())
    real = norms > 0
    C = K[np.ix_(real, real)] if not real.all() else K
    C = C / norms[real][:, None] / norms[real]
    C.flat[:: len(C) + 1] += max(1e-8, len(C) * accuracy)
    if not K[~real].any():
        try:
            scipy.linalg.cholesky(C, overwrite_a=True, check_finite=False)
            return
        except scipy.linalg.LinAlgError:
            pass
    raise ValueError(
        "gram has a negative eigenvalue, so it is no matrix of inner products; pass one that is "
        "positive semidefinite, "
        "or gram_accuracy= if its entries are rounded that much"
    )


def _checked(matrix, rows: int, columns: int | None) -> np.ndarray:
    name = "features" if columns is None else "gram"
    M = np.ascontiguousarray(real_array(name, matrix), dtype=float)
    if (
        M.ndim != 2
        or not M.size
        or M.shape[0] != rows
        or (columns is not None and M.shape[1] != columns)
    ):
        wanted = f"({rows}, {'p' if columns is None else columns})"
        raise ValueError(f"{name} has shape {M.shape}, but {rows} labels need shape {wanted}")
    if not np.all(np.isfinite(M)):
        raise ValueError(
            f"{name} contains a value that is not finite; remove the example or lower the scale"
        )
    return M


def of_gram(K, y, tolerance, accuracy) -> MarginInterval:
    """The margin of a checked Gram matrix."""
    unit = _power_of_two(np.sqrt(K.diagonal().max()))
    # exact, and nothing below over- or underflows
    K = K / unit**2
    norms = np.sqrt(K.diagonal())
    # no direction classifies a feature of length zero: all weight on it
    if norms.min() == 0:
        lam, a = np.eye(1, len(y), int(np.argmin(norms)))[0], np.zeros(len(y))
    else:
        s = y / norms
        C = K * s[:, None] * s[None, :]
        mu, a = nearest_by_gram((C + C.T) / 2, norms.min() / norms, tolerance / 4)
        lam, a = mu / norms, a / norms
        lam = lam / lam.sum()
    rounding = accuracy + (len(y) + 3) * float(np.finfo(np.longdouble).eps)
    _, v = _correlations(K, y, lam)
    upper = (
        np.sqrt(max(v, 0.0) + rounding * (lam @ norms) ** 2)
        / np.sum(lam, dtype=np.longdouble)
        * (1 + rounding)
    )
    lower = 0.0
    if np.any(a):
        q, v = _correlations(K, y, a)
        reach = np.abs(a) @ norms
        square = v + rounding * reach**2
        if square > 0:
            lower = np.min(q - rounding * reach * norms) / np.sqrt(square)
            a = a / np.sqrt(square)
    return interval_of(lower, upper, lam, a / unit, float(norms.max()), tolerance, unit)


def _of_features(G, y, tolerance) -> MarginInterval:
    n, p = G.shape
    largest = np.abs(G).max(axis=1, initial=0.0)
    F = G / np.where(largest > 0, largest, 1.0)[:, None]
    lengths = np.linalg.norm(F, axis=1)
    # of rows scaled one by one, in a range that their ratios fit
    norms = largest.astype(np.longdouble) * lengths
    if norms.min() == 0:
        lam = np.eye(1, n, int(np.argmin(norms)))[0]
        return _proved(G, y, norms, lam, np.zeros(p), tolerance)
    F = F * (y / lengths)[:, None]
    c = np.maximum((norms.min() / norms).astype(float), SMALLEST_RATIO)
    if 2 * p <= n:
        mu, w = nearest_by_rows(F, c, tolerance / 4)
        return _proved(G, y, norms, mu / norms, w, tolerance)
    mu, a = nearest_by_gram(F @ F.T, c, tolerance / 4)
    found = _proved(G, y, norms, mu / norms, a @ F, tolerance)
    if (
        found.relative_gap > tolerance
    ):  # a Gram matrix has half of the digits, a triangular factor of the rows all
        Q, R = scipy.linalg.qr(F.T, mode="economic", check_finite=False)
        mu, w = nearest_by_rows(np.ascontiguousarray(R.T), c, tolerance / 4)
        again = _proved(G, y, norms, mu / norms, Q @ w, tolerance)
        found = again if again.upper - again.lower < found.upper - found.lower else found
    return found


def _of_many_features(G, y, tolerance) -> MarginInterval:
    """The margin by a working set."""
    norms = _norms(G)

    def solve(chosen) -> Round:
        found = _of_features(G[chosen], y[chosen], tolerance / 2)
        products = _along(G, y, norms, found.direction)
        return Round(
            found.upper, found.weights, found.direction, products, found.verdict == "not separable"
        )

    grown = grow(len(y), solve, tolerance, LARGEST_SET)
    return interval_of(
        grown.lower, grown.upper, grown.weights, grown.direction, float(norms.max()), tolerance, 1.0
    )


def _norms(G) -> np.ndarray:
    largest = np.abs(G).max(axis=1, initial=0.0)
    return largest.astype(np.longdouble) * np.linalg.norm(
        G / np.where(largest > 0, largest, 1.0)[:, None], axis=1
    )


def _along(G, y, norms, w) -> np.ndarray:
    """At least so large is the product of each feature with the unit vector along w; zeros if w is zero."""
    eps = float(np.finfo(np.longdouble).eps)
    w = w.astype(np.longdouble)
    length = np.sqrt(w @ w)
    if not length > 0:
        return np.zeros(len(y), np.longdouble)
    products = (_products(G, w) * y - (G.shape[1] + 3) * eps * norms) / length
    return products - 4 * eps * np.abs(products)


def _proved(G, y, norms, lam, w, tolerance) -> MarginInterval:
    """What a point of the hull and a direction prove."""
    n, p = G.shape
    eps = float(np.finfo(np.longdouble).eps)
    lam = (lam / lam.sum()).astype(float)
    point = _combine(G, lam * y)
    upper = (
        (np.sqrt(point @ point) * (1 + 4 * eps) + (n + 3) * eps * (lam @ norms))
        / np.sum(lam, dtype=np.longdouble)
        * (1 + n * eps)
    )
    lower = 0.0
    length = np.linalg.norm(w)
    if length > 0:
        w = w / length
        length = np.sqrt(w.astype(np.longdouble) @ w.astype(np.longdouble))
        products = _products(G, w) * y - (p + 3) * eps * norms
        lower = np.min(products) / length * (1 - 4 * eps)
    return interval_of(lower, upper, lam, w, float(norms.max()), tolerance, 1.0)


def _power_of_two(size: float) -> float:
    """A power of two near a size, to divide by."""
    return float(np.ldexp(1.0, np.frexp(size)[1] - 1)) if size > 0 else 1.0


def interval_of(lower, upper, weights, direction, scale, tolerance, unit) -> MarginInterval:
    """The bounds in double precision and in the user's unit, rounded outwards."""
    if not np.isfinite(upper):
        raise ValueError(
            "the margin cannot be evaluated, its terms are too large or too small; rescale the "
            "features"
        )
    upper = float(np.nextafter(float(upper), np.inf)) * unit if upper > 0 else 0.0
    lower = max(float(np.nextafter(float(lower), -np.inf)), 0.0) * unit
    return MarginInterval(min(lower, upper), upper, weights, direction, scale * unit, tolerance)


def _blocks(M):
    step = max(1, BLOCK // max(1, M.shape[1]))
    return [slice(start, start + step) for start in range(0, len(M), step)]


def _products(M, x):
    """M x in extended precision."""
    x = x.astype(np.longdouble)
    return np.concatenate([M[rows].astype(np.longdouble) @ x for rows in _blocks(M)])


def _combine(M, x):
    """x' M in extended precision."""
    x = x.astype(np.longdouble)
    return sum(x[rows] @ M[rows].astype(np.longdouble) for rows in _blocks(M))


def _correlations(K, y, a):
    r"""$y_i \langle g_i, \sum_j a_j y_j g_j \rangle$ for all i, and the squared norm of the sum."""
    q = _products(K, a * y) * y
    return q, float(a.astype(np.longdouble) @ q)
