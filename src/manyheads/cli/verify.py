"""`manyheads verify`: every statement of the paper and every erratum, checked."""

from __future__ import annotations

import os
from typing import Annotated

import tyro

from manyheads.cli.colors import hush, show, tell
from manyheads.cli.numbers import Seed


def command(
    statements: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    *,
    quick: bool = False,
    seed: Seed = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Check the statements of the paper on random, adversarially optimized and extremal inputs.

    Prints for each: trials, the largest share of the bound that was reached (as printed in the paper, and ours), and
    the verdict. A share of 1 means that the bound is attained; more than 1 that it is broken. For an erratum,
    REPRODUCED means that the counterexample shows what the entry says. Exit code 1 if a corrected statement is violated
    or an erratum cannot be reproduced.

    Examples:
        manyheads verify --quick
        manyheads verify cor1.3 thm1
        manyheads verify --json > ledger.json

    Args:
        statements: ids such as prop1.gradient, thm1, eq20, E7; all by default (`manyheads explain` lists them).
        quick: fewer trials and no fresh searches, under a minute.
        seed: seed of every random draw.
        json: print JSON instead of a table.
        quiet: no progress.
    """
    if quick:  # the problems are tiny: compiling is what takes time
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    from manyheads.theory.ledger import entry, ledger
    from manyheads.theory.verify import verify

    names = [entry(name).name for name in statements]
    total = len(names) or len(ledger())
    done = 0

    def report(item, finding, seconds):
        nonlocal done
        done += 1
        if not quiet:
            tell(f"{done}/{total}  {item.name}: {finding.verdict.name}  ({seconds:.1f} s)")

    result = verify(names, quick=quick, seed=seed, report=report)
    if not quiet:
        hush()
    print(result.to_json()) if json else show(str(result))
    return 1 if result.violated else 0
