"""`manyheads forecast`: what the next steps of a run are proved to reach."""

from __future__ import annotations

import json as writer
from typing import Annotated

import tyro

from manyheads.cli.colors import hush, show, tell
from manyheads.cli.numbers import Seed


def command(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    *,
    data: Annotated[str | None, tyro.conf.arg(metavar="DATA")] = None,
    reduce: float = 2.0,
    step_size: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None,
    first: bool = False,
    examples: int = 100,
    first_phase_examples: int = 200,
    test_examples: int = 300,
    seed: Seed = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Prove, from the last parameters of a saved run, how far further gradient descent steps reduce the loss.

    RUN is a run of plain gradient descent saved by `manyheads train --out`; `--data` names what it was trained on, with
    the same `--seed` and numbers of examples. The guarantee holds at any number of heads, for this step size and every
    smaller one. Exit code 3 if the factor asked for is not certified.

    Examples:
        manyheads forecast run.npz --data mixture
        manyheads forecast run.npz --data my-data.npz --reduce 10 --step-size 0.05
        manyheads forecast run.npz --data my-data.npz --first

    Args:
        run: a trajectory.
        data: the data it was trained on.
        reduce: the factor by which the loss should fall.
        step_size: step size of the further steps; by default that of the run.
        first: find the earliest step of the run from which the forecast certifies the factor.
        examples: training sequences of a generated task.
        first_phase_examples: fresh sequences for the first phase, as in `train`.
        test_examples: sequences that `train` set aside for the test loss.
        seed: seed of everything random.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import jax

    import manyheads as mh
    from manyheads.cli.tasks import holds_run, stored_run

    if not holds_run(run):
        raise ValueError(f"{run!r} is not a run; pass a file written by `manyheads train --out`.")
    keys = jax.random.split(jax.random.key(seed), 5)
    saved, _, dataset, _ = stored_run(
        run, data, keys, examples, first_phase_examples, test_examples
    )
    step, found = saved.last_step, None
    if first:
        if step_size is not None:
            raise ValueError(
                "--step-size and --first exclude each other: --first uses the run's own; leave one out."
            )
        if not quiet:
            tell("searching for the first certified step")
        earliest = mh.first_forecast(saved, dataset, reduce=reduce)
        step, found = earliest if earliest is not None else (step, None)
    if found is None:
        found = mh.forecast(saved, dataset, step_size=step_size, reduce=reduce)
    if not quiet:
        hush()
    if json:
        print(writer.dumps({"step": step} | found.to_dict()))
    else:
        show(f"Step {step} of {saved.last_step}. {found}")
    return 0 if found.speaks else 3
