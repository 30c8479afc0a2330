"""Kills: sweeps on every engine and training with a checkpoint, ended at random moments and at the critical ones.

A trial starts a command, attacks it, starts it again, and so on; then lets it finish and compares what it left with what a
run in peace leaves, bit for bit. An attack is aimed (in the middle of writing a file, before it is synced, before or after
it gets its name) or comes at a random time. The commands are forks of this process (`forks`), or real ones.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import forks

from torture.victims import GROUP, KILL, ONCE, SCHEDULER, STOP, TWICE, WORKER, Fault, make

COMMON = (KILL, GROUP, "SIGTERM", "SIGHUP", ONCE, TWICE, STOP)
ATTACKS = {
    "here": COMMON,
    "processes": (*COMMON, WORKER),
    "dask": (*COMMON, WORKER),
    "dask at an address": (KILL, ONCE, WORKER, SCHEDULER),
    "train": COMMON,
    "real sweep": (KILL, TWICE),
    "real train": (KILL, TWICE),
}
KINDS = [f"{engine}: {attack}" for engine, attacks in ATTACKS.items() for attack in attacks]
FAULTS = (
    "result lost",
    "unreadable part",
    "finished batch run twice",
    "other bits",
    "traceback",
    "other exit",
    "process left",
    "hang",
)


def trial(kind: str, rng, folder: Path) -> tuple[str, str]:
    """Attack one command again and again, let it finish, and compare."""
    forks.preload()
    engine, _, attack = kind.partition(": ")
    victim = make(engine, folder)
    refused = 0
    try:
        for _ in range(2 if victim.real else rng.integers(4, 9)):
            if victim.finished():
                break
            refused += victim.attacked(attack, rng)
            victim.check()
        victim.end_in_peace()
        victim.compare()
    except Fault as fault:
        outcome, detail = fault.args
        return outcome, json.dumps({"kills": victim.kills, "what": detail[-2000:]})
    finally:
        victim.close()
    detail = json.dumps({"kills": victim.kills, "refused": refused})
    return ("same bits, refused once or more" if refused else "same bits"), detail


def totals(rows: list[dict]) -> str:
    """How many processes were attacked, by kind of attack."""
    counts: dict[str, int] = {}
    for row in rows:
        found = re.match(r'\{"kills": (\d+)', row["detail"])
        attack = row["kind"].partition(": ")[2]
        counts[attack] = counts.get(attack, 0) + (int(found[1]) if found else 0)
    return "\n".join(
        [
            f"attacks: {sum(counts.values())}",
            *(f"  {name}: {count}" for name, count in counts.items()),
        ]
    )
