"""`manyheads plan`: how many heads, which step size, how many steps."""

from __future__ import annotations

import json as format_json
from typing import Annotated

import tyro

from manyheads._names import DECODERS
from manyheads.cli.colors import hush, show, tell
from manyheads.cli.numbers import On, Seed, named
from manyheads.model.loss import LOSSES


def command(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = "mixture",
    *,
    target_loss: float = 0.1,
    steps: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None,
    start: Annotated[str, named(("first_phase", "zero", "gaussian"))] = "first_phase",
    decoder: Annotated[str, named(DECODERS)] = "full",
    loss: Annotated[str, named(LOSSES)] = "logistic",
    planning_share: float = 0.5,
    examples: int = 200,
    trials: On = True,
    positive: Annotated[str | None, tyro.conf.arg(metavar="LABEL")] = None,
    seed: Seed = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Plan a training run: what each version of the theory requires, and what trial runs show to be enough.

    The plan is made on a part of the data that is split off and should not be trained on, so that the theory's
    statements about generalization can apply to the rest. Exit code 3 if the theory is silent on these data and this
    start.

    Examples:
        manyheads plan
        manyheads plan my-data.npz --target-loss 0.2
        manyheads plan my-data.npz --start gaussian --no-trials --json

    Args:
        data: .npz, .csv or .parquet file, two .npy files (tokens, labels), or a data source such as mixture, digits.
        target_loss: the train loss to reach, below that of a score of zero (log 2 for the logistic loss).
        steps: number of steps our version of the theorem may use; by default it is chosen too.
        start: where descent begins.
        decoder: one readout row per token, one for all tokens, or one for the last token.
        loss: loss function of the margin.
        planning_share: share of the sequences used for planning.
        examples: sequences of a generated task.
        trials: make no trial runs.
        positive: the label that becomes +1, against all others; by default the larger of two.
        seed: seed of everything random.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import jax

    from manyheads.cli.tasks import whole
    from manyheads.theory.deora2023.planner import plan

    keys = jax.random.split(jax.random.key(seed), 5)
    result = plan(
        whole(data, keys, examples, positive),
        start=start,
        target_loss=target_loss,
        num_steps=steps,
        decoder=decoder,
        loss=loss,
        planning_share=planning_share,
        key=keys[4],
        trials=trials,
        progress=None if quiet else tell,
    )
    if not quiet:
        hush()
    if json:
        print(format_json.dumps(result.to_dict(), indent=2, allow_nan=False))
    else:
        show(result)
    return 3 if result.silent else 0
