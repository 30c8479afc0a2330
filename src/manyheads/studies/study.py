"""A question asked of the theory: its sweeps, its figures, and an answer computed from the data.

A study module imports no JAX: what needs JAX is a cell function of its sweep, named as "module:function". So a stored
result can be drawn where JAX is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manyheads.studies.estimate import Estimate
from manyheads.studies.figure import Figure

if TYPE_CHECKING:
    import xarray

    from manyheads.sweeps.spec import Sweep

SCALES = ("quick", "full")
STATED, CHOSEN = "stated in the paper", "chosen by us"

Results = Mapping[str, "xarray.Dataset"]  # name of a sweep -> its assembled dataset


@dataclass(frozen=True)
class Setting:
    """One choice of an experiment, and whose choice it is."""

    name: str
    value: str
    source: str

    def __post_init__(self) -> None:
        if self.source not in (STATED, CHOSEN):
            raise ValueError(f"source={self.source!r} of setting {self.name!r}: use stated(...) or chosen(...).")


def stated(name: str, value: str) -> Setting:
    """A setting that the paper states."""
    return Setting(name, value, STATED)


def chosen(name: str, value: str) -> Setting:
    """A setting that the paper leaves open, or that we chose otherwise."""
    return Setting(name, value, CHOSEN)


def grid(**content: Any) -> Sweep:
    """A sweep whose sections are written as dictionaries: `grid(name=..., data={...}, axes={...}, ...)`."""
    from manyheads.sweeps.spec import Sweep

    return Sweep.from_dict(content)


@dataclass(frozen=True)
class Finding:
    """The answer: a few words for the table, sentences with numbers, the numbers themselves, what limits them."""

    answer: str
    sentence: str
    numbers: Mapping[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.answer}. {self.sentence}"


@dataclass(frozen=True)
class Study:
    """One question. `sweeps(scale)` names its grids, `finding` and `figures` read their datasets, by the same names."""

    name: str
    title: str
    question: str
    claim: str  # what the paper says, or leaves open
    settings: Sequence[Setting]
    sweeps: Callable[[str], Mapping[str, Sweep]]
    finding: Callable[[Results], Finding]
    figures: Callable[[Results], Sequence[Figure]]

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"name={self.name!r} must be letters, digits and _: it names a folder.")
        if not self.question.endswith("?"):
            raise ValueError(f"question={self.question!r} of study {self.name!r} must end with a question mark.")

    def plan(self, scale: str) -> Mapping[str, Sweep]:
        """The sweeps at a scale, checked."""
        if scale not in SCALES:
            raise ValueError(f"scale={scale!r} is not known; choose 'quick' or 'full'.")
        return self.sweeps(scale)
