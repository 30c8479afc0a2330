"""`manyheads train`: one run on a data source or a file, saved as a trajectory."""

from __future__ import annotations

import contextlib
import json as writer
import math
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from manyheads.cli.options import Count, File, Heads, Label, Number, show, write_heads

# exit codes
FAILED, INTERRUPTED = 1, 130


def command(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = "mixture",
    *,
    heads: Heads = 8,
    start: Literal["first_phase", "zero", "gaussian"] = "first_phase",
    scale: Number = None,
    decoder: Literal["full", "pooled", "last"] = "full",
    steps: int = 1000,
    step_size: float = 0.1,
    optimizer: Literal["gd", "normalized", "polyak", "adam"] = "gd",
    loss: Literal["logistic", "hyperbolic"] = "logistic",
    examples: Count = None,
    positive: Label = None,
    first_phase_examples: int = 200,
    test_examples: int = 300,
    seed: int = 0,
    dtype: Annotated[
        Literal["float32", "float64"] | None, tyro.conf.arg(metavar="{float32,float64}")
    ] = None,
    devices: Annotated[str | None, tyro.conf.arg(metavar="{all,INT}")] = None,
    out: File = None,
    resume: File = None,
    until: Annotated[Literal["certified"] | None, tyro.conf.arg(metavar="certified")] = None,
    forecast: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Train a multi-head attention classifier by full-batch descent, and keep the trajectory.

    DATA is an .npz file with arrays `tokens` (n, T, d) and `labels` (two values), a .csv or
    .parquet file, two .npy files as X.npy,y.npy, or a data source: `mixture`, the paper's tokenized
    mixture; `planted`, labels from a planted attention model; `random_labels`; `digits`, two
    handwritten digits. A file and digits are split: `--test-examples` sequences, and for the first
    phase `--first-phase-examples`, are set aside before training (at most a quarter of the data
    each). The run keeps which. Ctrl-C saves what was done; `--resume FILE` continues it. Exit code
    1 if the loss ends higher than it began, or is not finite.

    Examples:
        manyheads train my-data.npz --seed 3 --out run.npz
        manyheads train mixture --heads 10^12 --steps 2000 --out run.npz
        manyheads train mixture --heads 10^12 --steps 4000 --out run.npz --resume run.npz
        manyheads train my-data.npz --start zero --heads 1 --step-size 0.5 --json
        manyheads train mixture --step-size 0.5 --until certified

    Args:
        data: a file or a data source.
        heads: number of heads; with starts of equal heads (first_phase, zero) any number costs the
            same.
        start: where descent begins; first_phase is the paper's one randomized step on fresh data.
        scale: norm of each Gaussian head's two weight matrices (only with --start gaussian; 1 if
            not given).
        decoder: one readout row per token, one for all tokens, or one for the last token.
        steps: number of steps K.
        step_size: step size eta.
        optimizer: the update rule.
        loss: the loss of the margin.
        examples: training sequences to draw of a generated task (100 if not given); a file is used
            whole.
        positive: the label that becomes +1, against all others; by default the larger of two.
        first_phase_examples: fresh sequences for the first phase.
        test_examples: sequences for the test loss; 0 leaves it out.
        seed: seed of everything random.
        dtype: precision of training; by default float32, from 10^6 heads on float64.
        devices: split the sequences over all devices, or this many; by default over the cores that
            make it faster.
        out: save the trajectory to this .npz file.
        resume: continue this trajectory; pass the same options.
        until: end the run early, once the loss is proved to halve, as by `manyheads forecast`.
        forecast: show in the progress line what is proved about the coming steps, and record it.
        json: print the records as JSON, one line each, instead of a table.
        quiet: print no progress and no messages.
    """
    if "XLA_FLAGS" not in os.environ:
        from manyheads.training.devices import use_cores

        # JAX runs already
        with contextlib.suppress(ValueError):
            use_cores()
    import manyheads as mh
    from manyheads.cli.data import split
    from manyheads.training.rules import RULES
    from manyheads.training.trajectory import Unsaved

    if out is not None:
        _check_out(out, data)
    first = first_phase_examples if start == "first_phase" else 0
    if min(first_phase_examples, test_examples) < 0 or (start == "first_phase" and not first):
        raise ValueError(
            f"--first-phase-examples {first_phase_examples} must be 2 or more, --test-examples "
            f"{test_examples} must be "
            "0 or more."
        )
    counts = {"first phase": first, "test": test_examples}
    parts = split(data, seed, counts, examples, positive)
    dataset = parts["training"]
    model = _start(start, heads, scale, parts, seed=seed, decoder=decoder, loss=loss)
    if not quiet:
        for part, sequences in parts.items():
            print(f"{part}: {sequences}", file=sys.stderr)
    stop = mh.Certified(ends=until is not None) if until or forecast else None
    lost = None
    with warnings.catch_warnings(), mh.progress(not quiet and sys.stderr.isatty()):
        warnings.simplefilter("error", Unsaved)
        try:
            run = mh.train(
                model,
                dataset,
                rule=RULES[optimizer](step_size),
                num_steps=steps,
                loss=loss,
                test=parts.get("test"),
                dtype=dtype,
                devices=int(devices) if devices and devices.isdecimal() else devices,
                checkpoint=out,
                resume=resume,
                stop=stop,
            )
        except Unsaved as error:
            run, lost = error.run, error
    if json:
        _print_json(run)
    else:
        show(run)
    if lost is not None and out is not None:
        # The run is not lost with the disk that it was meant for.
        out = Path(tempfile.mkdtemp(prefix="manyheads-")) / out.name
        run.save(out)
        print(f"error: {str(lost).partition(';')[0]}; it is in {out}", file=sys.stderr)
    elif out is not None and not quiet:
        print(f"saved: {out}", file=sys.stderr)
    if run.status == "interrupted":
        remedy = f"continue with --resume {out}" if out else "--out FILE makes a run resumable"
        print(f"interrupted; {remedy}", file=sys.stderr)
        return INTERRUPTED
    if trouble := _trouble(run, step_size):
        print(f"error: {trouble}", file=sys.stderr)
    return FAILED if trouble or lost is not None else 0


def _check_out(out: Path, data: str) -> None:
    """Refuse, before a long run, a file that cannot be its file."""
    if out.suffix.lower() != ".npz" and not out.is_dir():
        raise ValueError(
            f"--out {out} must end in .npz, the format of a trajectory; pass "
            f"{out.with_suffix('.npz')}."
        )
    if any(Path(path).exists() and out.exists() and out.samefile(path) for path in data.split(",")):
        raise ValueError(f"--out {out} would overwrite the data; pass another file.")


def _start(
    start: str,
    heads: float,
    scale: Number,
    parts: dict[str, Any],
    *,
    seed: int,
    decoder: str,
    loss: str,
) -> Any:
    """The model at step 0."""
    from manyheads.cli.data import key_of
    from manyheads.training import start as starts

    if scale is not None and start != "gaussian":
        raise ValueError(
            f"--scale {scale:g} is for --start gaussian only; leave it out, or choose that start."
        )
    key, dataset = key_of(seed, "start"), parts["training"]
    shape: dict[str, Any] = {"num_tokens": dataset.num_tokens, "dim": dataset.dim}
    if start == "first_phase":
        return starts.first_phase(parts["first phase"], heads, key=key, decoder=decoder, loss=loss)
    if start == "zero":
        return starts.zero_start(heads, decoder=decoder, **shape)
    size = 1.0 if scale is None else scale
    shape |= {"key_query_scale": size, "readout_scale": size}
    return starts.gaussian_start(heads, key=key, decoder=decoder, **shape)


def _trouble(run: Any, step_size: float) -> str:
    """Why a finished run has failed: its loss is not finite, or higher than at the start; empty if it has not."""
    smaller = f"try --step-size {step_size / 10:g}"
    if run.status == "diverged" and not len(run.steps):
        return "the loss is not finite at the start; scale the tokens down, or pass --dtype float64"
    if run.status == "diverged":
        return f"diverged after step {run.last_step}; {smaller}"
    first, last = float(run.train_loss[0]), float(run.train_loss[-1])
    return f"the train loss rose from {first:.4g} to {last:.4g}; {smaller}" if last > first else ""


def _print_json(run: Any) -> None:
    """The run in one line, then its records, one line each; what is not finite is null."""
    facts = {"status": run.status, "last_step": run.last_step} | run.settings
    copies = run.start.copies
    if copies is not None:
        facts |= {"heads": write_heads(float(copies.sum())), "classes": len(copies)}
    print(writer.dumps(facts))
    for row in run.to_pandas().reset_index().to_dict("records"):
        # JSON has no NaN and no infinity.
        finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
        print(writer.dumps(finite))
