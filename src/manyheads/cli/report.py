"""`manyheads report`: draw the page again from what is stored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro


def command(folder: Annotated[Path, tyro.conf.Positional], json: bool = False, quiet: bool = False) -> int:
    """Draw the report of a folder that `manyheads run` filled. Needs no JAX; computes no run.

    Studies that have no results yet are left out and named.

    Args:
        folder: the folder of `manyheads run`, such as results/quick.
        json: print the findings as JSON.
        quiet: no progress.
    """
    from manyheads.cli.run import processors, show_absent, show_answers
    from manyheads.report.build import build

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    report = build(folder, workers=processors(), tell=tell)
    if json:
        print((folder / "data" / "findings.json").read_text())
    else:
        show_answers(report)
    show_absent(report)
    return 0
