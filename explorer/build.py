"""The explorer as one file: `python explorer/build.py` writes docs/explorer/index.html.

The sources beside this file are joined, together with what the page quotes from the ledger.
"""

from __future__ import annotations

import json
from pathlib import Path

import manyheads as mh

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "explorer" / "index.html"

# In the order in which they are joined: while it loads, a script uses names of earlier ones only.
ENGINE = ("random", "model", "data", "start", "descent", "theory", "cloud", "setup")
VIEWS = (
    *("palette", "settings", "presets", "format", "terms", "chart", "charts", "tokens", "maps"),
    *("cloud", "bowl", "task", "picture", "controls", "runs", "python", "files", "verdicts"),
    *("takeaways", "tour", "main"),
)
# What the engine offers to the views, the worker and the tests.
OFFERED = (
    *("LOSSES", "Objective", "Run", "Mixture", "decompose", "prepare", "leaveOneOut", "lookAt"),
    *("dataFromLists", "modelFromLists", "admissibleStep", "theorem1", "paperTarget"),
    *("attentionTarget", "measureTarget", "findEdge", "fullNorm", "readoutNorm", "makeRandom"),
    *("zeroStart", "averages", "wholeReadout", "viewDirections", "slice", "PARITY_SIGNAL"),
)


def render() -> str:
    """The whole page."""
    parts = {
        "VERSION": mh.__version__,
        "STYLE": text("page.css"),
        "ENGINE": engine(),
        "WORKER": text("worker.js"),
        "FACTS": f"const LEDGER = {as_script(quoted())};\n",
        "VIEWS": "\n".join(text(f"views/{name}.js") for name in VIEWS),
    }
    page = text("page.html")
    for name, part in parts.items():
        page = page.replace(f"@@{name}@@", part)
    return page


def engine() -> str:
    """The engine as one script that defines `Engine`."""
    body = "\n".join(text(f"engine/{name}.js") for name in ENGINE)
    offered = ", ".join(OFFERED)
    return f'const Engine = (() => {{\n"use strict";\n{body}\nreturn {{ {offered} }};\n}})();\n'


def quoted() -> dict[str, dict]:
    """The explanations, and the place and title of each statement that they quote."""
    terms = json.loads(text("terms.json"))
    ledger = mh.ledger()
    names = sorted({term["ledger"] for term in terms.values() if term["ledger"]})
    statements = {name: ledger[name] for name in names}
    return {
        "terms": terms,
        "statements": {n: {"place": s.place, "title": s.title} for n, s in statements.items()},
    }


def text(name: str) -> str:
    """A source file."""
    return (HERE / name).read_text(encoding="utf-8")


def as_script(value) -> str:
    """A value as JavaScript inside a script element."""
    return json.dumps(value, ensure_ascii=False).replace("</", "<\\/")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"{PAGE.relative_to(HERE.parent)}: {PAGE.stat().st_size / 1024:.0f} KB")
