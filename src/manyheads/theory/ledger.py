"""The ledger: every statement of every paper, ours and those of installed packages.

A paper is a folder here that holds a `PAPER`; its statements are the module-level `Statement`s of
its files, alone or in tuples, in the order of `OWN`. An installed package names a module in the
entry point group `manyheads.plugins`; without a `PAPER` it is a paper named after the module.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from manyheads._card import card
from manyheads.theory import deora2023, manyheads2026, tarzanagh2023
from manyheads.theory.deora2023 import (
    carried,
    convexity,
    corollaries,
    derivatives,
    errata,
    errata_mixture,
    expressivity,
    generalization,
    identity,
    initialization,
    mixture,
    model,
    recursion,
    sharper,
    training,
)
from manyheads.theory.manyheads2026 import (
    before,
    blindness,
    forecast,
    parity,
    scaling,
    sleep,
    twins,
)
from manyheads.theory.manyheads2026 import carried as carried_forecast
from manyheads.theory.statement import Paper, Statement
from manyheads.theory.tarzanagh2023 import direction, selection

# Each paper with its files in reading order; the first paper's statements have short names.
OWN: tuple[tuple[Paper, tuple[ModuleType, ...]], ...] = (
    (
        deora2023.PAPER,
        (
            model,
            derivatives,
            training,
            sharper,
            carried,
            convexity,
            identity,
            initialization,
            corollaries,
            generalization,
            recursion,
            mixture,
            expressivity,
            errata,
            errata_mixture,
        ),
    ),
    (
        manyheads2026.PAPER,
        (forecast, before, carried_forecast, twins, sleep, parity, blindness, scaling),
    ),
    (tarzanagh2023.PAPER, (selection, direction)),
)


@cache
def papers() -> dict[str, Paper]:
    """All papers by id: the library's own (the main one first), then those of plug-ins."""
    return {paper.id: paper for paper, _ in _places()}


class Ledger(dict[str, Statement]):
    """The statements by name; shown as a table in a notebook."""

    def __repr__(self) -> str:
        return f"{len(self)} statements: {', '.join(list(self)[:6])}, ..."

    def _repr_html_(self) -> str:
        return card(
            f"{len(self)} statements",
            {name: f"{item.title} ({item.place})" for name, item in self.items()},
        )


@cache
def ledger() -> Ledger:
    """All statements by name, in the order of their papers and files.

    The statements of the first paper are called by their short ids (`thm1`), others in full
    (`paper.id`).
    """
    found = Ledger()
    first = next(iter(papers()))
    for paper, modules in _places():
        seen: list[Statement] = []
        for item in (s for module in modules for s in _statements(module)):
            # imported by another file of the paper
            if any(item is other for other in seen):
                continue
            seen.append(item)
            name = item.id if paper.id == first else f"{paper.id}.{item.id}"
            if name in found:
                raise ValueError(f"there are two statements called {name!r}; rename one.")
            found[name] = replace(item, paper=paper.id, name=name)
    return found


def entry(name: str) -> Statement:
    """The statement called `name`: an id (`thm1`, `deora2023.thm1`) or an alias (`eq4`, `prop4`), in any case."""
    known = _names().get(str(name).strip().lower(), ())
    if len(known) == 1:
        return ledger()[known[0]]
    if known:
        raise ValueError(
            f"{name!r} is the name of several statements; write one of {', '.join(known)} in full."
        )
    near = difflib.get_close_matches(str(name).lower(), _names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "`manyheads explain` lists them all"
    raise ValueError(f"unknown statement {name!r}; {hint}")


def statements() -> tuple[Statement, ...]:
    """The statements, without the errata."""
    return tuple(item for item in ledger().values() if not item.is_erratum)


def errata_entries() -> tuple[Statement, ...]:
    """The errata."""
    return tuple(item for item in ledger().values() if item.is_erratum)


def ledger_page() -> str:
    """The ledger as a page of the documentation: papers, statements, links to the proofs."""
    lines = [
        "# Statements",
        "",
        "Written by `manyheads explain --markdown > docs/theory/statements.md`.",
    ]
    for paper in papers().values():
        source = f'{paper.authors}. {paper.reference}. "As printed" means {paper.text}.'
        lines += ["", f"## {paper.title}", "", source]
        lines += ["", "| id | where | statement | proof |", "|---|---|---|---|"]
        for item in (item for item in ledger().values() if item.paper == paper.id):
            proof = item.proof.removeprefix("docs/theory/")
            lines.append(f"| `{item.name}` | {item.place} | {item.title} | [{proof}]({proof}) |")
    return "\n".join(lines)


def about_runs() -> dict[str, Statement]:
    """The statements that can be checked on one run, by name."""
    return {name: item for name, item in ledger().items() if item.about is not None}


@cache
def _names() -> dict[str, tuple[str, ...]]:
    """Lower-case name -> the statements it can mean; a name used by the first paper means only that paper's."""
    names: dict[str, tuple[str, ...]] = {}
    first = next(iter(papers()))
    for item in ledger().values():
        names[f"{item.paper}.{item.id}".lower()] = (item.name,)
        for short in {item.id.lower(), *(alias.lower() for alias in item.aliases)}:
            taken = names.get(short, ())
            if not taken or ledger()[taken[0]].paper != first:
                names[short] = (*taken, item.name)
    return names


def plugins() -> list[ModuleType]:
    """The modules of installed packages that hold statements."""
    return [_loaded(point) for point in entry_points(group="manyheads.plugins")]


def _loaded(point: EntryPoint) -> ModuleType:
    try:
        return point.load()
    except Exception as error:  # whatever the module raises
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"the plug-in {point.value!r} cannot be imported ({text}); fix it, or uninstall it."
        ) from None


@cache
def _places() -> tuple[tuple[Paper, tuple[ModuleType, ...]], ...]:
    """Each paper with the modules that hold its statements."""
    places = list(OWN)
    for module in plugins():
        name = module.__name__.rpartition(".")[2]
        paper = getattr(module, "PAPER", Paper(name, name, "", module.__name__, ""))
        if any(True for _ in _statements(module)):
            places.append((paper, (module,)))
    return tuple(places)


def _statements(module: ModuleType) -> Iterator[Statement]:
    for value in vars(module).values():
        if isinstance(value, Statement):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (item for item in value if isinstance(item, Statement))
