"""Question: what do tokens that stay in a file cost, in memory and in time per sequence, against tokens in memory?

Run:  python benchmarks/bench_stream.py                             a quick look, 40,000 sequences
      python benchmarks/bench_stream.py --sequences 2000000         8.2 GB on disk, removed afterwards

The data (T = 16, d = 64, float32) are written by blocks into a temporary folder. "train" is `manyheads.train` on the whole
file: anonymous memory (RssAnon: the page cache of the file is not in it) is sampled along the way, and the curve begins before
the file is opened. "cost" is the time of a step on the first sequences of the file, at most 100,000, streamed and resident in
the same process, told only if both end with the same bits; steps of both alternate, medians are kept, in wall seconds and in
CPU seconds. On a busy machine the wall seconds are those of the neighbors: read the CPU seconds and the least wall seconds. One JSON line per case, then two tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import jax
import numpy as np
from harness import environment, table

import manyheads as mh
from manyheads.training.loop import advance, begin
from manyheads.training.problem import make_problem
from manyheads.training.rules import GD

T, D, HEADS = 16, 64, 2
BLOCK = 20_000  # sequences written at a time
MOST_RESIDENT = 100_000


class Memory:
    """Anonymous memory of this process, sampled in a thread."""

    def __init__(self, every: float):
        self.began, self.every, self.curve, self.over = (
            time.monotonic(),
            every,
            [],
            threading.Event(),
        )
        self.base = anonymous()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self):
        while not self.over.wait(self.every):
            self.curve.append(
                (round(time.monotonic() - self.began, 2), round(anonymous() - self.base, 1))
            )

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def anonymous() -> float:
    """MiB."""
    status = Path("/proc/self/status").read_text()
    return (
        int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))
        / 1024
    )


def write(folder: Path, n: int) -> tuple[Path, Path]:
    """Tokens and labels in two .npy files; the label is the sign of what the first tokens have in common."""
    rng, labels = np.random.default_rng(0), np.empty(n)
    paths = folder / "tokens.npy", folder / "labels.npy"
    out = np.lib.format.open_memmap(paths[0], "w+", np.float32, (n, T, D))
    for start in range(0, n, BLOCK):
        block = rng.standard_normal((min(BLOCK, n - start), T, D), dtype=np.float32) / 8
        out[start : start + len(block)] = block
        labels[start : start + len(block)] = np.where(block[:, :4, 0].sum(axis=1) > 0, 1.0, -1.0)
    out.flush()
    np.save(paths[1], labels)
    return paths


def trained(paths, n: int, steps: int) -> dict:
    """Train on the file, with the curve of memory."""
    with Memory(max(0.05, n / 2e6)) as memory:
        began = time.perf_counter()
        data = mh.Dataset.open(*paths)
        opened = time.perf_counter() - began
        start = mh.gaussian_start(HEADS, num_tokens=T, dim=D, key=0)
        run = mh.train(start, data, rule=mh.GD(0.5), num_steps=steps, record="all", dtype="float32")
        seconds = time.perf_counter() - began
    curve = memory.curve
    peak = max(mib for _, mib in curve)
    return {
        "case": f"train, {n} sequences, {steps} steps",
        "ratios": {
            "peak MiB beyond the start": peak,
            "MiB at the end": curve[-1][1],
            "seconds": seconds,
        },
        "seconds_to_open": opened,
        "file_bytes": paths[0].stat().st_size,
        "train_loss": [float(value) for value in run.train_loss],
        "curve": curve[:: max(1, len(curve) // 100)],
        "curve_is": "seconds, MiB of anonymous memory beyond the start",
    }


def cost(paths, n: int, rounds: int) -> dict:
    """A step on n sequences, streamed and resident."""
    X, y = np.load(paths[0], mmap_mode="r")[:n], np.load(paths[1])[:n]
    start = mh.gaussian_start(HEADS, num_tokens=T, dim=D, key=0)
    states, programs = {}, {}
    for name, data in (
        ("streamed", mh.Dataset.open(X, y)),
        ("resident", mh.Dataset.from_arrays(X, y)),
    ):
        problem = jax.device_put(make_problem(start, data, GD(0.5), dtype=np.float32))
        state = jax.device_put(begin(problem, {}))
        programs[name] = lambda state, k, problem=problem: jax.block_until_ready(
            advance(problem, {}, state, np.int32(k), np.int32(10**6))
        )
        states[name] = programs[name](state, 1)
    wall, cpu = ({name: [] for name in states} for _ in range(2))
    for k in range(2, rounds + 2):
        for name in states if k % 2 else reversed(states):
            first = time.perf_counter(), time.process_time()
            states[name] = programs[name](states[name], k)
            wall[name].append(time.perf_counter() - first[0])
            cpu[name].append(time.process_time() - first[1])
    ours, theirs = (
        jax.tree.leaves(states[name].run.displacement) for name in ("streamed", "resident")
    )
    if not all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
        sys.exit("streamed and resident descent differ; no time is worth telling")
    times = {
        f"{name}, {kind}": statistics.median(found[name])
        for kind, found in (("wall s", wall), ("CPU s", cpu))
        for name in states
    }
    return {
        "case": f"cost, {n} sequences",
        "ratios": {
            f"streamed / resident, {kind}": times[f"streamed, {kind}"] / times[f"resident, {kind}"]
            for kind in ("wall s", "CPU s")
        }
        | {"streamed / resident, least wall s": min(wall["streamed"]) / min(wall["resident"])}
        | {
            "streamed, wall microseconds per sequence and step": 1e6 * times["streamed, wall s"] / n
        },
        "seconds_per_step": times,
        "all_wall_s": wall,
        "rounds": rounds,
        "bits": "equal",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=40_000)
    parser.add_argument("--steps", type=int, default=3, help="steps on the whole file")
    parser.add_argument("--rounds", type=int, default=11, help="timed steps, streamed and resident")
    parser.add_argument("--folder", default=None, help="where the temporary folder is made")
    parser.add_argument("--out", default=None, help="JSON file to write the result to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        paths = write(Path(folder), options.sequences)
        lines = []
        for case in (
            lambda: trained(paths, options.sequences, options.steps),
            lambda: cost(paths, min(options.sequences, MOST_RESIDENT), options.rounds),
        ):
            lines.append(case())
            print(json.dumps(lines[-1]), flush=True)
    question = __doc__.splitlines()[0]
    print(table(question, lines))
    print("anonymous memory beyond the start:")
    curve = lines[0]["curve"]
    for seconds, mib in curve[:: max(1, len(curve) // 12)]:
        print(f"  {seconds:8.1f} s  {mib:8.1f} MiB")
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
