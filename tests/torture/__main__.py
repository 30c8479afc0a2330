"""`python -m torture PART [--trials N] [--seed S]`: run a part of the torture and print its table."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import torture
from torture import harness

PARTS = sorted(
    module.name
    for module in pkgutil.iter_modules(torture.__path__)
    if module.name not in ("__main__", "harness", "judged", "public_calls", "victims")
    and not module.name.startswith("test_")
)


def main() -> int:
    """Exit status 1 if any trial ended in a fault."""
    parser = argparse.ArgumentParser(prog="make torture", description=torture.__doc__)
    parser.add_argument(
        "parts", nargs="*", help=f"parts to run, of {', '.join(PARTS)}; all by default"
    )
    parser.add_argument("--trials", type=int, default=1000, help="trials of each part (1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("results/torture"), help="finished trials are kept here"
    )
    chosen = parser.parse_args()
    unknown = set(chosen.parts) - set(PARTS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such part; choose among {', '.join(PARTS)}")
    found = 0
    for name in chosen.parts or PARTS:
        part = importlib.import_module(f"torture.{name}")
        trials = min(chosen.trials, getattr(part, "TRIALS", chosen.trials))
        counts = harness.run(part, trials, chosen.seed, chosen.out)
        print(f"\n{name}, seed {chosen.seed}\n{harness.table(part, counts)}", flush=True)
        if hasattr(part, "totals"):
            print(part.totals(harness.rows(part, trials, chosen.seed, chosen.out)), flush=True)
        found += harness.faults(part, counts)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
