"""Question: from which step on does the forecast speak, and how close is what it promises to what happens?

Run:  python benchmarks/forecast_table.py --out rows.jsonl            one JSON line per case; cases already there are skipped
      python benchmarks/forecast_table.py --out rows.jsonl --print    the table of what is there, in Markdown
Settings A, B and C of the tests, the easy and the hard mixture and the digits of the study `forecast`; every number of heads and
every start, followed for 600 steps. A second table, `--more`: digits less their mean image and random labels on few sequences, from
Gaussian starts with larger key-query weights ("gaussian 80").
"""

import argparse
import json
import math
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from followed import compared  # noqa: E402
from paper_settings import setting  # noqa: E402

import manyheads as mh  # noqa: E402

STEPS, EXAMPLES, DIGITS = 600, 80, 100
EASY = dict(num_tokens=8, dim=10, num_patterns=4, sparsity=0.25, signal=1.5)
EASY |= dict(noise_mu=0.1, noise_nu=0.1, noise_norm=0.4)
HARD = EASY | dict(sparsity=0.125, noise_mu=0.5, noise_nu=0.5, noise_norm=1.5)
STEP_SIZE = {"easy": 0.5, "hard": 0.2, "digits": 0.2}
HEADS = (1, 2, 8, 64, 1024)
STARTS = ("first_phase", "zero", "gaussian")
DATA = ("A", "B", "C", "easy mixture", "hard mixture", "digits 3 and 8")
SEPARATED = {  # less the mean of the images that are not trained on: which digits, the first image
    "centered digits": ((3, 8), 0),
    "100 other images": ((3, 8), 100),
    "centered digits 1 and 7": ((1, 7), 0),
}
MEMORIZED = {f"{n} random labels": n for n in (10, 20, 40)}
SHARP = {"centered digits": "gaussian 80"} | dict.fromkeys(MEMORIZED, "gaussian 10")
MORE = [(name, kind, heads) for name, kind in SHARP.items() for heads in (1, 2, 8, 64)]
MORE += [(name, "gaussian 80", 8) for name in SEPARATED if name not in SHARP]
MORE += [(name, "first_phase", heads) for name in MEMORIZED for heads in (8, 64, 1024)]
COLUMNS = (
    "data",
    "start",
    "heads",
    "first step",
    "certified",
    "measured",
    "silent: nats",
    "indicator",
)


def task(name):
    """Training data, fresh data for the first phase, and the step size."""
    if name in "ABC":
        found = setting(name)
        return found.dataset, found.fresh, found.step_size
    if name in MEMORIZED:
        source = mh.data.RandomLabels(num_tokens=6, dim=6, token_norm=2.0)
        return *(
            source.sample(n, key=jax.random.key(k)) for k, n in ((1, MEMORIZED[name]), (2, 200))
        ), 0.1
    if name in SEPARATED or "digits" in name:
        classes, begin = SEPARATED.get(name, ((3, 8), 0))
        images = mh.data.digits(*classes)
        tokens, labels = (np.roll(a, -begin, axis=0) for a in (images.tokens, images.labels))
        every = (tokens - tokens[DIGITS:].mean(axis=0) if name in SEPARATED else tokens), labels
        parts = [
            mh.Dataset.from_arrays(*(a[first : first + DIGITS] for a in every))
            for first in (0, DIGITS)
        ]
        return *parts, 0.5 if name in SEPARATED else STEP_SIZE["digits"]
    numbers = {
        k: v
        for k, v in (EASY if "easy" in name else HARD).items()
        if k not in ("kind", "num_examples", "num_test")
    }
    mixture = mh.TokenizedMixture(**numbers, key=jax.random.key(0))
    data, fresh = (
        mixture.sample(count, key=jax.random.key(k)) for k, count in ((1, EXAMPLES), (2, 200))
    )
    return data, fresh, STEP_SIZE[name.split()[0]]


def start_of(kind, heads, data, fresh):
    shape = {"num_tokens": data.num_tokens, "dim": data.dim}
    if kind == "zero":
        return mh.zero_start(heads, **shape)
    if kind == "gaussian":
        return mh.gaussian_start(heads, **shape, key=jax.random.key(3))
    if kind.startswith("gaussian"):
        scales = {"key_query_scale": float(kind.split()[1]), "readout_scale": 0.1}
        return mh.gaussian_start(heads, **shape, **scales, key=jax.random.key(3))
    return mh.first_phase(fresh, heads)


def measured(name, kind, heads):
    """One row: the first step that speaks with its promise, or how much the last step certifies."""
    data, fresh, eta = task(name)
    start = start_of(kind, heads, data, fresh)
    run = mh.train(start, data, rule=mh.GD(eta), num_steps=STEPS, dtype="float64")
    found = mh.theory.first_forecast(run, data)
    row = {"data": name, "start": kind, "heads": heads, "step_size": eta, "status": run.status}
    if found is not None:
        step, promise = found
        row |= {"first_step": step, "indicator": promise.indicator} | compared(
            start, data, step, promise
        )
        return row
    last = mh.forecast(run, data)
    return row | {
        "nats": last.nats,
        "indicator": last.indicator,
        "reason": last.reason,
        "loss": last.loss,
    }


def table(rows):
    """Markdown, in the order of the lists above."""
    order = {
        name: k for k, name in enumerate((*DATA, *SEPARATED, *MEMORIZED, *STARTS, *SHARP.values()))
    }
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for r in sorted(rows, key=lambda r: (order[r["data"]], order[r["start"]], r["heads"])):
        spoke = "first_step" in r
        cells = [r["data"], r["start"], f"{r['heads']:,}"]
        cells += (
            [r["first_step"], r["promised"], r["measured"], ""]
            if spoke
            else ["silent", "", "", f"{r['nats']:.3f}"]
        )
        lines.append("| " + " | ".join(map(str, [*cells, f"{r['indicator']:.2f}"])) + " |")
    spoke = [r for r in rows if "first_step" in r]
    levels, kept = (sum(r[name] for r in spoke) for name in ("levels", "kept"))
    lines.append(
        f"\n{len(spoke)} of {len(rows)} runs speak; {kept} of {levels} certified levels were reached in time."
    )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--more", action="store_true", help="the second table")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no case after this time"
    )
    options = parser.parse_args()
    began = time.monotonic()
    rows = (
        [json.loads(line) for line in options.out.read_text().splitlines()]
        if options.out.exists()
        else []
    )
    if not options.print:
        done = {(r["data"], r["start"], r["heads"]) for r in rows}
        cases = (
            MORE
            if options.more
            else [(name, kind, heads) for kind in STARTS for heads in HEADS for name in DATA]
        )
        cases.sort(
            key=lambda case: case[1].startswith("gaussian") and case[2]
        )  # many different heads take longest
        for case in cases:
            if case not in done and time.monotonic() - began < options.seconds:
                with options.out.open("a") as file:
                    file.write(json.dumps(measured(*case)) + "\n")
        rows = [json.loads(line) for line in options.out.read_text().splitlines()]
    print(table([r for r in rows if (r["data"] in (*SEPARATED, *MEMORIZED)) == options.more]))


if __name__ == "__main__":
    main()
