"""What claims and figures ask of the dataset of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray

from manyheads.lab.estimate import Estimate, exponential, student, wilson

LEVEL = 0.95


class Results:
    """Estimates over the seeds of a sweep.

    A setting is chosen by axis=value, two are compared by axis=(one, other). Intervals have the
    given level; `asked` counts the estimates, so that `decide` can correct for their number.
    A value that is not finite leaves the estimate without an interval.
    """

    def __init__(self, data: xarray.Dataset, level: float = LEVEL, asked: list[int] | None = None):
        self.data, self.level = data, level
        self.asked = [0] if asked is None else asked

    def values(self, name: str, **setting: Any) -> np.ndarray:
        """The value of each seed."""
        if name not in self.data:
            raise ValueError(
                f"nothing is called {name!r}; there is {', '.join(map(str, self.data))}."
            )
        try:
            found = self.data[name].sel(setting)
        except (KeyError, ValueError):
            known = {axis: self.data[axis].values.tolist() for axis in setting if axis in self.data}
            raise ValueError(f"{name} has no setting {setting}; it has {known}.") from None
        left = [str(axis) for axis in found.dims if axis != "seed"]
        if left:
            raise ValueError(f"{name} needs a choice of {', '.join(left)}: pass {left[0]}=...")
        return found.values.astype(float)

    def of(self, values: Any, *, log: bool = False, note: str = "") -> Estimate:
        """The mean of one number per seed; with `log` the geometric mean."""
        self.asked[0] += 1
        with np.errstate(divide="ignore", invalid="ignore"):
            found = student(np.log(values) if log else values, self.level)
        found = exponential(found) if log else found
        return Estimate(found.value, found.low, found.high, found.count, found.lost, note)

    def mean(self, name: str, **setting: Any) -> Estimate:
        """The mean over the seeds."""
        return self.of(self.values(name, **setting), note=self._note(name))

    def share(self, name: str, **setting: Any) -> Estimate:
        """The share of the seeds whose value is not zero."""
        self.asked[0] += 1
        return wilson(self.values(name, **setting), self.level)

    def ratio(self, name: str, **setting: Any) -> Estimate:
        """The geometric mean of one over the other, paired by seed."""
        one, other = self._pair(name, setting)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.of(one / other, log=True, note=self._note(name))

    def difference(self, name: str, **setting: Any) -> Estimate:
        """The mean of one minus the other, paired by seed."""
        one, other = self._pair(name, setting)
        with np.errstate(invalid="ignore"):
            return self.of(one - other, note=self._note(name))

    def exponent(self, name: str, axis: str, **setting: Any) -> Estimate:
        """The power p of values ~ axis^p: least squares in logarithms for each seed."""
        positions = self.data[axis].values
        rows = [self.values(name, **setting, **{axis: position}) for position in positions.tolist()]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_values = np.log(np.stack(rows))
        log_x = np.log(positions.astype(float))
        centered = log_x - log_x.mean()
        return self.of(centered @ log_values / (centered @ centered), note=self._note(name))

    def tuned(self, name: str, over: str) -> Results:
        """With the value along the axis `over` that is best, smallest in `name`, for other seeds.

        The mean logarithm over all *other* seeds decides, so no seed takes part in its own choice.
        A run without a finite value is never chosen. The estimates say how many choices fell on an
        end of the ladder, where no best value was bracketed.
        """
        table = self.data[name].transpose(..., "seed", over)
        values = table.values.astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(values)
        logs = np.where(np.isnan(logs) | (values == np.inf), np.inf, logs)
        count = values.shape[-2]
        others = np.stack(
            [np.delete(logs, seed, axis=-2).mean(axis=-2) for seed in range(count)], axis=-2
        )
        # One seed has no others; it chooses for itself, and gets no interval anyway.
        rung = np.argmin(others if count > 1 else logs, axis=-1)
        # Where there is one rung only, there is no choice to speak of.
        known = np.asarray(np.isfinite(values).any(axis=-2).sum(axis=-1) > 1)
        at_end = ((rung == 0) | (rung == values.shape[-1] - 1)) & known[..., None]
        places = xarray.DataArray(rung, dims=table.dims[:-1])
        whole = [variable for variable in self.data if over in self.data[variable].dims]
        data = self.data.drop_vars([v for v in self.data if v not in whole])
        data = data.isel({over: places}).reset_coords(over)
        total = int(known.sum()) * count
        data[name].attrs["note"] = f"{int(at_end.sum())} of {total} choices at an end of the ladder"
        return Results(data, self.level, self.asked)

    def add(self, **variables: Callable[[xarray.Dataset], xarray.DataArray]) -> Results:
        """With further variables computed from the dataset."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return Results(self.data.assign(variables), self.level, self.asked)

    def at(self, **setting: Any) -> Results:
        """The part of the dataset at a setting."""
        return Results(self.data.sel(setting), self.level, self.asked)

    def _note(self, name: str) -> str:
        return self.data[name].attrs.get("note", "")

    def _pair(self, name: str, setting: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        pairs = {axis: value for axis, value in setting.items() if isinstance(value, tuple)}
        if not pairs or any(len(value) != 2 for value in pairs.values()):
            raise ValueError(f"say what is compared with what in {name}: heads=(16, 1), say.")
        fixed = {axis: value for axis, value in setting.items() if axis not in pairs}
        one, other = ({axis: pair[k] for axis, pair in pairs.items()} for k in (0, 1))
        return self.values(name, **fixed, **one), self.values(name, **fixed, **other)
