"""Question: how long does the tangent margin of many sequences take by a working set, to which gap, in how much memory?

Run:  python benchmarks/bench_margin_many.py                          a quick look, 8,000 sequences
      python benchmarks/bench_margin_many.py --sequences 50000        the matrix of all pairs would take 20 GB

Sequences of the tokenized mixture (T = 8, d = 12), two starts: the first phase (two classes of heads, a million heads) and 8
Gaussian heads. Before anything is timed, the interval of a working set of 1,000 of the sequences must overlap the one of
the direct solver. Times are those of one call, in wall and in CPU seconds (the machine may be busy); memory is the largest
anonymous memory (RssAnon) beyond that before the call. One JSON line per case, then a table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
from bench_stream import Memory
from harness import environment, table

import manyheads as mh
from manyheads.measures import tangent_features as tangent

SMALL = 1000


def starts(task, keys) -> dict:
    return {
        "first phase": mh.first_phase(task.sample(200, key=keys[1]), num_heads=10**6),
        "8 Gaussian heads": mh.gaussian_start(8, num_tokens=8, dim=12, key=keys[3]),
    }


def by_working_set(start, data):
    """The margin by a working set, however few the sequences are."""
    usual, tangent.MOST_DIRECT = tangent.MOST_DIRECT, 0
    try:
        return tangent.tangent_margin(start, data)
    finally:
        tangent.MOST_DIRECT = usual


def measure(name, start, data) -> dict:
    few = data[:SMALL]
    direct, grown = tangent.tangent_margin(start, few), by_working_set(start, few)
    if not max(direct.lower, grown.lower) <= min(direct.upper, grown.upper):
        sys.exit(
            f"{name}: [{direct.lower}, {direct.upper}] directly, [{grown.lower}, {grown.upper}] by a working set"
        )
    rounds: list[str] = []
    with Memory(0.1) as memory:
        first = time.perf_counter(), time.process_time()
        found = tangent.tangent_margin(start, data, progress=rounds.append)
        wall, cpu = time.perf_counter() - first[0], time.process_time() - first[1]
    return {
        "case": f"{name}, {data.num_examples} sequences",
        "ratios": {
            "relative gap": found.relative_gap,
            "CPU seconds": cpu,
            "wall seconds": wall,
            "peak MiB": max((mib for _, mib in memory.curve), default=0.0),
            "rounds": len(rounds),
        },
        "interval": [found.lower, found.upper],
        "converged": found.converged,
        "verdict": found.verdict,
        "rounds": rounds,
        "of_all_pairs_mib": 8 * data.num_examples**2 / 2**20,
        "directly_on_1000": [direct.lower, direct.upper],
        "by_working_set_on_1000": [grown.lower, grown.upper],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=8000)
    parser.add_argument("--out", default=None, help="JSON file to write the result to")
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), 4)
    task = mh.TokenizedMixture(
        num_tokens=8, dim=12, num_patterns=4, sparsity=0.25, signal=2.0, key=keys[0]
    )
    data, lines = task.sample(options.sequences, key=keys[2]), []
    for name, start in starts(task, keys).items():
        lines.append(measure(name, start, data))
        print(json.dumps(lines[-1]), flush=True)
    question = __doc__.splitlines()[0]
    print(table(question, lines))
    if options.out:
        result = {
            "question": question,
            "invocations": 1,
            "environment": environment(),
            "cases": lines,
        }
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
