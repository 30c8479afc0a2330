"""Numbered trials that are drawn from a seed, kept as they finish, and counted in a table.

A part of the torture is a module with `KINDS`, the names of what is tried; `FAULTS`, the outcomes that must not occur;
and `trial(kind, rng, folder)`, which tries one thing in an empty folder and returns its outcome, or (outcome, detail). It
may have `TRIALS`, the most that make sense, and `totals(rows)`, lines to print below the table.
Trial k of a seed is the same trial on every machine, alone or after others.
"""

from __future__ import annotations

import json
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np

CRASHED = "harness failed"


def run(part: ModuleType, count: int, seed: int, out: Path) -> Counter:
    """Make the trials that `out` does not hold yet; the count of each (kind, outcome)."""
    path = _path(part, seed, out)
    out.mkdir(parents=True, exist_ok=True)
    known = {row["trial"]: row for row in _rows(path)}
    with open(path, "a") as file:
        for k in range(count):
            if k not in known:
                known[k] = _one(part, k, seed)
                file.write(json.dumps(known[k]) + "\n")
                file.flush()
    return Counter((known[k]["kind"], known[k]["outcome"]) for k in range(count))


def rows(part: ModuleType, count: int, seed: int, out: Path) -> list[dict]:
    """The finished trials, with their details."""
    return [row for row in _rows(_path(part, seed, out)) if row["trial"] < count]


def table(part: ModuleType, counts: Counter) -> str:
    """Kinds against outcomes, the faults in the last columns."""
    faults = [*part.FAULTS, CRASHED]
    good = sorted({outcome for _, outcome in counts} - set(faults))
    columns = [*good, *faults]
    rows = [["kind", "trials", *columns]]
    for kind in [*part.KINDS, "all"]:
        of_kind = [
            sum(n for (k, o), n in counts.items() if kind in (k, "all") and o == column)
            for column in columns
        ]
        if sum(of_kind):
            rows.append([kind, str(sum(of_kind)), *map(str, of_kind)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join(lines)


def faults(part: ModuleType, counts: Counter) -> int:
    """How many trials ended in a fault."""
    return sum(n for (_, outcome), n in counts.items() if outcome in (*part.FAULTS, CRASHED))


def _path(part: ModuleType, seed: int, out: Path) -> Path:
    return out / f"{part.__name__.rpartition('.')[2]}-{seed}.jsonl"


def _one(part: ModuleType, k: int, seed: int) -> dict:
    kind = part.KINDS[k % len(part.KINDS)]
    with tempfile.TemporaryDirectory(prefix="manyheads-torture-") as folder:
        try:
            outcome = part.trial(kind, np.random.default_rng([seed, k]), Path(folder))
        except Exception:
            outcome = CRASHED, traceback.format_exc(limit=-3)
    outcome, detail = outcome if isinstance(outcome, tuple) else (outcome, "")
    return {"trial": k, "kind": kind, "outcome": outcome, "detail": detail}


def _rows(path: Path) -> list[dict]:
    """The rows of a file; a last line that was cut short is dropped from it."""
    if not path.is_file():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    path.write_bytes(whole + b"\n" if whole else b"")
    return [json.loads(line) for line in whole.splitlines()]
