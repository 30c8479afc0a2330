"""A number with its 95% interval over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit  # scipy.stats takes a second to import

from manyheads.theory.finding import LEVEL, half_width


@dataclass(frozen=True)
class Estimate:
    """A mean over `count` seeds with its interval. One seed gives no interval; no seed gives NaN."""

    value: float
    low: float
    high: float
    count: int

    def above(self, threshold: float) -> bool:
        """Whether the whole interval lies above; False for NaN and for a single seed."""
        return bool(self.low > threshold)

    def below(self, threshold: float) -> bool:
        """Whether the whole interval lies below; False for NaN and for a single seed."""
        return bool(self.high < threshold)

    def __str__(self) -> str:
        """The value alone, for sentences; the table of numbers has the interval."""
        return number(self.value) if self.count else "not measured"

    @property
    def interval(self) -> str:
        """The interval in words; one seed has none, and one too narrow for three digits is given by its width."""
        if self.count < 2:
            return "none"
        low, high = number(self.low), number(self.high)
        if self.high == math.inf:
            return f"from {low}"
        if low != high:
            return f"{low} to {high}"
        return (
            f"± {number((self.high - self.low) / 2, 1)}"
            if self.high > self.low
            else "equal for all seeds"
        )


NONE = Estimate(math.nan, math.nan, math.nan, 0)  # nothing was measured


def mean(values) -> Estimate:
    r"""The mean of one value per seed with Student's interval $\bar v \pm t_{.975,\,n-1}\, s/\sqrt n$, without NaN."""
    v = _known(values)
    if len(v) == 0:
        return NONE
    center = float(v.mean())
    half = half_width(v)
    return Estimate(center, center - half, center + half, len(v))


def crossed(table) -> Estimate:
    r"""The mean of a table with one row per seed and one column per test sequence, where both are samples.

    Its variance is at most $s_r^2/S + s_c^2/m$, those of the row and of the column means; the degrees of freedom are
    Satterthwaite's. Rows with NaN are left out.
    """
    t = np.asarray(table, dtype=float)
    t = t[np.isfinite(t).all(axis=1)]
    if len(t) == 0:
        return NONE
    center, half = float(t.mean()), math.inf
    if len(t) > 1:
        parts = [means.var(ddof=1) / len(means) for means in (t.mean(axis=1), t.mean(axis=0))]
        freedom = [size - 1 for size in t.shape]
        total = sum(parts)
        spread = sum(part**2 / f for part, f in zip(parts, freedom, strict=True))
        half = (
            float(stdtrit(total**2 / spread, (1 + LEVEL) / 2)) * math.sqrt(total)
            if total > 0
            else 0.0
        )
    return Estimate(center, center - half, center + half, len(t))


def share(values) -> Estimate:
    r"""The share of seeds for which something is true, with Wilson's interval, which stays between 0 and 1.

    NaN, a seed without an answer, is left out.
    """
    v = _known(values)
    if len(v) == 0:
        return NONE
    p, n, z = float(v.mean()), len(v), float(ndtri((1 + LEVEL) / 2))
    middle, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    low, high = ((middle + side * half) / (1 + z**2 / n) for side in (-1, 1))
    return Estimate(p, low if p > 0 else 0.0, high if p < 1 else 1.0, n)


def ratio(above, below=1.0) -> Estimate:
    """The geometric mean of above/below, paired by seed; its interval is that of the mean logarithm."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = mean(np.log(np.asarray(above, dtype=float)) - np.log(np.asarray(below, dtype=float)))
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.count)


def quotient(above, below) -> Estimate:
    """The mean of `above` over that of `below`, paired by seed, with a jackknife interval: values may be negative."""
    pairs = np.stack([np.asarray(above, float), np.asarray(below, float)])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    total, seeds = pairs.sum(axis=1), pairs.shape[1]
    without = np.array([total, *(total - pairs.T)])
    if seeds < 2 or (without <= 0).any():
        return NONE
    logs = np.log(without[:, 0] / without[:, 1])
    found = mean(seeds * logs[0] - (seeds - 1) * logs[1:])
    return Estimate(
        *(math.exp(value) for value in (found.value, found.low, found.high)), found.count
    )


def at_level(losses, values, levels) -> np.ndarray:
    """The values of each seed where its loss reaches a level, interpolated linearly in the log loss between records.

    `losses` and `values` are over (seed, record); NaN for a seed that does not reach its level.
    """
    found = []
    for loss, value, level in zip(
        np.asarray(losses, float), np.asarray(values, float), levels, strict=True
    ):
        known = np.isfinite(loss) & np.isfinite(value)
        reached = known.any() and loss[known].min() <= level <= loss[known].max()
        order = np.argsort(loss[known])
        found.append(
            np.interp(np.log(level), np.log(loss[known])[order], value[known][order])
            if reached
            else np.nan
        )
    return np.array(found)


def power(x, values) -> Estimate:
    """The exponent p of values ~ x^p: least squares in logarithms for each seed, then the mean over seeds.

    `x` and `values` are as in `rows`; seeds with a value that is not positive are left out.
    """
    x, y = rows(x, values)
    log_x = np.log(np.asarray(x, dtype=float))
    slopes = [
        np.polyfit(log_x, np.log(column), 1)[0]
        for column in y.T
        if np.all(np.isfinite(column) & (column > 0))
    ]
    return mean(slopes)


def rows(x, values) -> tuple[Any, np.ndarray]:
    """x, and `values` with one row per x and one column per seed.

    With the name of a coordinate as `x`, `values` is an xarray whose other dimensions are seeds (or samples).
    """
    if not isinstance(x, str):
        return x, np.asarray(values, dtype=float)
    positions = values[x]
    array = values.transpose(positions.dims[0], ...).values.astype(float)
    return positions.values, array.reshape(len(array), -1)


def tenth(steps: np.ndarray) -> int:
    """The index of the record nearest to a tenth of the last step."""
    return int(np.argmin(np.abs(np.log(np.maximum(steps, 1)) - np.log(steps[-1] / 10))))


def number(value: float, digits: int = 3) -> str:
    """A number as people read it: 0.0214, 1,024, 5.1e8."""
    if not math.isfinite(value):
        return {math.inf: "infinite", -math.inf: "minus infinite"}.get(value, "not a number")
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return (
            f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
        )
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def _known(values) -> np.ndarray:
    v = np.asarray(values, dtype=float).ravel()
    return v[np.isfinite(v)]
