"""What a check of one statement found: trials, largest shares of the bounds, verdict. Plain Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from manyheads.theory.verdict import ROUNDING, Verdict, plain, ratio

# of an interval
LEVEL = 0.95


def half_width(values: Any) -> float:
    r"""Half of Student's 95% interval of a mean, $t_{.975,\,n-1}\, s/\sqrt n$: 4.3 standard errors of three values.

    One value has no interval; its half width is infinite.
    """
    import numpy as np
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return math.inf
    return float(stdtrit(n - 1, (1 + LEVEL) / 2)) * float(np.std(values, ddof=1)) / math.sqrt(n)


@dataclass(frozen=True)
class Effort:
    """The effort of a check: `quick` keeps the whole ledger under a minute, `seed` fixes every random draw."""

    quick: bool = True
    seed: int = 0

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Finding:
    """The outcome of one check; `verify` fills in the name of the statement.

    `ours` is the largest measured/bound for the form we vouch for (corrected, or our sharper form),
    `printed` that of the printed version (None where it cannot be evaluated). For an erratum
    `printed` above 1 means that the printed version fails, as the entry says.
    """

    statement: str
    trials: int
    printed: float | None
    ours: float | None
    verdict: Verdict
    detail: str = ""

    def to_dict(self) -> dict:
        return plain(self)


class Tally:
    """Collects trials of one inequality and keeps the largest share of each bound."""

    def __init__(self) -> None:
        self.trials, self.broken = 0, 0
        self.ours: float | None = None
        self.printed: float | None = None

    def add(
        self,
        measured: float,
        bound: float,
        printed: float | None = None,
        sense: str = "<=",
        noise: float = 0.0,
    ) -> None:
        """One trial. `noise` is the measure's own error; a NaN counts as broken."""
        measured, bound = float(measured), float(bound)
        self.trials += 1
        self.ours = _larger(self.ours, ratio(measured, bound, sense))
        if printed is not None:
            self.printed = _larger(self.printed, ratio(measured, float(printed), sense))
        slack = ROUNDING * abs(bound) + noise
        within = measured <= bound + slack if sense == "<=" else measured >= bound - slack
        self.broken += not within

    def finding(self, detail: str = "") -> Finding:
        if not self.trials:
            raise AssertionError("a check made no trial")
        if self.broken:
            detail = f"{self.broken} of {self.trials} trials break it. {detail}".strip()
        verdict = Verdict.VIOLATED if self.broken else Verdict.HOLDS
        return Finding("", self.trials, self.printed, self.ours, verdict, detail)


def erratum(
    reproduced: bool,
    detail: str,
    *,
    printed: float | None = None,
    ours: float | None = None,
    trials: int = 1,
) -> Finding:
    """The finding on an erratum: HOLDS when the counterexample shows what the entry says, VIOLATED when it does not."""
    verdict = Verdict.HOLDS if reproduced else Verdict.VIOLATED
    return Finding(
        "", trials, printed, ours, verdict, detail if reproduced else f"not reproduced: {detail}"
    )


def _larger(old: float | None, new: float) -> float:
    if old is None or math.isnan(new):
        return new
    return old if math.isnan(old) else max(old, new)
