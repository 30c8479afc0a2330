"""Nearest point of a polytope to the origin: the quadratic programs behind every margin.

Rows f_i have unit length and the hull is that of f_i / c_i with 0 < c_i <= 1, so that data of very
different norms stay well scaled. A point of the hull is `sum_i mu_i f_i` with `mu >= 0` and `sum_i
c_i mu_i = 1`; its length bounds the distance from above. A direction `w` bounds it from below by
`min_i <f_i, w> / (c_i |w|)`. Nothing here certifies: the caller evaluates both bounds again.
"""

from __future__ import annotations

import numpy as np
import piqp
import scipy.linalg

(DPSTRF,) = scipy.linalg.get_lapack_funcs(("pstrf",), dtype=np.float64)
# rescaled solves of the homogeneous form
PASSES = 3
# first ridge of the support system, relative to unit rows
RIDGE = 1e-14


def nearest_by_gram(
    C: np.ndarray, c: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Hull weights and direction coefficients from the Gram matrix of the unit rows.

    First the dual program; where its gap stays open (small margin, steep spectrum), the homogeneous
    primal program in the coordinates of a pivoted Cholesky factor, on the rows near the hull's
    face. The direction is the affine minimizer of the support, refined. Stops at the gap asked for,
    or at the one that the rounding of a Gram matrix allows.
    """
    n, best = len(C), _Best(C, c, tolerance)
    # a small problem is solved before its rank is known
    factor = _factor(C) if n > 200 else None
    rows = np.arange(n)
    if factor is None or 2 * factor.shape[1] > n:
        mu = _dual(C, c)
        best.offer(mu, mu)
        if not best.good:
            best.offer(mu, _support_minimizer(C, c, mu, C @ mu))
        if best.good:
            return best.mu, best.a
        rows, factor = best.near_face(), None
    for _ in range(PASSES):
        before = best.upper
        block = C[np.ix_(rows, rows)]
        F = _factor(block) if factor is None else factor
        part, w = _homogeneous(F, c[rows], min(best.upper, 1.0))
        mu, a = np.zeros(n), np.zeros(n)
        mu[rows], a[rows] = part, _support_minimizer(block, c[rows], part, F @ w)
        best.offer(mu, mu)
        best.offer(mu, a)
        if best.good or best.upper < 1e-12 or (len(rows) == n and best.upper > 0.5 * before):
            break
        rows, factor = np.union1d(rows, best.near_face()), None
    return best.mu, best.a


def nearest_by_rows(
    F: np.ndarray, c: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Hull weights and direction from the unit rows themselves; for more rows than columns."""
    upper, lower, best_mu, best_w = 1.0, -np.inf, np.zeros(0), np.zeros(0)
    for _ in range(PASSES):
        mu, w = _homogeneous(F, c, upper)
        length = float(np.linalg.norm(mu @ F))
        least = np.min(F @ w / c) / max(np.linalg.norm(w), np.finfo(float).tiny)
        before = upper
        if not len(best_mu) or length < upper:
            upper, best_mu = length, mu
        if not len(best_w) or least > lower:
            lower, best_w = least, w
        if upper - lower <= tolerance * upper or upper < 1e-14 or upper > 0.5 * before:
            break
    return best_mu, best_w


class _Best:
    """The best hull point and the best direction offered so far, judged in double precision."""

    def __init__(self, C, c, tolerance):
        self.C, self.c, self.tolerance = C, c, tolerance
        self.upper, self.lower = np.inf, -np.inf
        # nothing offered yet
        self.mu = self.a = self.slack = np.zeros(0)

    def offer(self, mu: np.ndarray, a: np.ndarray) -> None:
        length = np.sqrt(max(mu @ (self.C @ mu), 0.0))
        if not len(self.mu) or length < self.upper:
            self.upper, self.mu = length, mu
        products = self.C @ a
        square = max(a @ products, np.finfo(float).tiny)
        least = np.min(products / self.c) / np.sqrt(square)
        if not len(self.a) or least > self.lower:
            self.lower, self.a, self.slack = least, a, products / (self.c * square) - 1.0

    @property
    def good(self) -> bool:
        allowed = max(self.tolerance * self.upper**2, 3 * np.finfo(float).eps)
        return bool(self.upper > 0 and (self.upper - self.lower) * self.upper <= allowed)

    def near_face(self) -> np.ndarray:
        """Rows that weigh something or lie within twice the distance, once a direction separates; all before that."""
        if self.lower <= 0:
            return np.arange(len(self.c))
        return np.flatnonzero((self.slack < 1.0) | (self.mu * self.c * len(self.c) > 1e-2))


def _settings(solver, accuracy: float, iterations: int) -> None:
    s = solver.settings
    s.verbose, s.max_iter, s.check_duality_gap = False, iterations, True
    s.eps_abs = s.eps_duality_gap_abs = accuracy
    s.eps_rel = s.eps_duality_gap_rel = 0.0


def _on_hull(mu: np.ndarray, c: np.ndarray) -> np.ndarray:
    mu = np.where(np.isfinite(mu), np.maximum(mu, 0.0), 0.0)
    total = c @ mu
    return mu / total if total > 0 else np.full(len(c), 1.0 / c.sum())


def _dual(C: np.ndarray, c: np.ndarray) -> np.ndarray:
    """argmin of mu' C mu over the hull."""
    n = len(c)
    solver = piqp.DenseSolver()
    _settings(solver, 1e-13, 22)
    solver.setup(
        C, np.zeros(n), c[None], np.ones(1), None, None, None, np.zeros(n), np.full(n, np.inf)
    )
    solver.solve()
    return _on_hull(solver.result.x, c)


def _homogeneous(F: np.ndarray, c: np.ndarray, upper: float) -> tuple[np.ndarray, np.ndarray]:
    """argmin of |w|^2/2 - t subject to <f_i, w> >= t c_i, in units of `upper`: feasible for every data set."""
    n, p = F.shape
    solver = piqp.DenseSolver()
    _settings(solver, 1e-13, 60)
    P = np.diag(np.r_[np.full(p, upper), 0.0])
    rows = np.concatenate([F, -upper * c[:, None]], axis=1)
    q = np.r_[np.zeros(p), -upper]
    solver.setup(P, q, None, None, rows, np.zeros(n), np.full(n, np.inf), None, None)
    solver.solve()
    return _on_hull(np.abs(solver.result.z_l), c), solver.result.x[:-1]


def _factor(C: np.ndarray) -> np.ndarray:
    """L with C = L L' up to rounding and as many columns as C has numerical rank."""
    packed, pivots, rank, _ = DPSTRF(C, lower=1, tol=-1.0)
    L = np.empty((len(C), rank))
    L[pivots - 1] = np.tril(packed)[:, :rank]
    return L


def _support_minimizer(
    C: np.ndarray, c: np.ndarray, mu: np.ndarray, products: np.ndarray
) -> np.ndarray:
    """The nearest point of the affine hull of the support, as coefficients; its signs are free.

    The support is where the weight, in units of its mean, exceeds the relative slack. The ridge
    that makes a singular system solvable is removed by proximal steps.
    """
    square = max(mu @ products, np.finfo(float).tiny)
    S = np.flatnonzero(mu * c * len(c) > np.abs(products / (c * square) - 1.0))
    if not len(S):
        return mu
    block, b, ridge = C[np.ix_(S, S)], c[S], RIDGE
    while True:
        try:
            chol = scipy.linalg.cho_factor(block + ridge * np.eye(len(S)))
            break
        except scipy.linalg.LinAlgError:
            ridge *= 100
    z = scipy.linalg.cho_solve(chol, b)
    x = z / (b @ z)
    for _ in range(4):
        step = scipy.linalg.cho_solve(chol, -(block @ x))
        x = x + step - (b @ step) / (b @ z) * z
    a = np.zeros(len(c))
    a[S] = x
    return a
