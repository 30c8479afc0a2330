"""`manyheads forecast`: what the next steps of a run are proved to reach."""

from __future__ import annotations

import json as writer
from typing import Annotated

import tyro

from manyheads.cli.options import Data, Number, show, telling


def command(
    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    *,
    data: Data = None,
    reduce: float = 2.0,
    step_size: Number = None,
    first: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Prove how far further steps of gradient descent reduce the loss of a saved run.

    RUN is a run of plain gradient descent saved by `manyheads train --out`. It knows which
    sequences it was trained on, so `--data` names the whole file. The guarantee holds at any number
    of heads, for this step size and every smaller one. Exit code 3 if the factor asked for is not
    certified.

    Examples:
        manyheads forecast run.npz --data my-data.npz
        manyheads forecast run.npz --reduce 10 --step-size 0.05
        manyheads forecast run.npz --first

    Args:
        run: a run saved by `manyheads train --out`.
        data: the file or the data source it was trained on; by default the one that the run names.
        reduce: the factor by which the loss should fall.
        step_size: step size of the further steps; by default that of the run.
        first: find the earliest step of the run from which the forecast certifies the factor.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import manyheads as mh
    from manyheads.cli.data import stored_run

    if first and step_size is not None:
        raise ValueError(
            "--step-size and --first exclude each other: --first uses the run's own; leave one out."
        )
    saved, _, dataset, _ = stored_run(run, data)
    step, found = saved.last_step, None
    with telling(quiet) as tell:
        if first:
            tell("searching for the first certified step")
            earliest = mh.theory.first_forecast(saved, dataset, reduce=reduce)
            step, found = (step, None) if earliest is None else earliest
        if found is None:
            found = mh.forecast(saved, dataset, step_size=step_size, reduce=reduce)
    if json:
        print(writer.dumps({"step": step} | found.to_dict()))
    else:
        show(f"Step {step} of {saved.last_step}. {found}")
    return 0 if found.speaks else 3
