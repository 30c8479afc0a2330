"""`manyheads report`: redraw the page from stored results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro


def command(
    folder: Annotated[Path, tyro.conf.Positional],
    studies: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    light: Path | None = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Draw the report from a folder written by `manyheads run`. Needs no JAX and trains nothing.

    Studies that have no results yet are left out and listed. So are your own studies, since drawing never runs code
    that a folder names: pass their files, as in `manyheads report results/quick my_study.py`.

    Examples:
        manyheads report results/quick
        manyheads report results/full --light docs/report

    Args:
        folder: the folder of `manyheads run`, such as results/quick.
        studies: files (.py) of your own studies whose results the folder holds.
        light: write a small page of static drawings, and its data, into this folder instead.
        json: print the findings as JSON.
        quiet: no progress.
    """
    from manyheads.cli.run import processors, show_absent, show_answers
    from manyheads.report.build import build

    def tell(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    report = build(folder, studies=studies, light=light, workers=processors(), tell=tell)
    if json:
        print((report.page.parent / "data" / "findings.json").read_text())
    else:
        show_answers(report)
    show_absent(report)
    return 0
