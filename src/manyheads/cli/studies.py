"""`manyheads studies`: list the studies, or show one."""

from __future__ import annotations

import json as json_format
from itertools import groupby
from typing import Annotated

import tyro

from manyheads.cli.colors import show


def command(name: Annotated[str | None, tyro.conf.Positional] = None, json: bool = False) -> int:
    """List the studies, or show one: its question, what the paper says, its settings and its grids.

    Examples:
        manyheads studies
        manyheads studies heads

    Args:
        name: a study, or the path of your own (.py).
        json: print as JSON.
    """
    from manyheads.studies.kit.catalog import find, studies
    from manyheads.studies.kit.study import PARTS

    if name is None:
        rows = [
            {"name": n, "question": s.question, "part": PARTS[s.part], "story": s.in_story}
            for n, s in studies().items()
        ]
        print(json_format.dumps(rows, indent=1)) if json else show(_table(rows))
        return 0
    study = find(name)
    grids = {
        scale: {n: str(s) for n, s in study.plan(scale).items()} for scale in ("quick", "full")
    }
    if json:
        settings = [vars(setting) for setting in study.settings]
        content = {
            "name": study.name,
            "question": study.question,
            "claim": study.claim,
            "settings": settings,
        }
        print(json_format.dumps({**content, "grids": grids}, indent=1))
        return 0
    lines = [study.question, "", f"The paper: {study.claim}", ""]
    width = max(len(setting.name) for setting in study.settings)
    lines += [f"  {s.name:<{width}}  {s.value}  [{s.source}]" for s in study.settings]
    for scale, named in grids.items():
        lines += ["", f"{scale}:", *(f"  {text}" for text in named.values())]
    show("\n".join(lines))
    return 0


def _table(rows: list[dict]) -> str:
    width, lines = max(len(row["name"]) for row in rows), []
    for part, same in groupby(rows, key=lambda row: row["part"]):
        lines += [
            part,
            *(
                f"{'*' if row['story'] else ' '} {row['name']:<{width}}  {row['question']}"
                for row in same
            ),
            "",
        ]
    return "\n".join([*lines, "* runs when `manyheads run` is given no name"])
