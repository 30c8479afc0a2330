"""`manyheads explain`: one statement with its erratum, its proof, its checker and where it is used."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import tyro

from manyheads.cli.options import show


def command(
    statement: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[ID]")] = "",
    *,
    json: bool = False,
    markdown: bool = False,
) -> int:
    """Explain one statement, or list them all.

    Shows what is printed, what is right and why, our sharper form, where the proof and the checker
    are, how tight it was found to be, and what depends on it. Equation numbers work too: `manyheads
    explain eq4` shows Theorem 1.

    Examples:
        manyheads explain
        manyheads explain thm1
        manyheads explain my_lemma.py

    Args:
        statement: an id such as prop1.hessian, thm1, eq8, E12, or a Python file with statements;
            empty for the list.
        json: print JSON instead of text.
        markdown: print the list as a page with links to the proofs.
    """
    from manyheads.cli.statements import chosen
    from manyheads.theory.ledger import ledger, ledger_page
    from manyheads.theory.statement import WEIGHTS

    if markdown:
        print(ledger_page())
        return 0
    found = chosen([statement]) if statement else list(ledger().values())
    if json:
        table = [item.to_dict() for item in found]
        one = len(table) == 1 and statement
        print(dumps(table[0] if one else table, indent=2, ensure_ascii=False))
    elif statement:
        show("\n\n".join(str(item) for item in found))
    else:
        width = max(len(item.name) for item in found)
        for item in found:
            weight = f"  [{item.weight}]" if item.weight else ""
            show(f"{item.name:<{width}}  {item.title}{weight}")
        show("\n" + "\n".join(f"{name}: {meaning}" for name, meaning in WEIGHTS.items()))
        show("`manyheads explain ID` shows one, `manyheads verify ID` checks it.")
    return 0
