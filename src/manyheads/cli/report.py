"""`manyheads report`: draw the page again from what is stored."""

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
    """Draw the report of a folder that `manyheads run` filled. Needs no JAX and trains nothing.

    Studies that have no results yet are left out and named. So are studies of your own: drawing a folder runs no code
    that the folder names, so pass their files, as in `manyheads report results/quick my_study.py`.

    Args:
        folder: the folder of `manyheads run`, such as results/quick.
        studies: files of studies of your own (.py) that the folder holds.
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
