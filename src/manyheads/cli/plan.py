"""`manyheads plan`: how many heads, which step size, how many steps."""

from __future__ import annotations

import json as writer
from typing import Annotated, Literal

import tyro

from manyheads.cli.options import Count, Label, show, telling


def command(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = "mixture",
    *,
    target_loss: float = 0.1,
    steps: Count = None,
    start: Literal["first_phase", "zero", "gaussian"] = "first_phase",
    decoder: Literal["full", "pooled", "last"] = "full",
    loss: Literal["logistic", "hyperbolic"] = "logistic",
    planning_share: float = 0.5,
    examples: int = 200,
    no_trials: bool = False,
    positive: Label = None,
    seed: int = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Plan a run: how many heads, which step size, how many steps.

    It says what each version of the theory requires, and what trial runs show to be enough. The
    plan is made on a part of the data that is split off and should not be trained on, so that
    statements about generalization can apply to the rest. Exit code 3 if the theory is silent on
    these data and this start.

    Examples:
        manyheads plan my-data.npz --target-loss 0.2
        manyheads plan my-data.npz --start gaussian --no-trials --json

    Args:
        data: .npz, .csv or .parquet file, two .npy files as X.npy,y.npy, or a data source such as
            mixture, digits.
        target_loss: the train loss to reach, below that of a score of zero (log 2 for the logistic
            loss).
        steps: number of steps our version of the theorem may use; by default it is chosen too.
        start: where descent begins.
        decoder: one readout row per token, one for all tokens, or one for the last token.
        loss: loss function of the margin.
        planning_share: share of the sequences used for planning.
        examples: sequences of a generated task.
        no_trials: make no trial runs.
        positive: the label that becomes +1, against all others; by default the larger of two.
        seed: seed of everything random.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import manyheads as mh
    from manyheads.cli.data import key_of, whole

    dataset = whole(data, seed, examples, positive)
    with telling(quiet) as tell:
        result = mh.theory.plan(
            dataset,
            start=start,
            target_loss=target_loss,
            num_steps=steps,
            decoder=decoder,
            loss=loss,
            planning_share=planning_share,
            key=key_of(seed, "start"),
            trials=not no_trials,
            progress=tell,
        )
    if json:
        print(writer.dumps(result.to_dict(), indent=2, allow_nan=False))
    else:
        show(result)
    return 3 if result.silent else 0
