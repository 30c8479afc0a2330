"""The ledger and the table of good starts, from the stored runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from manyheads.studies.kit.estimate import number
from manyheads.studies.kit.study import Results
from manyheads.theory.ledger import errata_entries, statements
from manyheads.theory.statement import Statement
from manyheads.theory.verdict import Certificate, Verdict

MOST_REASONS = 8
ABOUT = (
    "HOLDS: the hypotheses are true and the measured value is within the bound. SILENT: a hypothesis fails, so the "
    "statement says nothing here. VIOLATED would be a bug or a wrong constant. Open a line for the printed, the "
    "corrected and our own form."
)


def ledger_table(results: Iterable[Results]) -> dict[str, Any]:
    """What the template of the ledger needs: every entry with a stored check or run, and those checks and runs."""
    results = list(results)
    spoken: dict[str, list[dict[str, str]]] = {}
    for item in _texts(results, "ledger"):
        spoken.setdefault(item["statement"], []).append(_check(item))
    for item in _texts(results, "certificates"):
        certificate = Certificate.from_dict(
            item["certificate"]
        )  # the verdict is recomputed, not trusted
        reason = f"{certificate.claim}: {certificate.reason}"
        verdict = {"run": item["run"], "name": certificate.verdict.name, "reason": reason}
        spoken.setdefault(certificate.statement, []).append(verdict)
    errata = {entry.name for entry in errata_entries()}
    tally = Counter(
        verdict["name"] for name, said in spoken.items() if name not in errata for verdict in said
    )
    counts = [
        {"name": verdict.name, "text": f"{tally[verdict.name]} {verdict.name}"}
        for verdict in Verdict
        if tally
    ]
    if shown := sum(
        verdict["name"] == "HOLDS" for name in errata for verdict in spoken.get(name, [])
    ):
        counts.append({"name": "none", "text": f"{shown} errata reproduced"})
    return {
        "about": ABOUT,
        "counts": counts,
        "statements": [
            _row(entry, spoken[entry.name]) for entry in statements() if entry.name in spoken
        ],
        "errata": [
            _row(entry, spoken[entry.name]) for entry in errata_entries() if entry.name in spoken
        ],
    }


def _row(entry: Statement, verdicts: list[dict[str, str]]) -> dict[str, Any]:
    """An entry with one chip per kind of verdict and the first few reasons, the worst first."""
    order = {Verdict.VIOLATED.name: 0, Verdict.SILENT.name: 2}
    ranked = sorted(verdicts, key=lambda verdict: order.get(verdict["name"], 1))
    counts = Counter(verdict["name"] for verdict in ranked)
    chips = [
        {"name": name, "text": name if count == 1 else f"{name} × {count}"}
        for name, count in counts.items()
    ]
    words = {"HOLDS": "REPRODUCED", "VIOLATED": "NOT REPRODUCED"} if entry.is_erratum else {}
    ranked = [
        {**verdict, "text": words.get(verdict["name"], verdict["name"])} for verdict in ranked
    ]
    shown = list({(verdict["run"], verdict["reason"]): verdict for verdict in ranked}.values())
    return {
        "entry": entry,
        "chips": chips,
        "verdicts": shown[:MOST_REASONS],
        "more": len(shown) - MOST_REASONS,
    }


def _texts(results: list[Results], name: str) -> Iterator[dict[str, Any]]:
    """The items of every JSON list stored under a name."""
    for result in results:
        for dataset in result.values():
            if name in dataset:
                for text in dataset[name].values.ravel():
                    yield from json.loads(str(text) or "[]")


def _check(item: dict[str, Any]) -> dict[str, str]:
    """A check of an entry in words: the number of trials and the share of the bounds they reached."""
    parts = [f"{item['trials']:,} {'trial' if item['trials'] == 1 else 'trials'}"]
    for share, what in ((item["ours"], "our form"), (item["printed"], "the printed form")):
        if share is not None:
            parts.append(f"at most {number(float(share))} of {what} reached")
    reason = "; ".join(parts) + (f". {item['detail']}" if item["detail"] else "")
    return {"run": "check", "name": item["verdict"], "reason": reason}


def good_starts(results: Iterable[Results]) -> list[dict[str, str]]:
    """One row per start and number of heads, from the first seed that has one: P1, P2, P3 and whether it is good."""
    rows = []
    for result in results:
        for dataset in result.values():
            if "good_start" in dataset:
                texts = dataset["good_start"].transpose("seed", ...).values
                for column in texts.reshape(len(texts), -1).T:
                    stored = (json.loads(str(text) or "[]") for text in column)
                    rows += [_start(item) for item in next(filter(None, stored), [])]
    return rows


def _start(start: dict[str, Any]) -> dict[str, str]:
    margin = start["p3_margin"]
    heads, _, where = start["about"].partition(" on ")
    upper = f", none above {number(start['p3_upper'])}" if "p3_upper" in start else ""
    return {
        "name": start["name"],
        "heads": heads,
        "where": where,
        "b2": number(start["b2"]),
        "b_phi": number(start["b_phi"]),
        "margin": number(margin),
        "distinct": start["distinct"],
        "mood": "holds" if margin > 0 else "silent",
        "judgment": "good" if margin > 0 else f"not proved to separate{upper}",
    }
