"""The ledger: every statement of every paper and of plug-ins, found without registration. Plain Python.

A paper is a folder of `manyheads.theory` (or a plug-in) that holds a `PAPER`; its statements are the module-level
`Statement`s of its files, alone or in tuples. A plug-in is a module that an installed package names in the entry point
group `manyheads.plugins`; without a `PAPER` it is a paper named after the module.
"""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from manyheads._card import card
from manyheads.theory.statement import Paper, Statement


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

    The statements of the first paper are called by their short ids (`thm1`), others in full (`paper.id`).
    """
    found = Ledger()
    first = next(iter(papers()))
    for paper, modules in _places():
        seen: list[Statement] = []
        for item in (s for module in modules for s in _statements(module)):
            if any(item is other for other in seen):  # imported by another file of the paper
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
    return [_imported(point.module) for point in entry_points(group="manyheads.plugins")]


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except Exception as error:  # whatever the module raises
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"the plug-in {name!r} cannot be imported ({text}); fix it, or uninstall it."
        ) from None


@cache
def _places() -> tuple[tuple[Paper, tuple[ModuleType, ...]], ...]:
    """Each paper with the modules that hold its statements."""
    home = import_module("manyheads.theory")
    folders = sorted(
        (m.name for m in pkgutil.iter_modules(home.__path__) if m.ispkg),
        key=lambda n: (n != home.FIRST, n),
    )
    own = [import_module(f"{home.__name__}.{name}") for name in folders]
    places = [(module.PAPER, _files(module)) for module in own]
    for module in plugins():
        name = module.__name__.rpartition(".")[2]
        paper = getattr(module, "PAPER", Paper(name, name, "", module.__name__, ""))
        files = _files(module) if hasattr(module, "PAPER") else (module,)
        if any(True for file in files for _ in _statements(file)):
            places.append((paper, files))
    return tuple(places)


def _files(module: ModuleType) -> tuple[ModuleType, ...]:
    """A paper's modules: those it lists, in that order, then all others of its folder."""
    others = sorted(m.name for m in pkgutil.iter_modules(getattr(module, "__path__", [])))
    files = dict.fromkeys([*module.PAPER.files, *others])
    return (module, *(import_module(f"{module.__name__}.{file}") for file in files))


def _statements(module: ModuleType) -> Iterator[Statement]:
    for value in vars(module).values():
        if isinstance(value, Statement):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from (item for item in value if isinstance(item, Statement))
