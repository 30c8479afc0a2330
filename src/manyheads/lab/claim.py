"""A sentence by a person, and a number with an interval by the machine, which decides it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import xarray

from manyheads.lab.estimate import Estimate, number
from manyheads.lab.results import LEVEL, Results

SUPPORTED, REFUTED, UNDECIDED = "supported", "refuted", "undecided"


@dataclass(frozen=True)
class Claim:
    """A sentence that is true if a quantity lies where the claim says.

    `quantity` maps the `Results` of a sweep to an `Estimate`. Pass `near` (with `within`, a tenth
    of it if not given), or `above`, `below` or both. `unit` is what the number is, in words.
    """

    sentence: str
    quantity: Callable[[Results], Estimate]
    near: float | None = None
    within: float | None = None
    above: float | None = None
    below: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        bounds = (self.above, self.below)
        if (self.near is None) == (bounds == (None, None)):
            raise ValueError(f"{self.sentence!r}: pass either near=, or above= and below=.")
        if self.near == 0 and self.within is None:
            raise ValueError(f"{self.sentence!r}: near=0 needs within=, how near that is.")

    @property
    def region(self) -> tuple[float, float]:
        """Where the number must lie."""
        if self.near is None:
            low = float("-inf") if self.above is None else self.above
            return low, float("inf") if self.below is None else self.below
        width = abs(self.near) / 10 if self.within is None else self.within
        return self.near - width, self.near + width

    @property
    def relation(self) -> str:
        """That region in words."""
        if self.near is not None:
            low, high = self.region
            if low == high:
                return f"equal to {number(low)}"
            return f"between {number(low)} and {number(high)}"
        parts = [
            f"{word} {number(x)}"
            for word, x in (("above", self.above), ("below", self.below))
            if x is not None
        ]
        return " and ".join(parts)

    def verdict(self, found: Estimate) -> str:
        """Supported if the whole interval lies in the region, refuted if none of it does."""
        low, high = self.region
        # Bounds are strict, ends of `near` are not.
        if self.near is not None:
            inside, outside = (
                low <= found.low and found.high <= high,
                found.high < low or found.low > high,
            )
        else:
            inside, outside = (
                low < found.low and found.high < high,
                found.high <= low or found.low >= high,
            )
        if found.lost or not found.low <= found.high:
            return UNDECIDED
        return SUPPORTED if inside else REFUTED if outside else UNDECIDED


@dataclass(frozen=True)
class Decided:
    """A claim, its number and its verdict; `comparisons` is what the interval was corrected for."""

    claim: Claim
    estimate: Estimate
    verdict: str
    comparisons: int = 1


def decide(claims: Sequence[Claim], data: xarray.Dataset) -> list[Decided]:
    """The verdict on each claim.

    All intervals hold together at 95%, by Bonferroni over all estimates that are asked for.
    """
    # A first pass only counts what is asked for.
    counting = Results(data)
    for claim in claims:
        claim.quantity(counting)
    comparisons = max(1, counting.asked[0])
    # The same questions again, at the level that their number asks for.
    results = Results(data, 1 - (1 - LEVEL) / comparisons)
    decided = []
    for claim in claims:
        found = claim.quantity(results)
        decided.append(Decided(claim, found, claim.verdict(found), comparisons))
    return decided
