"""`manyheads verify`: every statement of the papers and every erratum, or one's own, checked."""

from __future__ import annotations

import os
from typing import Annotated, Any

import tyro

from manyheads.cli.options import show, telling


def command(
    statements: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ID|FILE.py ...]")
    ] = (),
    *,
    quick: bool = False,
    seed: int = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Check statements on random, adversarially optimized and extremal inputs.

    Prints for each: trials, the largest share of the bound that was reached (as printed in the
    paper, and ours), and the verdict. A share of 1 means that the bound is attained; more than 1
    that it is broken. For an erratum, REPRODUCED means that the counterexample shows what the entry
    says. A Python file stands for the statements in it. Exit code 1 if a corrected statement is
    violated or an erratum cannot be reproduced.

    Examples:
        manyheads verify --quick
        manyheads verify cor1.3 thm1
        manyheads verify my_lemma.py
        manyheads verify --json > ledger.json

    Args:
        statements: ids such as prop1.gradient, thm1, eq20, E7 (`manyheads explain` lists them), or
            Python files; all
            statements of the papers by default.
        quick: fewer trials and no fresh searches, a minute or two.
        seed: seed of every random draw.
        json: print JSON instead of a table.
        quiet: no progress.
    """
    # the problems are tiny: compiling is what takes time
    if quick:
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    from manyheads.cli.statements import chosen
    from manyheads.theory.ledger import ledger
    from manyheads.theory.verify import verify

    wanted = chosen(statements)
    total, done = len(wanted) or len(ledger()), 0

    with telling(quiet) as tell:

        def report(item, finding, seconds):
            nonlocal done
            done += 1
            tell(f"{done}/{total}  {item.name}: {finding.verdict.name}  ({seconds:.1f} s)")

        result: Any = verify(wanted, quick=quick, seed=seed, report=report)
    if json:
        print(result.to_json())
    else:
        show(result)
    return 1 if result.violated else 0
