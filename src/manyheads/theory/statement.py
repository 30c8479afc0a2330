"""A statement, and the paper that contains it. Plain Python: reading them needs no JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from manyheads.theory.finding import Effort, Finding
from manyheads.theory.verdict import Certificate, Hypothesis, plain

if TYPE_CHECKING:
    from manyheads.theory.examination import Examination

WEIGHTS = {
    "real": "wrong as printed",
    "loose": "true as printed, but needlessly weak",
    "typographic": "a typing error or an inconsistent convention",
    "debatable": "depends on an assumption that the paper does not state",
}


@dataclass(frozen=True)
class Paper:
    """A paper. `text` says which text "as printed" means, `files` its modules in reading order.

    `scope` gives the hypotheses that every statement of the paper makes about a run; where one fails, the statements
    are SILENT.
    """

    id: str
    title: str
    authors: str
    reference: str
    text: str
    files: tuple[str, ...] = ()
    scope: Callable[[Examination], Sequence[Hypothesis]] | None = None


@dataclass(frozen=True)
class Statement:
    """One statement: its place in the paper, what it says, its correction, its proof, its check and its tightness.

    `ours` is our sharper form, or an empty string. `check` tries random, adversarial and extremal inputs; `about` gives
    the certificates of one run (None if it is not about a run); with `on_request`, only if the statement is named.
    `tightness` is the largest share of our bound that was reached, `remark` says how. `weight` is empty for statements
    and one of `WEIGHTS` for errata. The ledger fills in `paper` and, from it, `name`.
    """

    id: str
    place: str
    title: str
    proof: str
    remark: str
    check: Callable[[Effort], Finding]
    printed: str = "not in the paper"
    corrected: str = "—"
    ours: str = ""
    about: Callable[[Examination], Sequence[Certificate]] | None = None
    on_request: bool = False
    tightness: float | None = None
    errata: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    weight: str = ""
    paper: str = ""
    name: str = ""  # what tables and certificates call it

    @property
    def is_erratum(self) -> bool:
        return bool(self.weight)

    @property
    def checker(self) -> str:
        """Where the function that checks it is."""
        function = self.check.func if isinstance(self.check, partial) else self.check
        return f"{function.__module__.removeprefix('manyheads.')}.{getattr(function, '__qualname__', '')}"

    def to_dict(self) -> dict:
        hidden = {"check", "about", "on_request", "name"}
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        return plain(values | {"checker": self.checker})

    def __str__(self) -> str:
        from manyheads.theory.ledger import entry

        tight = "" if self.tightness is None else f"{self.tightness:.3g} of our bound reached; "
        lines = {
            "where": self.place,
            "weight": self.weight and f"{self.weight}: {WEIGHTS[self.weight]}",
            "printed": self.printed,
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
