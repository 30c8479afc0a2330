"""Shared pieces of the benchmarks: one core, random order, a pause, medians, agreement first.

A benchmark file states its question in its first line, builds cases, and calls `main`. Every variant of a case is a
callable that does the work once and blocks until it is done. Peers that need another Python (PyTorch, neural-tangents)
are `Peer` processes that answer JSON lines and exchange arrays as .npz files, so that they are timed in the same run.
Call `one_core()` before NumPy or JAX is imported. On a busy machine MANYHEADS_BENCH_CLOCK=cpu counts the seconds that a
process computed instead of those that passed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLOCK = time.process_time if os.environ.get("MANYHEADS_BENCH_CLOCK") == "cpu" else time.perf_counter
PAUSE = (
    0.05  # seconds between variants: a GEMM right after a burst of allocation runs at half speed
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PEER_VERSIONS: dict[str, str] = {}  # of every peer that was started
REPEATED = 0.02  # variants faster than this many seconds are timed as the mean of several calls


def one_core() -> None:
    """Pin this process and its children to one core and one thread. Call before importing NumPy or JAX."""
    for name in THREADS:
        os.environ[name] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def environment() -> dict:
    """Versions and machine, for the result file."""
    import jax
    import numpy

    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in cpuinfo.read_text().splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": numpy.__version__,
        "device": jax.devices()[0].device_kind,
        "cpu": model,
        "cores_used": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "clock": CLOCK.__name__,
        "peers": PEER_VERSIONS,
    }


def seconds(work) -> float:
    """Seconds of one call, including the wait for its result."""
    start = CLOCK()
    result = work()
    if hasattr(result, "block_until_ready") or isinstance(result, (tuple, list, dict)):
        import jax

        jax.block_until_ready(result)
    return CLOCK() - start


def race(variants: dict, *, rounds: int = 7, seed: int = 0, warm: bool = False) -> dict:
    """Median and spread in seconds of each variant, interleaved in random order with a pause before each.

    A variant is a callable, or a `Timed` call of a peer. Variants that were called before (`warm=True`) are not warmed up.
    """
    order, times = random.Random(seed), {name: [] for name in variants}
    repeats = {}
    for name, work in variants.items():  # compile and warm up outside the clock
        if warm:
            repeats[name] = 1
            continue
        first = _measure(work, 1)
        repeats[name] = max(1, round(REPEATED / max(_measure(work, 1), 1e-7))) if first < 5 else 1
    for _ in range(rounds):
        names = list(variants)
        order.shuffle(names)
        for name in names:
            time.sleep(PAUSE)
            times[name].append(_measure(variants[name], repeats[name]))
    return {
        name: {"median_s": statistics.median(t), "spread_s": max(t) - min(t), "rounds": rounds}
        for name, t in times.items()
    }


def _measure(work, repeats: int) -> float:
    if isinstance(work, Timed):
        return work(repeats)
    return seconds(lambda: [work() for _ in range(repeats)]) / repeats


class Timed:
    """A variant that is timed inside another process: calling it returns seconds per call."""

    def __init__(self, peer: Peer, **request):
        self.peer, self.request = peer, request

    def __call__(self, repeats: int) -> float:
        return self.peer.ask(action="time", repeats=repeats, **self.request)["seconds"]


class Peer:
    """A program of another environment that answers one JSON line per JSON line.

    The interpreter comes from an environment variable; `missing` says why there is no peer, or is None.
    """

    def __init__(self, name: str, variable: str, script: str, default: str = ""):
        self.name, self.missing, self.process = name, None, None
        python = os.environ.get(variable, default)
        if not python or not Path(python).exists():
            self.missing = f"{name}: not measured, set {variable} to a Python that has it"
            return
        self.process = subprocess.Popen(
            [python, "-u", str(Path(__file__).parent / "peers" / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": "", "JAX_PLATFORMS": "cpu"},
        )
        try:
            PEER_VERSIONS.update(self.ask(action="versions")["versions"])
        except RuntimeError as error:
            self.missing = f"{name}: not measured, {error}"

    def ask(self, **request) -> dict:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"the program of {self.name} ended with status {self.process.wait()}"
            )
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.name} answered: {reply['error']}")
        return reply

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=30)


def main(file: str, question: str, measure, cases: list, *, rounds: int = 7) -> int:
    """Command line of one benchmark: run the cases, print a JSON line per case and a table, keep the result.

    `measure(case, rounds)` returns a flat dictionary with a key `case` and `ratios`, a dictionary of name -> ratio.
    With `--invocations 3` the whole benchmark is run in three fresh processes and the medians are kept.
    """
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument(
        "--cases", nargs="*", default=None, help="names of the cases to run: " + ", ".join(cases)
    )
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="timings per variant and invocation"
    )
    parser.add_argument(
        "--invocations", type=int, default=1, help="fresh processes whose medians are kept"
    )
    parser.add_argument("--out", default=None, help="JSON file to write the result to")
    options = parser.parse_args()
    chosen = cases if options.cases is None else options.cases
    unknown = [name for name in chosen if name not in cases]
    if unknown:
        parser.error(f"no case called {', '.join(unknown)}; there are {', '.join(cases)}")
    if options.invocations == 1:
        lines = []
        for case in chosen:
            line = measure(case, options.rounds)
            print(json.dumps(line), flush=True)
            lines.append(line)
        env = environment()
    else:
        runs = []
        for number in range(options.invocations):
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run.json"
                command = [
                    sys.executable,
                    file,
                    "--rounds",
                    str(options.rounds),
                    "--out",
                    str(out),
                    "--cases",
                    *chosen,
                ]
                print(
                    f"invocation {number + 1} of {options.invocations}", file=sys.stderr, flush=True
                )
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                runs.append(json.loads(out.read_text()))
        lines = [
            median_of(list(group)) for group in zip(*(run["cases"] for run in runs), strict=True)
        ]
        env = runs[0]["environment"]
        for line in lines:
            print(json.dumps(line), flush=True)
    print(table(question, lines))
    if options.out:
        result = {
            "question": question,
            "invocations": options.invocations,
            "environment": env,
            "cases": lines,
        }
        Path(options.out).write_text(json.dumps(result, indent=1) + "\n")
    return 0


def median_of(values: list):
    """The median of equally shaped results, number by number; other values must be equal, or are listed."""
    first = values[0]
    if isinstance(first, dict):
        return {key: median_of([value[key] for value in values]) for key in first}
    if isinstance(first, bool) or not isinstance(first, (int, float)):
        return first if all(value == first for value in values) else values
    return statistics.median(values)


def table(question: str, lines: list) -> str:
    """A plain table: one row per case and ratio."""
    rows = [
        (line["case"], name, f"{ratio:.3g}" if isinstance(ratio, (int, float)) else str(ratio))
        for line in lines
        for name, ratio in line["ratios"].items()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else [0, 0, 0]
    body = [
        f"  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}" for row in rows
    ]
    return "\n".join([question, *body])
