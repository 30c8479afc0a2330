"""`manyheads train`: one run on a data source or a file, saved as a trajectory."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyheads._names import DECODERS, OPTIMIZERS
from manyheads.cli.colors import say, show
from manyheads.cli.interrupt import INTERRUPTED, ends_at_once
from manyheads.cli.numbers import Heads, Seed, named, write_heads
from manyheads.cli.tasks import (
    computing_on,
    fresh_wanted,
    make_start,
    parts,
    use_all_cores,
    warn_of_time,
)
from manyheads.data.convert import paths_of
from manyheads.data.files import why_not
from manyheads.data.source import SOURCES
from manyheads.model.loss import LOSSES
from manyheads.training.start import STARTS

UNSAVED = DIVERGED = 1  # exit codes
RECORDS = ("step", "train_loss", "test_loss", "margin", "gradient_norm", "distance", "readout_norm")
File = Annotated[Path | None, tyro.conf.arg(metavar="FILE")]
KINDS = ", ".join(SOURCES)
DATA_HELP = f".npz, .csv or .parquet file, two .npy files (tokens, labels), or one of {KINDS} (mixture if not given)."


def command(
    data: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]", help=DATA_HELP)
    ] = None,
    *,
    heads: Heads = 8,
    start: Annotated[str, named(STARTS)] = "first_phase",
    scale: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None,
    decoder: Annotated[str, named(DECODERS)] = "full",
    steps: int = 1000,
    step_size: float = 0.1,
    optimizer: Annotated[str, named(OPTIMIZERS)] = "gd",
    loss: Annotated[str, named(LOSSES)] = "logistic",
    examples: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    positive: Annotated[str | None, tyro.conf.arg(metavar="LABEL")] = None,
    first_phase_examples: int = 200,
    test_examples: int = 300,
    seed: Seed = 0,
    dtype: Annotated[
        Literal["float32", "float64"] | None, tyro.conf.arg(metavar="{float32,float64}")
    ] = None,
    device: Annotated[str | None, tyro.conf.arg(metavar="{cpu,gpu}")] = None,
    devices: Annotated[str | None, tyro.conf.arg(metavar="{all,INT}")] = None,
    out: File = None,
    resume: File = None,
    until: Annotated[str | None, named(("certified",))] = None,
    forecast: bool = False,
    json_lines: Annotated[bool, tyro.conf.arg(name="json")] = False,
    quiet: bool = False,
) -> int:
    """Train a multi-head attention classifier by full-batch descent, and keep the trajectory.

    DATA is an .npz file with arrays `tokens` (n, T, d) and `labels` (two values), a .csv or .parquet file, two .npy
    files (tokens, labels), or a data source: `mixture`, the paper's tokenized mixture; `planted`, labels from a planted
    attention model; `random_labels`; or `digits`, two handwritten digits. A file and other fixed
    collections are split: `--test-examples` sequences, and for the first phase `--first-phase-examples`, are set aside
    before training (at most a quarter of the data each). Ctrl-C saves what was done; `--resume FILE` continues it.

    Examples:
        manyheads train
        manyheads train mixture --heads 10^12 --steps 2000 --out run.npz
        manyheads train mixture --heads 10^12 --steps 4000 --out run.npz --resume run.npz
        manyheads train my-data.npz --start zero --heads 1 --step-size 0.5 --json
        manyheads train mixture --step-size 0.5 --until certified
        manyheads train my-data.npz --devices all --out run.npz

    Args:
        heads: number of heads; with starts of equal heads (first_phase, zero) any number costs the same.
        start: where descent begins; first_phase is the paper's one randomized step on fresh data.
        scale: norm of each Gaussian head's two weight matrices (only with --start gaussian; 1 if not given).
        decoder: one readout row per token, one for all tokens, or one for the last token.
        steps: number of steps K.
        step_size: step size eta.
        optimizer: the update rule.
        loss: the loss of the margin.
        examples: training sequences to draw (100 if not given); a file is used whole.
        positive: the label that becomes +1, against all others; by default the larger of two.
        first_phase_examples: fresh sequences for the first phase.
        test_examples: sequences for the test loss; 0 leaves it out.
        seed: seed of everything random.
        dtype: precision of training; by default float32, from 10^6 heads on float64.
        device: where to compute; by default what JAX finds.
        devices: split the sequences over all devices, or this many; by default over the cores that make it faster.
        out: save the trajectory to this .npz file.
        resume: continue this trajectory; pass the same options.
        until: end the run early; `certified` ends it once the loss is proved to halve, as by `manyheads forecast`.
        forecast: show in the progress line what is proved about the coming steps, and record it.
        json_lines: print the records as JSON, one line each, instead of a table.
        quiet: print no progress and no messages.
    """
    with ends_at_once():
        use_all_cores()
        import jax

        import manyheads as mh
        from manyheads.training.rules import RULES
        from manyheads.training.trajectory import Unsaved

        data = "mixture" if data is None else data
        first = fresh_wanted(start, first_phase_examples)
        if out is not None and not out.is_dir() and out.suffix.lower() != ".npz":
            raise ValueError(
                f"--out {out} must end in .npz, the format of a trajectory; pass {out.with_suffix('.npz')}."
            )
        if (
            out is not None
            and out.exists()
            and any(Path(p).exists() and out.samefile(p) for p in paths_of(data))
        ):
            raise ValueError(f"--out {out} would overwrite the data; pass another file.")
        keys = jax.random.split(jax.random.key(seed), 5)
        count = 100 if examples is None else examples
        task, fresh, dataset, test = parts(data, seed, count, first, test_examples, positive)
        split = hasattr(task, "load")
        if split and examples is not None:
            raise ValueError(
                f"--examples {examples} is for generated tasks; all sequences of {data} are used."
            )
        facts = dict(fresh=fresh, source=task, key=keys[4], decoder=decoder, loss=loss)
        model = make_start(start, heads, scale, dataset=dataset, **facts)
    tell = (lambda _: None) if quiet else say
    tell(dataset)
    warn_of_time(steps, dataset, model, tell)
    if split and (fresh or test):
        counts = [(fresh, "first phase"), (test, "test")]
        tell(
            "set aside: "
            + ", ".join(f"{part.num_examples} for the {name}" for part, name in counts if part)
        )
    number = int(devices) if devices and devices.isdecimal() else devices
    stop = mh.Certified(ends=until is not None) if until or forecast else None
    lost = None
    bar = mh.progress(not quiet and sys.stderr.isatty())
    with warnings.catch_warnings(), bar, computing_on(device):
        warnings.simplefilter("error", Unsaved)
        try:
            run = mh.train(
                model,
                dataset,
                rule=RULES[optimizer](step_size),
                num_steps=steps,
                loss=loss,
                test=test,
                dtype=dtype,
                devices=number,
                checkpoint=out,
                resume=resume,
                stop=stop,
            )
        except Unsaved as error:
            run, lost = error.run, error
    if json_lines:
        _print_json(run)
    else:
        show(run)
    if lost is not None and out is not None:
        say(f"error: {str(lost).partition('; ')[0]}")
        out = _saved_elsewhere(run, out)
    elif out is not None:
        tell(f"saved: {out}")
    if run.status == "interrupted":
        remedy = f"continue with --resume {out}" if out else "--out FILE makes a run resumable"
        tell(f"interrupted; {remedy}")
        return INTERRUPTED
    if trouble := went_wrong(run, step_size):
        say(f"error: {trouble}")
        return DIVERGED
    return 0 if lost is None else UNSAVED


def went_wrong(run, step_size: float) -> str:
    """Why a finished run has failed: its loss is not finite, or higher than at the start; empty if it has not."""
    if run.status == "diverged" and not len(run.steps):
        return "the loss is not finite at the start; scale the tokens down, or pass --dtype float64"
    if run.status == "diverged":
        return f"diverged after step {run.last_step}; try --step-size {step_size / 10:g}"
    first, last = float(run.train_loss[0]), float(run.train_loss[-1])
    if last > first:
        return f"the train loss rose from {first:.4g} to {last:.4g}; try --step-size {step_size / 10:g}"
    return ""


def _saved_elsewhere(run, out: Path) -> Path | None:
    """Save a run elsewhere than `out`: where the user says if the terminal can ask, else in the temporary folder."""
    place = Path(tempfile.gettempdir()) / f"{out.stem}-{time.strftime('%Y%m%d-%H%M%S')}.npz"
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    while True:
        answer = ""
        if asks:
            print(f"save the run to another file [{place}]: ", end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline().strip()
        try:
            run.save(answer or place)
        except (OSError, ValueError) as error:
            say(f"error: {why_not(answer or place, error)}")
            if not answer:
                say("the run is not saved; free some space and run the same command again")
                return None
        else:
            say(f"saved: {answer or place}")
            return Path(answer or place)


def _print_json(run) -> None:
    copies = run.start.copies
    heads = (
        {}
        if copies is None
        else {"heads": write_heads(float(copies.sum())), "classes": len(copies)}
    )
    head = heads | {"status": run.status}
    print(json.dumps(head | {"last_step": run.last_step} | run.settings))
    columns = {"step": run.steps} | {name: getattr(run, name) for name in RECORDS[1:]}
    if run.attention_mass is not None:
        columns["attention_mass"] = run.attention_mass
    columns |= run.observed
    columns = {name: values.tolist() for name, values in columns.items() if values is not None}
    for row in zip(*columns.values(), strict=True):
        print(json.dumps({name: _plain(value) for name, value in zip(columns, row, strict=True)}))


def _plain(value):
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
