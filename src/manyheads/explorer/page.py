"""The page as one file: the sources in `static/` joined, with the palette and the statements of the ledger.

`python -m manyheads.explorer.page` writes docs/explorer/index.html.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import manyheads
from manyheads.studies.kit.palette import look
from manyheads.theory.ledger import entry

ENGINE = ("random", "model", "data", "start", "descent", "theory", "setup")
OFFERED = (
    "LOSSES",
    "Objective",
    "Run",
    "decompose",
    "Mixture",
    "prepare",
    "leaveOneOut",
    "lookAt",
    "dataFromLists",
    "modelFromLists",
    "admissibleStep",
    "theorem1",
    "paperTarget",
    "attentionTarget",
    "measureTarget",
    "findEdge",
    "fullNorm",
    "readoutNorm",
    "makeRandom",
)
VIEWS = (
    "settings",
    "presets",
    "format",
    "terms",
    "chart",
    "charts",
    "tokens",
    "maps",
    "picture",
    "controls",
    "runs",
    "python",
    "served",
    "verdicts",
    "takeaways",
    "tour",
    "main",
)
ROLES = (
    "train",
    "test",
    "plus",
    "minus",
    "measured",
    "ours",
    "reference",
    "attention",
    "mixture",
    "random labels",
    "planted",
    "gaussian",
    "construction",
)


def render() -> str:
    """The whole page."""
    page = _text("page.html")
    parts = {
        "VERSION": manyheads.__version__,
        "STYLE": _colors() + _text("page.css"),
        "ENGINE": engine(),
        "WORKER": _text("worker.js"),
        "FACTS": f"const PALETTE = {_json(_palette())};\nconst LEDGER = {_json(_ledger())};\n",
        "VIEWS": "\n".join(_text(f"{name}.js") for name in VIEWS),
    }
    for name, text in parts.items():
        page = page.replace(f"@@{name}@@", text)
    return page


def engine() -> str:
    """The engine as one script that defines `Engine`."""
    body = "\n".join(_text(f"{name}.js") for name in ENGINE)
    return f'const Engine = (() => {{\n"use strict";\n{body}\nreturn {{ {", ".join(OFFERED)} }};\n}})();\n'


def _text(name: str) -> str:
    return (files("manyheads.explorer") / "static" / name).read_text(encoding="utf-8")


def _colors() -> str:
    """The colors and type faces of the report."""
    style = (files("manyheads.report") / "static" / "page.css").read_text(encoding="utf-8")
    return style[: style.index("* {")]


def _palette() -> dict[str, dict]:
    looks = {role: look(role) for role in ROLES}
    return {
        role: {"light": one.light, "dark": one.dark, "dash": list(one.dash)}
        for role, one in looks.items()
    }


def _ledger() -> dict[str, dict]:
    """What the explanations quote: place and text of each statement."""
    wanted = json.loads(_text("terms.json"))
    names = sorted({term["ledger"] for term in wanted.values() if term.get("ledger")})
    quoted = {name: entry(name) for name in names}
    return {
        "terms": wanted,
        "statements": {n: {"place": s.place, "title": s.title} for n, s in quoted.items()},
    }


def _json(value) -> str:
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\/")


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/explorer/index.html")
    where.write_text(render(), encoding="utf-8")
