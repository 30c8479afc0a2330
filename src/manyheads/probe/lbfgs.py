"""L-BFGS on many columns in step: each has its own line search, and those that have converged drop out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MEMORY = 12  # pairs of steps and changes of the gradient
ARMIJO, WOLFE = 1e-4, 0.9
MOST_TRIALS = 20  # points of one line search


class Minimum(NamedTuple):
    """Where each column ended."""

    theta: np.ndarray  # (columns, parameters)
    value: np.ndarray
    slope: np.ndarray  # largest entry of the gradient
    steps: np.ndarray
    converged: np.ndarray


def minimize(
    function: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    start: np.ndarray,
    *,
    steps: int,
    tolerance: float = 1e-5,
    change: float = 1e-5,
    watch: Callable[[int], None] | None = None,
) -> Minimum:
    """Minimize every column; `function(theta, which)` gives values and gradients of the columns `which`.

    A column has converged when the largest entry of its gradient is below `tolerance`, or its value fell by less than
    the share `change` in each of three steps.
    """
    count, size = start.shape
    theta = start.copy()
    active = np.arange(count)
    value, gradient = function(theta, active)
    S = np.zeros((MEMORY, count, size), start.dtype)
    Y = np.zeros((MEMORY, count, size), start.dtype)
    rho = np.zeros((MEMORY, count), start.dtype)  # zero where there is no pair: it changes nothing
    taken = np.zeros(count, int)
    idle = np.zeros(count, int)
    converged = np.abs(gradient).max(axis=1) <= tolerance
    active = active[~converged]
    for step in range(steps):
        if not len(active):
            break
        if watch is not None:
            watch(step)
        pairs = [(step - 1 - k) % MEMORY for k in range(min(step, MEMORY))]
        direction = -_product(gradient[active], S, Y, rho, active, pairs)
        slope = np.sum(direction * gradient[active], axis=1)
        uphill = ~(slope < 0)
        if uphill.any():
            direction[uphill] = -gradient[active[uphill]]
            slope[uphill] = -np.sum(gradient[active[uphill]] ** 2, axis=1)
        first = np.ones(len(active), start.dtype)
        if step == 0:
            first = 1.0 / np.maximum(1.0, np.sqrt(-slope))
        point, found, turned, moved = _line_search(
            function, theta[active], value[active], active, direction, slope, first
        )
        s, y = point - theta[active], turned - gradient[active]
        curvature = np.sum(s * y, axis=1)
        sound = moved & (curvature > 1e-12 * np.sum(y * y, axis=1))
        row = step % MEMORY
        S[row, active], Y[row, active] = s, y
        rho[row, active] = np.where(sound, 1.0 / np.where(sound, curvature, 1.0), 0.0)
        fall = value[active] - found
        small = fall <= change * np.maximum(1e-3, np.abs(found))
        idle[active] = np.where(small, idle[active] + 1, 0)
        theta[active], value[active], gradient[active] = point, found, turned
        taken[active] += 1
        done = (np.abs(turned).max(axis=1) <= tolerance) | (idle[active] >= 3) | ~moved
        converged[active] = done
        active = active[~done]
    return Minimum(theta, value, np.abs(gradient).max(axis=1), taken, converged)


def _product(g, S, Y, rho, active, pairs: list[int]) -> np.ndarray:
    """The inverse Hessian that the pairs suggest, times g; newest pair first."""
    q = g.copy()
    shares = []
    for k in pairs:
        share = rho[k, active] * np.einsum("cp,cp->c", S[k, active], q)
        q -= share[:, None] * Y[k, active]
        shares.append(share)
    if pairs:
        newest = Y[pairs[0], active]
        length = np.einsum("cp,cp->c", newest, newest) * rho[pairs[0], active]
        q *= np.where(length > 0, 1.0 / np.where(length > 0, length, 1.0), 1.0)[:, None]
    for k, share in zip(reversed(pairs), reversed(shares), strict=True):
        other = rho[k, active] * np.einsum("cp,cp->c", Y[k, active], q)
        q += (share - other)[:, None] * S[k, active]
    return q


def _line_search(function, theta, value, active, direction, slope, t):
    """Weak Wolfe conditions by bisection, every column on its own; also whether the column moved at all."""
    count = len(theta)
    low, high = np.zeros_like(t), np.full_like(t, np.inf)
    point, found = theta.copy(), value.copy()
    turned = np.zeros_like(theta)
    moved = np.zeros(count, bool)
    open_ = np.arange(count)
    for _ in range(MOST_TRIALS):
        trial = theta[open_] + t[open_, None] * direction[open_]
        values, gradients = function(trial, active[open_])
        bound = value[open_] + ARMIJO * t[open_] * slope[open_]
        lower = values <= bound  # False for NaN
        flat = np.sum(gradients * direction[open_], axis=1) >= WOLFE * slope[open_]
        keep = open_[lower]  # the best point so far, should the search end here
        point[keep], found[keep], turned[keep] = trial[lower], values[lower], gradients[lower]
        moved[keep] = True
        high[open_[~lower]] = t[open_[~lower]]
        longer = lower & ~flat
        low[open_[longer]] = t[open_[longer]]
        open_ = open_[~(lower & flat)]
        if not len(open_):
            break
        t[open_] = np.where(np.isinf(high[open_]), 2.0 * low[open_], 0.5 * (low + high)[open_])
    stuck = ~moved
    if stuck.any():
        _, turned[stuck] = function(theta[stuck], active[stuck])
    return point, found, turned, moved
