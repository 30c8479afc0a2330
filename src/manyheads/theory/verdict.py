"""A statement applied to one case: hypotheses, bounds, measured value, verdict. Plain Python."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

from manyheads._card import card

# relative slack of every verdict; anything beyond it must be stated as noise
ROUNDING = 1e-9

PRINTED, EXPLICIT, OURS = "printed", "explicit", "ours"
VARIANTS = {
    PRINTED: "as printed in the paper",
    EXPLICIT: "the paper's route with explicit constants",
    OURS: "ours",
}


class Verdict(enum.Enum):
    """The three possible answers; the value is the sentence that explains it."""

    HOLDS = "the hypotheses hold and the measured value is within the bound"
    VIOLATED = "the hypotheses hold but the bound fails: a bug here, or a wrong constant"
    SILENT = "a hypothesis fails, so the statement says nothing about this case"

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def of(verdicts: Iterable[Verdict]) -> Verdict:
        """The combined verdict of several: VIOLATED if any is, else HOLDS if any does, else SILENT."""
        verdicts = set(verdicts)
        return next((v for v in (Verdict.VIOLATED, Verdict.HOLDS) if v in verdicts), Verdict.SILENT)


@dataclass(frozen=True)
class Hypothesis:
    """One condition of a statement: the value found, the value needed, and what would make it true.

    `have` and `need` are the two sides where the condition is an inequality (NaN otherwise);
    `factor` says by how much the condition is missed.
    """

    derived: ClassVar = ("factor",)
    text: str
    holds: bool
    remedy: str = ""
    have: float = math.nan
    need: float = math.nan

    @classmethod
    def at_least(cls, text: str, have: float, need: float, remedy: str = "") -> Hypothesis:
        """The condition `have >= need`, with the relative rounding slack of a verdict. NaN fails."""
        have, need = float(have), float(need)
        return cls(text, bool(have >= need - ROUNDING * abs(need)), remedy, have, need)

    @classmethod
    def at_most(cls, text: str, have: float, need: float, remedy: str = "") -> Hypothesis:
        """The condition `have <= need`, with the relative rounding slack of a verdict. NaN fails."""
        have, need = float(have), float(need)
        return cls(text, bool(have <= need + ROUNDING * abs(need)), remedy, have, need)

    @property
    def factor(self) -> float:
        """The factor (at least 1) by which it is missed: 1 if it holds, infinite if no factor would help."""
        if self.holds:
            return 1.0
        small, large = (
            sorted((self.have, self.need))
            if not math.isnan(self.have + self.need)
            else (0.0, math.inf)
        )
        return large / small if small > 0 else math.inf

    def short(self) -> str:
        """The condition and by how much it is missed."""
        if self.holds or math.isnan(self.have) or math.isinf(self.factor):
            return self.text
        return f"{self.text} (off by a factor {self.factor:.3g})"

    def __str__(self) -> str:
        off = (
            f", off by a factor {self.factor:.3g}"
            if not self.holds and math.isfinite(self.factor)
            else ""
        )
        sides = "" if math.isnan(self.have) else f" ({self.have:.4g} against {self.need:.4g}{off})"
        remedy = f"; {self.remedy}" if self.remedy and not self.holds else ""
        return f"{'holds' if self.holds else 'fails'}: {self.text}{sides}{remedy}"


@dataclass(frozen=True)
class Bound:
    """One version of a bound, with its own hypotheses.

    `up_to_constant` marks a version that the paper gives only up to an absolute constant (taken as
    1 here): it is shown but never judged VIOLATED.
    """

    variant: str
    value: float
    hypotheses: tuple[Hypothesis, ...] = ()
    up_to_constant: bool = False

    @property
    def failing(self) -> tuple[Hypothesis, ...]:
        return tuple(h for h in self.hypotheses if not h.holds)


@dataclass(frozen=True)
class Certificate:
    r"""One statement on one case: every version of its bound and the measured value.

    With `sense="<="` a version holds when `measured <= bound + 1e-9*|bound| + noise`, where `noise`
    is the stated error of the measure (an eigenvalue's residual, half of a 95% interval, rounding
    at a huge number of heads) and `noise_source` says which. With `sense=">="` the same from below.
    A NaN anywhere is VIOLATED.

    The verdict is that of the versions we vouch for: the explicit one and our own. The printed
    version decides only if there is no other.
    """

    derived: ClassVar = ("verdict", "reason", "slack", "tightness")
    statement: str
    claim: str
    measured: float
    bounds: tuple[Bound, ...]
    sense: str = "<="
    noise: float = 0.0
    noise_source: str = ""
    details: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sense not in ("<=", ">="):
            raise ValueError(f"sense={self.sense!r} is not one of '<=', '>='")
        if not self.bounds:
            raise ValueError(
                f"certificate of {self.statement!r} has no bound; pass at least one Bound"
            )

    def bound(self, variant: str | None = None) -> Bound:
        """The version called `variant`, or the one that decides the verdict."""
        if variant is None:
            return self._deciding()
        for bound in self.bounds:
            if bound.variant == variant:
                return bound
        known = ", ".join(b.variant for b in self.bounds)
        raise ValueError(f"no version {variant!r} of {self.statement}; there are: {known}")

    def within(self, bound: Bound) -> bool:
        """Whether the measured value satisfies one version, ignoring its hypotheses."""
        slack = ROUNDING * abs(bound.value) + self.noise
        if self.sense == "<=":
            return bool(self.measured <= bound.value + slack)
        return bool(self.measured >= bound.value - slack)

    def verdict_of(self, variant: str) -> Verdict:
        """The verdict on one version alone."""
        return self._judge(self.bound(variant))

    @property
    def verdict(self) -> Verdict:
        return Verdict.of(self._judge(b) for b in self._trusted())

    @property
    def slack(self) -> float:
        """Room left under the deciding bound (negative when it is exceeded)."""
        value = self._deciding().value
        return value - self.measured if self.sense == "<=" else self.measured - value

    @property
    def tightness(self) -> float:
        """How much of the deciding bound is used: measured/bound, or bound/measured for a lower bound."""
        return ratio(self.measured, self._deciding().value, self.sense)

    @property
    def reason(self) -> str:
        """One sentence that gives the reason for the verdict."""
        bound = self._deciding()
        if self.verdict is Verdict.SILENT:
            if bound.failing:
                remedies = "; ".join(_remedies(bound.failing))
                failing = "; ".join(dict.fromkeys(h.short() for h in bound.failing))
                return f"fails: {failing}" + (f" -> {remedies}" if remedies else "")
            return (
                "the paper gives this bound only up to an unnamed constant (shown with constant 1)"
            )
        noise = f" + noise {self.noise:.2g}" if self.noise else ""
        comparison = f"measured {self.measured:.6g} {self.sense} {bound.variant} bound {bound.value:.6g}{noise}"
        if self.verdict is Verdict.VIOLATED:
            return f"not ({comparison})"
        return comparison + (f", {100 * self.tightness:.3g}% of it used" if bound.value else "")

    def line(self, why: str = "") -> str:
        """The certificate in one line; `why` replaces the reason for its silence."""
        what = f"{self.measured:.4g} {self.sense} {self._deciding().value:.4g}"
        if self.verdict is Verdict.SILENT:
            what = why or self.reason
        return f"{self.verdict.name:<8}  {self.statement:<9} {self.claim}: {what}"

    def _trusted(self) -> tuple[Bound, ...]:
        return tuple(b for b in self.bounds if b.variant != PRINTED) or self.bounds

    def _judge(self, bound: Bound) -> Verdict:
        if bound.failing:
            return Verdict.SILENT
        if self.within(bound):
            return Verdict.HOLDS
        return Verdict.SILENT if bound.up_to_constant else Verdict.VIOLATED

    def _deciding(self) -> Bound:
        return [b for b in self._trusted() if self._judge(b) is self.verdict][-1]

    def __str__(self) -> str:
        lines = [f"{self.verdict.name:<8}  {self.statement}: {self.claim}"]
        source = f", {self.noise_source}" if self.noise_source else ""
        noise = f"  (noise {self.noise:.2g}{source})" if self.noise else ""
        lines.append(f"  measured  {self.measured:.6g}{noise}")
        told: set[str] = set()
        for bound in self.bounds:
            mark = ", constant read as 1" if bound.up_to_constant else ""
            name = VARIANTS.get(bound.variant, bound.variant)
            reasons = [f"       {h}" for h in dict.fromkeys(map(str, bound.failing))]
            again = ", for reasons above" if reasons and told.issuperset(reasons) else ""
            lines.append(
                f"  {self.sense} {bound.value:<12.6g} {name}{mark}: "
                f"{self._judge(bound).name}{again}"
            )
            lines.extend(reason for reason in reasons if reason not in told)
            told.update(reasons)
        if self.verdict is not Verdict.SILENT:
            lines.append(f"  because   {self.reason}")
        shown = {
            name: value for name, value in self.details.items() if not isinstance(value, dict)
        }  # no tables
        lines.extend(f"  {name:<9} {_show(value)}" for name, value in shown.items())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        known = {
            "verdict": self.verdict.name,
            "measured": f"{self.measured:.6g}",
            "bound": f"{self._deciding().value:.6g}",
        }
        return card(f"{self.statement}: {self.claim}", known | {"reason": self.reason})

    def to_dict(self) -> dict:
        """Plain values only, ready for JSON (NaN and infinities as strings)."""
        bounds = [{**plain(b), "verdict": self._judge(b).name} for b in self.bounds]
        return {**plain(self), "bounds": bounds}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Certificate:
        """The certificate written by `to_dict` (its verdict is recomputed, not trusted)."""
        return _restored(cls, stored)


def plain(value: Any) -> Any:
    """A value for strict JSON: dataclasses as their fields and derived values, NaN and infinities as strings."""
    if isinstance(value, enum.Enum):
        return value.name
    if is_dataclass(value):
        names = [*(f.name for f in fields(value)), *getattr(value, "derived", ())]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    value = float(value)
    return value if math.isfinite(value) else str(value)


_PARTS = {"bounds": Bound, "hypotheses": Hypothesis}


def _restored(cls: Any, stored: Mapping[str, Any]) -> Any:
    """A dataclass of this module from its plain form; derived values are recomputed."""
    values = {item.name: stored[item.name] for item in fields(cls)}
    for item in fields(cls):
        if item.name in _PARTS:
            values[item.name] = tuple(
                _restored(_PARTS[item.name], part) for part in values[item.name]
            )
        elif item.type == "float":
            values[item.name] = float(values[item.name])
    return cls(**values)


def _remedies(failing: tuple[Hypothesis, ...]) -> list[str]:
    """The remedies, each once; of several conditions on one number only the strictest."""
    strictest = {}
    for place, h in enumerate(failing):
        number = place if math.isnan(h.have) else ("number", h.have)
        if number not in strictest or h.factor > strictest[number].factor:
            strictest[number] = h
    return list(dict.fromkeys(h.remedy for h in strictest.values() if h.remedy))


def ratio(measured: float, bound: float, sense: str = "<=") -> float:
    """Share of a bound that is used: at most 1 when it holds.

    measured/bound for an upper bound; bound/measured for a positive lower bound; a negative lower
    bound is read as an upper bound of the negated value.
    """
    if math.isnan(measured) or math.isnan(bound):
        return math.nan
    if sense == ">=":
        if bound <= 0:
            return ratio(-measured, -bound)
        measured, bound = bound, measured
    if bound > 0:
        return max(measured / bound, 0.0)
    return 0.0 if measured <= bound else math.inf


def _show(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
