"""The wording of answers: one vocabulary for all studies. Nothing is claimed that an interval does not decide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from manyheads.studies.kit.estimate import Estimate, number

MISSING = "Not measured"


def choose(
    estimate: Estimate,
    *,
    above: str,
    below: str,
    undecided: str,
    at: float | tuple[float, float] = 0.0,
    inside: str = "",
    within: tuple[float, float] | None = None,
    missing: str = "not measured",
) -> str:
    """The text for where the 95% interval lies: above or below `at`, a number or the two ends of a band.

    `inside` takes precedence for an interval between the two ends of `within` (by default those of `at`); `missing` is
    used if nothing was measured.
    """
    low, high = at if isinstance(at, tuple) else (at, at)
    least, most = within or (low, high)
    if estimate.count == 0:
        return missing
    if inside and estimate.above(least) and estimate.below(most):
        return inside
    return above if estimate.above(high) else below if estimate.below(low) else undecided


def choose_all(
    estimates: Iterable[Estimate],
    *,
    above: str,
    below: str,
    undecided: str,
    mixed: str = "",
    at: float = 0.0,
    missing: str = MISSING,
) -> str:
    """`above` or `below` if that is true of all, `mixed` if some are above and the others below."""
    said = {
        choose(e, above="above", below="below", undecided="", at=at, missing="missing")
        for e in estimates
    }
    texts = {"above": above, "below": below, "missing": missing}
    if len(said) == 1:
        return texts.get(said.pop(), undecided)
    return mixed or undecided if said == {"above", "below"} else undecided


def once(words: Mapping[str, str], link: str) -> str:
    """Each word once, with the names it is about: "slower", "slower on A and faster on B", "slower on A and B, ..."."""
    names: dict[str, list[str]] = {}
    for name, word in words.items():
        names.setdefault(word, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    parts = [f"{word} {link} {listed(about)}" for word, about in names.items()]
    return listed(parts) if len(names) == len(words) else ", ".join(parts)


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def setting(answer: str, *where: str) -> str:
    """An answer with its setting: data, heads, start, steps. Nothing is added if nothing was measured."""
    return answer if answer == MISSING else f"{answer} ({', '.join(filter(None, where))})"


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def heads_text(num_heads: float) -> str:
    """A number of heads: 64, 1,024, 10⁶, 25,550, 3e6; infinite if no number is enough."""
    if not math.isfinite(num_heads):
        return number(num_heads)
    if power_of_ten := _power_of_ten(num_heads):
        return power_of_ten
    return f"{num_heads:,.0f}" if num_heads < 10**5 else number(num_heads)


def heads(num_heads: float) -> str:
    """1 head, 64 heads."""
    return f"{heads_text(num_heads)} {'head' if num_heads == 1 else 'heads'}"


def tick_text(value: float) -> str:
    """The label of a tick: 0.5, 64, 1,024, 10⁶."""
    return _power_of_ten(value) or number(value, 4)


def lacking(*values) -> str:
    """How many cells have no value (NaN), as a sentence; empty if all have one. Arrays have one value per cell."""
    flags = np.concatenate(
        [np.zeros(0), *(np.isnan(np.asarray(v, dtype=float)).ravel() for v in values)]
    )
    if not flags.any():
        return ""
    return f"{int(flags.sum())} of {len(flags)} cells {'is' if flags.sum() == 1 else 'are'} missing and left out."


def _power_of_ten(value: float) -> str:
    """10⁴, 10⁵, ... or nothing."""
    exponent = round(math.log10(value)) if 0 < value < math.inf else 0
    if exponent < 4 or not math.isclose(value, 10.0**exponent):
        return ""
    return "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
