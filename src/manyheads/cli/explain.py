"""`manyheads explain`: one statement with its erratum, its proof, its checker and where it is used."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import tyro

from manyheads.cli.colors import show


def command(
    statement: Annotated[str, tyro.conf.Positional] = "",
    *,
    json: bool = False,
    markdown: bool = False,
) -> int:
    """Explain one statement of the paper, or list them all.

    Shows what is printed, what is right and why, our sharper form, where the proof and the checker are, how tight it
    was found to be, and what depends on it. Equation numbers work too: `manyheads explain eq4` shows Theorem 1.

    Examples:
        manyheads explain
        manyheads explain thm1
        manyheads explain E12

    Args:
        statement: an id such as prop1.hessian, thm1, eq8, E12; empty for the list.
        json: print JSON instead of text.
        markdown: print the list as a page with links to the proofs.
    """
    from manyheads.theory.ledger import entry, ledger, ledger_page
    from manyheads.theory.statement import WEIGHTS

    if statement:
        found = entry(statement)
        print(dumps(found.to_dict(), indent=2, ensure_ascii=False)) if json else show(str(found))
        return 0
    entries = list(ledger().values())
    if json:
        print(dumps([item.to_dict() for item in entries], indent=2, ensure_ascii=False))
        return 0
    if markdown:
        print(ledger_page())
        return 0
    width = max(len(item.name) for item in entries)
    for item in entries:
        weight = f"  [{item.weight}]" if item.weight else ""
        show(f"{item.name:<{width}}  {item.title}{weight}")
    show("\n" + "\n".join(f"{name}: {meaning}" for name, meaning in WEIGHTS.items()))
    show("`manyheads explain ID` shows one, `manyheads verify ID` checks it.")
    return 0
