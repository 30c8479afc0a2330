"""`manyheads train`: one run, on the user's data or on a generated task, kept as a trajectory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyheads.cli.numbers import Heads, write_heads
from manyheads.cli.tasks import parts

RECORDS = ("step", "train_loss", "test_loss", "margin", "gradient_norm", "distance", "readout_norm")


def command(
    data: Annotated[str, tyro.conf.Positional] = "mixture",
    *,
    heads: Heads = 8,
    start: Literal["first-phase", "zero", "gaussian"] = "first-phase",
    scale: float = 1.0,
    decoder: Literal["full", "pooled", "last"] = "full",
    steps: int = 1000,
    step_size: float = 0.1,
    optimizer: Literal["gd", "normalized", "polyak", "adam"] = "gd",
    loss: Literal["logistic", "hyperbolic"] = "logistic",
    examples: int = 100,
    first_phase_examples: int = 200,
    test_examples: int = 300,
    seed: int = 0,
    dtype: Literal["float32", "float64"] | None = None,
    device: str | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    json_lines: Annotated[bool, tyro.conf.arg(name="json")] = False,
    quiet: bool = False,
) -> int:
    """Train a multi-head attention classifier by full-batch descent, and keep the trajectory.

    DATA is an .npz file with arrays `tokens` (n, T, d) and `labels` (two values), or a generated task: `mixture`, the
    paper's tokenized mixture; `planted`, labels from a planted attention model; `random`, random labels. Your own data
    are split: `--first-phase-examples` and `--test-examples` sequences are set aside before training (at most a quarter
    of the data each). Ctrl-C keeps what was done; `--resume FILE` continues it.

    Examples:
        manyheads train
        manyheads train mixture --heads 10^12 --steps 2000 --out run.npz
        manyheads train my-data.npz --start zero --heads 1 --step-size 0.5 --json

    Args:
        data: .npz file, or mixture, planted, random.
        heads: number of heads; with equal starts (first-phase, zero) any number costs the same.
        start: where descent begins; first-phase is the paper's one randomized step on fresh data.
        scale: norm of each Gaussian head's two weight matrices (only with --start gaussian).
        decoder: one readout row per token, one for all tokens, or one for the last token.
        steps: number of steps K.
        step_size: step size eta.
        optimizer: the rule of descent.
        loss: the loss of the margin.
        examples: training sequences of a generated task.
        first_phase_examples: fresh sequences for the first phase.
        test_examples: sequences for the test loss; 0 leaves it out.
        seed: seed of everything random.
        dtype: float32 or float64; by default float32, from 10^6 heads on float64.
        device: cpu or gpu; by default what JAX finds.
        out: where to save the trajectory (.npz).
        resume: trajectory to continue, with the same options.
        json_lines: print the records as JSON instead of a table.
        quiet: no progress bar and no talk.
    """
    import jax

    import manyheads as mh

    keys = jax.random.split(jax.random.key(seed), 5)
    if out is not None and not out.resolve().parent.is_dir():
        raise ValueError(f"--out {out}: the folder {out.resolve().parent} does not exist; make it first.")
    _, fresh, dataset, test = parts(data, keys, examples, first_phase_examples, test_examples)
    if start == "first-phase":
        model = mh.first_phase(fresh, heads, decoder=decoder, loss=loss)
    elif start == "zero":
        model = mh.zero_start(heads, num_tokens=dataset.num_tokens, dim=dataset.dim, decoder=decoder)
    else:
        model = mh.gaussian_start(
            heads, num_tokens=dataset.num_tokens, dim=dataset.dim, decoder=decoder, key=keys[4],
            key_query_scale=scale, readout_scale=scale,
        )  # fmt: skip
    if not quiet:
        print(f"{dataset}", file=sys.stderr)
    run = mh.train(
        model, dataset, step_size=step_size, num_steps=steps, optimizer=optimizer, loss=loss, test=test, dtype=dtype,
        device=device, progress=not quiet and sys.stderr.isatty(), checkpoint=out, resume=resume,
    )  # fmt: skip
    if json_lines:
        _print_json(run, seed)
    else:
        print(run)
    if not quiet:
        if out is not None:
            print(f"saved: {out}", file=sys.stderr)
        if run.status == "interrupted":
            print(
                f"stopped by the keyboard; continue with --resume {out or 'FILE (pass --out next time)'}",
                file=sys.stderr,
            )
        if run.status == "diverged":
            print(f"diverged after step {run.last_step}; try --step-size {step_size / 10:g}", file=sys.stderr)
    return 0


def _print_json(run, seed: int) -> None:
    head = {
        "heads": write_heads(run.start.num_heads),
        "classes": run.start.num_classes,
        "status": run.status,
        "seed": seed,
    }
    print(json.dumps(head | {"last_step": run.last_step} | run.settings))
    columns = {"step": run.steps} | {name: getattr(run, name) for name in RECORDS[1:]}
    if run.attention_mass is not None:
        columns["attention_mass"] = run.attention_mass
    columns = {name: values.tolist() for name, values in columns.items() if values is not None}
    for row in zip(*columns.values(), strict=True):
        print(json.dumps(dict(zip(columns, row, strict=True))))
