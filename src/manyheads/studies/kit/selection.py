"""The best of several choices (step sizes, starts), without letting a seed choose for itself.

The largest of several noisy means is biased upward. Here every seed is evaluated at the choice made by the other seeds,
so the interval over seeds is unbiased by the selection.
"""

from __future__ import annotations

import numpy as np


def held_out(scores) -> np.ndarray:
    """For every seed, the choice with the largest mean score over the other seeds; -1 where there is none.

    `scores` has a row per choice and a column per seed. A choice that failed (NaN) for one of the deciding seeds is
    excluded; seeds for which everything is NaN were not run and are ignored. A single seed decides for itself.
    """
    table = np.asarray(scores, dtype=float)
    known = np.isfinite(table).any(axis=0)
    chosen = np.full(table.shape[1], -1)
    for seed in np.flatnonzero(known):
        others = known & (np.arange(table.shape[1]) != seed)
        chosen[seed] = best(table[:, others if others.any() else known])
    return chosen


def best(scores) -> int:
    """The choice with the largest mean score over all seeds; -1 where none has a score for every seed that was run."""
    table = np.asarray(scores, dtype=float)
    table = table[:, np.isfinite(table).any(axis=0)]
    means = [row.mean() if len(row) and np.isfinite(row).all() else -np.inf for row in table]
    return int(np.argmax(means)) if np.isfinite(means).any() else -1


def at_end(scores) -> bool:
    """Whether the best choice is the first or the last of a ladder: then the true best may lie beyond it."""
    return best(scores) in (0, len(np.asarray(scores)) - 1)


def taken(values, chosen) -> np.ndarray:
    """The entry of every seed at its choice, from an array with the choice as first axis and the seed as second."""
    table, seeds = np.asarray(values, dtype=float), np.arange(len(chosen))
    found = table[np.maximum(chosen, 0), seeds]
    return np.where(np.reshape(chosen, (-1,) + (1,) * (found.ndim - 1)) >= 0, found, np.nan)


def bracketed(values) -> tuple[int | None, np.ndarray]:
    """The best row of a ladder, chosen by one half of the seeds, and that row's values for the other half.

    `values` has one row per rung and one column per seed; the smallest mean of the even columns is the best. None if it
    is the first or the last rung: then the ladder does not bracket the best.
    """
    table = np.asarray(values, dtype=float)
    chosen = np.nanmean(np.where(np.isfinite(table), table, np.inf)[:, ::2], axis=1)
    best = int(np.argmin(chosen))
    inside = 0 < best < len(table) - 1 and np.isfinite(chosen[best])
    return (best, table[best, 1::2]) if inside else (None, np.full(table.shape[1] // 2, np.nan))
