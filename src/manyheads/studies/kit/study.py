"""A study: a question to the theory, its sweeps, its figures, and an answer computed from the data.

A study module imports no JAX: code that needs JAX is a cell function of its sweep, named as "module:function". So
stored results can be drawn where JAX is not installed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manyheads.studies.kit.estimate import Estimate
from manyheads.studies.kit.figure import Figure
from manyheads.studies.kit.words import capital, lacking

if TYPE_CHECKING:
    import xarray

    from manyheads.sweeps.spec import Sweep

SCALES = ("quick", "full")
PARTS = {  # of the story, in its order, and their headings
    "claims": "What the paper claims",
    "truth": "Which claims hold",
    "attention": "When attention wakes",
    "heads": "What heads are for",
    "generalization": "What generalizes, and by which law",
    "theory": "Where theory applies at your number of heads",
    "": "Further questions",
}
STATED, REPORTED, CHOSEN = "stated in the paper", "known from third parties", "chosen by us"

Results = Mapping[str, "xarray.Dataset"]  # name of a sweep -> its assembled dataset


@dataclass(frozen=True)
class Setting:
    """One setting of an experiment, and where it comes from."""

    name: str
    value: str
    source: str

    def __post_init__(self) -> None:
        if self.source not in (STATED, REPORTED, CHOSEN):
            raise ValueError(
                f"source={self.source!r} of setting {self.name!r}: use stated, reported or chosen(...)."
            )


def stated(name: str, value: object) -> Setting:
    """A setting that the paper states."""
    return Setting(name, str(value), STATED)


def reported(name: str, value: object) -> Setting:
    """A setting of the paper's experiments that we know only from third parties."""
    return Setting(name, str(value), REPORTED)


def chosen(name: str, value: object) -> Setting:
    """A setting that the paper leaves open, or that we chose differently."""
    return Setting(name, str(value), CHOSEN)


@dataclass(frozen=True)
class Scaled:
    """A value of a sweep that depends on the scale; as text it shows both values."""

    quick: Any
    full: Any

    def __str__(self) -> str:
        quick, full = (
            f"{value:,}" if isinstance(value, int) else value for value in (self.quick, self.full)
        )
        return f"{quick} (quick) or {full} (full)"


def grids(study: str, scale: str, /, **sweeps: Any) -> dict[str, Sweep]:
    """The sweeps of a study at a scale, each named and written as a dictionary of its sections.

    A `Scaled` value is replaced by the one for this scale, in any section; a sweep that is None is left out.
    """
    from manyheads.sweeps.spec import Sweep

    found = {name: _at(scale, content) for name, content in sweeps.items()}
    return {
        name: Sweep.from_dict({"name": f"{study}-{name}", **content})
        for name, content in found.items()
        if content
    }


def _at(scale: str, content: Any) -> Any:
    if isinstance(content, Scaled):
        return _at(scale, getattr(content, scale))
    return (
        {key: _at(scale, value) for key, value in content.items()}
        if isinstance(content, Mapping)
        else content
    )


@dataclass(frozen=True)
class Number:
    """One number of a finding: a short name for the data, a caption for readers."""

    name: str
    caption: str
    estimate: Estimate

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9_.]{1,60}", self.name):
            raise ValueError(
                f"name={self.name!r} of a number: use up to 60 small letters, digits, '_' and '.'."
            )


class Numbers(dict[str, Number]):
    """The numbers of a finding by their names."""

    def add(self, name: str, caption: str, estimate: Estimate) -> Estimate:
        """Add a number under a new name, and return its estimate."""
        if name in self:
            raise ValueError(f"there are two numbers called {name!r}; rename one.")
        self[name] = Number(name, caption, estimate)
        return estimate


@dataclass(frozen=True)
class Finding:
    """The answer: a few words for the table, two plain sentences, the numbers, and notes on their limits.

    `details` are further sentences, which the page shows with the numbers. `conclusion` is the answer as a sentence
    that stands alone; the first screen of the page shows three.
    """

    answer: str
    sentence: str
    numbers: Mapping[str, Number] = field(default_factory=Numbers)
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    conclusion: str = ""

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(filter(None, [self.sentence, *self.details]))

    def __str__(self) -> str:
        return f"{self.answer}. {self.text}"


def conclude(
    answer: str,
    sentences: Sequence[str],
    numbers: Numbers,
    cells: Sequence,
    notes=(),
    conclusion: str = "",
) -> Finding:
    """A finding that shows the first two sentences and keeps the others as details.

    The last one says how many of `cells`, arrays with one value per cell, are missing.
    """
    first, second, *details = [*filter(None, sentences), "", ""]
    details = [*filter(None, details), lacking(*cells)]
    sentence = " ".join(filter(None, [first, second]))
    conclusion = capital(conclusion) + ("." if conclusion and not conclusion.endswith(".") else "")
    return Finding(
        capital(answer), sentence, numbers, tuple(notes), tuple(filter(None, details)), conclusion
    )


@dataclass(frozen=True)
class Study:
    """One question. `sweeps(scale)` names its grids, `finding` and `figures` read their datasets, by the same names.

    Studies are listed by their `part` of the story and their `order` in it; those `in_story` run when none is named.
    `seconds` is the rough time of a cell: long sweeps begin first. `lacks(scale)` names, in a few words, required
    packages that are not installed; the study is then left out.
    """

    name: str
    title: str
    question: str
    claim: str  # what the paper says, or leaves open
    settings: Sequence[Setting]
    sweeps: Callable[[str], Mapping[str, Sweep]]
    finding: Callable[[Results], Finding]
    figures: Callable[[Results], Sequence[Figure]]
    part: str = ""
    order: float = math.inf
    in_story: bool = False
    seconds: float = 1.0
    lacks: Callable[[str], str] = lambda scale: ""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(
                f"name={self.name!r} must be letters, digits and _: it names a folder."
            )
        if self.part not in PARTS:
            raise ValueError(
                f"part={self.part!r} of study {self.name!r}: choose one of {', '.join(filter(None, PARTS))}."
            )
        if not self.question.endswith("?"):
            raise ValueError(
                f"question={self.question!r} of study {self.name!r} must end with a question mark."
            )

    def plan(self, scale: str) -> Mapping[str, Sweep]:
        """The sweeps at a scale, checked."""
        if scale not in SCALES:
            raise ValueError(f"scale={scale!r} is not known; choose 'quick' or 'full'.")
        return self.sweeps(scale)
