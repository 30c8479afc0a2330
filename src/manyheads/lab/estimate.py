"""A number with its interval over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# scipy.stats takes a second to import
from scipy.special import ndtri, stdtrit


@dataclass(frozen=True)
class Estimate:
    """A value with its interval; neither is known where `lost` values were not finite."""

    value: float
    low: float
    high: float
    count: int  # seeds; 0 for what is computed exactly
    lost: int = 0
    note: str = ""

    def __str__(self) -> str:
        if self.lost:
            return f"no number: {self.lost} of {self.count} values are not finite"
        if self.low == self.high:
            return number(self.value)
        if math.isinf(self.low) and math.isinf(self.high):
            return f"{number(self.value)}, no interval"
        return f"{number(self.value)} ({number(self.low)} to {number(self.high)})"


def exact(value: float, note: str = "") -> Estimate:
    """A number without an error: counted, or computed from a formula."""
    if not math.isfinite(value):
        return Estimate(math.nan, -math.inf, math.inf, 1, 1, note)
    return Estimate(float(value), float(value), float(value), 0, note=note)


def student(values: Any, level: float) -> Estimate:
    r"""The mean with Student's interval $\bar v \pm t\, s/\sqrt n$; one seed gives none."""
    v = np.ravel(np.asarray(values, float))
    # Leaving them out would be a choice that depends on the result.
    if lost := int(np.sum(~np.isfinite(v))):
        return Estimate(math.nan, -math.inf, math.inf, len(v), lost)
    center, half = float(v.mean()), math.inf
    if len(v) > 1:
        quantile = float(stdtrit(len(v) - 1, (1 + level) / 2))
        half = quantile * float(v.std(ddof=1)) / math.sqrt(len(v))
    return Estimate(center, center - half, center + half, len(v))


def wilson(values: Any, level: float) -> Estimate:
    """The share of the seeds for which something is true, with Wilson's interval."""
    v = np.ravel(np.asarray(values, float))
    if lost := int(np.sum(~np.isfinite(v))):
        return Estimate(math.nan, 0.0, 1.0, len(v), lost)
    n, p = len(v), float(np.mean(v != 0))
    z = float(ndtri((1 + level) / 2))
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z**2 / n)
    # At the ends rounding must not leave a sliver outside [0, 1].
    low = 0.0 if p == 0 else max(0.0, middle - half)
    high = 1.0 if p == 1 else min(1.0, middle + half)
    return Estimate(p, low, high, n)


def exponential(found: Estimate) -> Estimate:
    """The estimate of exp(x) from that of x."""
    # Beyond 709 the exponential overflows.
    low, high = (math.exp(min(bound, 700.0)) for bound in (found.low, found.high))
    high = math.inf if found.high > 700 else high
    return Estimate(math.exp(found.value), low, high, found.count, found.lost, found.note)


def largest(estimates: Sequence[Estimate]) -> Estimate:
    """The largest of several numbers; its interval holds where all of theirs do."""
    return _end(estimates, max)


def smallest(estimates: Sequence[Estimate]) -> Estimate:
    """The smallest of several numbers; its interval holds where all of theirs do."""
    return _end(estimates, min)


def cover(estimates: Sequence[Estimate]) -> Estimate:
    """All of several numbers at once: their middle, and the interval that covers all of theirs."""
    low, high = smallest(estimates), largest(estimates)
    middle = (low.value + high.value) / 2
    return Estimate(middle, low.low, high.high, low.count, low.lost, low.note)


def _end(estimates: Sequence[Estimate], choose: Any) -> Estimate:
    if not estimates:
        raise ValueError("there are no estimates to choose from; pass at least one.")
    lost = sum(e.lost for e in estimates)
    count = sum(e.count for e in estimates) if lost else max(e.count for e in estimates)
    notes = dict.fromkeys(e.note for e in estimates if e.note)
    if lost:
        return Estimate(math.nan, -math.inf, math.inf, count, lost, "; ".join(notes))
    value, low, high = (
        choose(getattr(e, name) for e in estimates) for name in ("value", "low", "high")
    )
    return Estimate(value, low, high, count, 0, "; ".join(notes))


def number(value: float, digits: int = 3) -> str:
    """A number in three digits, as the page and the documents print it."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == int(rounded) and abs(rounded) < 1e6:
        return f"{int(rounded):,}"
    if 1e-3 <= abs(rounded) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        return f"{rounded:,.{decimals}f}".rstrip("0").rstrip(".") if decimals else f"{rounded:,.0f}"
    return f"{rounded:.{digits - 1}e}".replace("e-0", "e-").replace("e+0", "e")
