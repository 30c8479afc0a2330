r"""The margin of many features from a few of them: a working set that grows until it proves the margin of all.

For a subset W of the features, with $\gamma$ the margin of all and $\gamma_W$ that of W:

* $\gamma \le \gamma_W \le u_W$, where $u_W$ is the length of any point of W's hull: such a point is
  one of the hull of all, with weight zero on the others.
* $\gamma \ge \min_i y_i\langle g_i, \theta\rangle$ for every unit vector $\theta$, the minimum over
  all i; the best direction for W is one.

So the interval holds after every round, whatever W is. A round solves on W, evaluates the direction
on all features and adds those that it separates worst. If none lies below $(1-0.9\tau)u_W$, and W
was solved to a gap of $\tau/2$, the gap is below $\tau$. W grows in every other round, so there is
an end; in practice W ends a little larger than the number of features that hold the margin, at most
their rank. If W is not separable, $\gamma \le u_W$ says that all are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# features in the first working set, spread evenly over all
FIRST = 256
# in a round
LEAST_ADDED, MOST_ADDED = 64, 512


class Round(NamedTuple):
    """What one working set proves."""

    upper: float
    weights: np.ndarray  # of the working set
    direction: np.ndarray
    # (n,) at least so large is the product of each feature with the unit direction
    products: np.ndarray
    inseparable: bool


class Grown(NamedTuple):
    """The best bounds of all rounds, with what proves them."""

    lower: float
    upper: float
    weights: np.ndarray  # (n,)
    direction: np.ndarray
    # the working set of `direction`
    chosen: np.ndarray
    rounds: int


def grow(
    num: int,
    solve: Callable[[np.ndarray], Round],
    tolerance: float,
    most: int,
    tell: Any = None,
    first: np.ndarray | None = None,
) -> Grown:
    """Bounds on the margin of `num` features from working sets of at most `most` of them, which `solve` solves.

    `first` is the first working set: that of features near these, for example.
    """
    chosen = np.unique(np.linspace(0, num - 1, min(FIRST, num, most)).round().astype(int))
    chosen = chosen if first is None else first
    best = Grown(0.0, np.inf, np.zeros(num), np.zeros(0), chosen, 0)
    while True:
        found = solve(chosen)
        best = best._replace(rounds=best.rounds + 1)
        if found.upper < best.upper:
            weights = np.zeros(num)
            weights[chosen] = found.weights
            best = best._replace(upper=found.upper, weights=weights)
        if (lower := float(np.min(found.products))) > best.lower or not len(best.direction):
            best = best._replace(lower=max(lower, 0.0), direction=found.direction, chosen=chosen)
        if tell is not None:
            tell(
                f"{len(chosen):,} of {num:,} sequences: margin in [{best.lower:.6g}, "
                f"{best.upper:.6g}]"
            )
        if found.inseparable or best.upper - best.lower <= tolerance * best.upper:
            return best
        behind = np.setdiff1d(
            np.flatnonzero(found.products < (1 - 0.9 * tolerance) * best.upper), chosen
        )
        room = min(max(LEAST_ADDED, len(chosen) // 2), MOST_ADDED, most - len(chosen))
        if not len(behind) or room <= 0:
            return best
        worst = behind[np.argsort(found.products[behind], kind="stable")[:room]]
        chosen = np.concatenate([chosen, worst])
