"""A statement, and the paper that contains it. Plain Python: reading them needs no JAX."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from manyheads.theory.finding import Effort, Finding
from manyheads.theory.verdict import Certificate, Hypothesis, plain

if TYPE_CHECKING:
    from manyheads.theory.examination import Examination
    from manyheads.theory.kinds import Inputs, Point
    from manyheads.theory.result import Counterexample

WEIGHTS = {
    "real": "wrong as printed",
    "loose": "true as printed, but needlessly weak",
    "typographic": "a typing error or an inconsistent convention",
    "debatable": "depends on an assumption that the paper does not state",
    "repeated": "the mistake of another entry, once more",
}


@dataclass(frozen=True)
class Paper:
    """A paper. `text` says which text "as printed" means.

    `copy` says in a few words which copy was read. `scope` gives the hypotheses that every
    statement of the paper makes about a run; where one fails, the statements are SILENT.
    """

    id: str
    title: str
    authors: str
    reference: str
    text: str
    copy: str = ""
    scope: Callable[[Examination], Sequence[Hypothesis]] | None = None


@dataclass(frozen=True, eq=False)
class Statement:
    """An inequality, with what it is about: `measured` is at most `bound` wherever the hypotheses hold.

    A statement of your own needs the first half, one of a paper brings the second: its place, its
    correction, its proof, and a check of its own where drawing inputs is not enough.

    Args:
        title: the statement in words.
        inputs: what it is about, `inputs(x=real(5))`.
        measured: the left side at a point `p`, whose inputs are `p.x` and so on, in `jax.numpy`.
        bound: the right side; with a free constant `p.c`, `verify(statement, constant="c")` finds
            the smallest.
        hypotheses: conditions by their words: functions of a point that return a truth value, or a
            pair (have, need)
            for have >= need, or a triple with a remedy.
        sense: "<=", or ">=" for a lower bound.
        on: the two sides (measured, bound) on a run and its data, for `certify(run, data,
            [statement])`; the
            hypotheses are then those of the run, `p.run` and `p.data`.
        id: its short name; made of the title if left out.
        check: tries random, adversarial and extremal inputs, if drawing `inputs` is not enough.
        about: the certificates of one run; with `on_request`, only if the statement is named.
        ours: our sharper form, or an empty string.
        tightness: the largest share of our bound that was reached; `remark` says how.
        weight: empty for statements, one of `WEIGHTS` for errata.
        paper: filled in by the ledger, as is `name`.
    """

    title: str
    inputs: Inputs | None = None
    measured: Callable[[Point], Any] | None = None
    bound: Callable[[Point], Any] | None = None
    hypotheses: Mapping[str, Callable[[Point], Any]] = field(default_factory=dict)
    sense: str = "<="
    on: Callable[[Any, Any], tuple[Any, Any]] | None = None
    id: str = ""
    place: str = "own"
    printed: str = "not in the paper"
    corrected: str = "—"
    ours: str = ""
    proof: str = ""
    remark: str = ""
    check: Callable[[Effort], Finding] | None = None
    about: Callable[[Examination], Sequence[Certificate]] | None = None
    on_request: bool = False
    tightness: float | None = None
    errata: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    weight: str = ""
    paper: str = ""
    name: str = ""  # what tables and certificates call it

    def __post_init__(self) -> None:
        if not isinstance(self.title, str) or not self.title.strip():
            raise ValueError(
                "a statement needs a title; pass it first: Statement('what it says', ...)."
            )
        if self.sense not in ("<=", ">="):
            raise ValueError(f"sense={self.sense!r} must be '<=' or '>='.")
        sides = (self.inputs, self.measured, self.bound)
        if any(part is not None for part in sides) and any(part is None for part in sides):
            raise ValueError(f"{self.title!r} needs all of inputs=, measured= and bound=.")
        if not (self.measured or self.check or self.on or self.about):
            raise ValueError(f"{self.title!r} says nothing; pass inputs=, measured= and bound=.")
        short = self.id or re.sub(r"[^a-z0-9.]+", "-", self.title.lower()).strip("-")
        object.__setattr__(self, "id", short)
        object.__setattr__(self, "name", self.name or short)

    @property
    def is_erratum(self) -> bool:
        return bool(self.weight)

    @property
    def counterexample(self) -> Counterexample | None:
        """The smallest counterexample that `verify` stored, or None."""
        # which knows this module
        from manyheads.theory.own import last_counterexample

        return last_counterexample(self)

    @property
    def checker(self) -> str:
        """Where the function that checks it is."""
        if self.check is None:
            return "drawn from its inputs and attacked"
        function = self.check.func if isinstance(self.check, partial) else self.check
        return f"{function.__module__.removeprefix('manyheads.')}.{getattr(function, '__qualname__', '')}"

    def to_dict(self) -> dict:
        hidden = {"check", "about", "on_request", "name", "inputs", "measured", "bound", "on"}
        hidden |= {"hypotheses", "sense"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        return plain(values | {"checker": self.checker})

    def __str__(self) -> str:
        from manyheads.theory.ledger import entry, papers

        tight = "" if self.tightness is None else f"{self.tightness:.3g} of our bound reached; "
        lines = {
            "where": self.place,
            "weight": self.weight and f"{self.weight}: {WEIGHTS[self.weight]}",
            "printed": self.printed,
            "read in": papers()[self.paper].copy if self.paper in papers() else "",
            "corrected": self.corrected,
            "ours": self.ours,
            "errata": ", ".join(f"{e} ({entry(f'{self.paper}.{e}').title})" for e in self.errata),
            "tightness": f"{tight}{self.remark}",
            "proof": self.proof,
            "checker": self.checker,
            "used by": ", ".join(self.used_by),
        }
        return "\n".join(
            [f"{self.name}  {self.title}", *(f"{k:<10} {v}" for k, v in lines.items() if v)]
        )
