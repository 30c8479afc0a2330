"""The ledger: every statement of the paper and every erratum, with its proof, checker and tightness. Plain Python."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from functools import cache

WEIGHTS = {
    "real": "wrong as printed",
    "loose": "true as printed, but needlessly weak",
    "typographic": "a slip of the pen or of convention",
    "debatable": "depends on what the paper tacitly assumes",
}


@dataclass(frozen=True)
class Entry:
    """One statement: where it stands, what it says, what is right, how it is proved, checked and how tight it is.

    `ours` is our sharper form, or an empty string. `checker` names the function `module.function` of this room that
    `manyheads verify` runs. `tightness` is the largest share of our bound that was reached, `remark` says how.
    `weight` is empty for statements and one of `WEIGHTS` for errata.
    """

    id: str
    place: str
    title: str
    printed: str
    corrected: str
    ours: str
    proof: str
    checker: str
    remark: str
    tightness: float | None = None
    errata: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    used_by: tuple[str, ...] = ()
    weight: str = ""

    @property
    def is_erratum(self) -> bool:
        return bool(self.weight)

    def to_dict(self) -> dict:
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{self.id}  {self.title}", f"where      {self.place}"]
        if self.weight:
            parts.append(f"weight     {self.weight}: {WEIGHTS[self.weight]}")
        parts.append(f"printed    {self.printed}")
        parts.append(f"corrected  {self.corrected}")
        if self.ours:
            parts.append(f"ours       {self.ours}")
        if self.errata:
            parts.append("errata     " + ", ".join(f"{e} ({entry(e).title})" for e in self.errata))
        tight = "" if self.tightness is None else f"{self.tightness:.3g} of our bound reached; "
        parts.append(f"tightness  {tight}{self.remark}")
        parts.append(f"proof      {self.proof}")
        parts.append(f"checker    {self.checker}")
        if self.used_by:
            parts.append("used by    " + ", ".join(self.used_by))
        return "\n".join(parts)


@cache
def ledger() -> dict[str, Entry]:
    """All entries by id, in the order of the paper, errata last."""
    from . import errata, statements_generalization, statements_mixture, statements_model, statements_training

    modules = (statements_model, statements_training, statements_generalization, statements_mixture, errata)
    entries: dict[str, Entry] = {}
    for module in modules:
        for item in module.ENTRIES:
            if item.id in entries:
                raise AssertionError(f"two ledger entries are called {item.id}")
            entries[item.id] = item
    return entries


@cache
def _names() -> dict[str, str]:
    names = {}
    for item in ledger().values():
        for name in (item.id, *item.aliases):
            names[name.lower()] = item.id
    return names


def entry(name: str) -> Entry:
    """The entry called `name`: an id (`thm1`, `E7`) or an alias (`eq4`, `prop4`), in any case."""
    found = _names().get(str(name).strip().lower())
    if found is None:
        close = difflib.get_close_matches(str(name).lower(), list(_names()), n=3)
        hint = f"did you mean {', '.join(close)}?" if close else "`manyheads explain` lists them all"
        raise ValueError(f"unknown statement {name!r}; {hint}")
    return ledger()[found]


def statements() -> tuple[Entry, ...]:
    """The statements, without the errata."""
    return tuple(item for item in ledger().values() if not item.is_erratum)


def errata_entries() -> tuple[Entry, ...]:
    """The 26 errata."""
    return tuple(item for item in ledger().values() if item.is_erratum)
