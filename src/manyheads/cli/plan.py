"""`manyheads plan`: how many heads, which step size, how many steps."""

from __future__ import annotations

import json as format_json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

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
    out: Annotated[Path | None, tyro.conf.arg(metavar="PLAN.json")] = None,
    seed: Seed = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Plan a training run: what each version of the theory requires, and what trial runs show to be enough.

    The plan is made on a part of the data that is split off and should not be trained on, so that the theory's
    statements about generalization can apply to the rest. Exit code 3 if the theory is silent on these data and this
    start.

    With trials, the plan ends with one recommendation, made on the same part of the data. If Theorem 1 is silent or
    requires more than 100,000 heads, it also gives another setting if the forecast can guarantee one. `--out` writes
    the guaranteed setting to a file: `manyheads train --plan` trains with it on the sequences it covers, and
    `manyheads certify --plan` confirms the guarantee.

    Examples:
        manyheads plan
        manyheads plan my-data.npz --out plan.json
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
        trials: make no trial runs and no recommendation.
        positive: the label that becomes +1, against all others; by default the larger of two.
        out: write the plan to this file, for `train --plan` and `certify --plan`.
        seed: seed of everything random.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import jax

    from manyheads.cli.tasks import whole
    from manyheads.data.files import checked_path
    from manyheads.estimator.advice import FEWEST, MOST_ADVISED, recommend
    from manyheads.estimator.clock import Clock, memory, plan_stages
    from manyheads.estimator.promise import PlanFile, instead_of
    from manyheads.estimator.search import CANDIDATES, Wishes
    from manyheads.estimator.sharp import Proved
    from manyheads.theory.deora2023.planner import (
        GAUSSIAN_HEADS,
        MEASURED_HEADS,
        MOST_SAMPLED,
        plan,
    )

    if out is not None:
        checked_path(out, "--out")
    keys = jax.random.split(jax.random.key(seed), 5)
    dataset = whole(data, keys, examples, positive)
    progress = None
    if not quiet and 0 < planning_share < 1:
        count = round(planning_share * len(dataset))
        covered = count - count // 2 if start == "first_phase" else count
        looked, advised = min(covered, MOST_SAMPLED), min(count, MOST_ADVISED)
        classes = (GAUSSIAN_HEADS,) if start == "gaussian" else (2,) * len(MEASURED_HEADS)
        stages = plan_stages(dataset, looked, advised, CANDIDATES, classes)
        progress = Clock(stages if trials else stages[:2], tell)
        if ahead := progress.estimate(
            f"planning on {count:,} of {len(dataset):,} sequences", memory(dataset, looked)
        ):
            print(ahead, file=sys.stderr)
    made_with: dict[str, Any] = dict(
        decoder=decoder, loss=loss, key=keys[4], planning_share=planning_share
    )
    result = plan(
        dataset,
        start=start,
        target_loss=target_loss,
        num_steps=steps,
        trials=trials,
        progress=progress,
        **made_with,
    )
    advice = None
    if trials and result.num_planning >= FEWEST:
        planning, _ = dataset.split(result.num_planning, key=jax.random.split(keys[4], 3)[0])
        planning = planning[:MOST_ADVISED]  # drawn at random already
        advice = recommend(
            planning,
            wishes=Wishes(decoder=decoder),
            seed=seed,
            demands=result.demands,
            progress=progress,
        )
    instead = None
    if trials:
        instead = instead_of(
            result, dataset, seed=seed, tell=progress or (lambda text: None), **made_with
        )
    proved = instead if isinstance(instead, Proved) else None
    if out is not None:
        PlanFile.of(
            result, dataset, data=data, seed=seed, positive=positive, instead=proved, **made_with
        ).save(out)
    if not quiet:
        hush()
    if json:
        told = result.to_dict() | ({} if advice is None else {"recommendation": advice.to_dict()})
        told |= {} if proved is None else {"promised": asdict(proved)}
        print(format_json.dumps(told, indent=2, allow_nan=False))
    else:
        parts = [str(result), "" if advice is None else str(advice)]
        if instead is not None:
            parts.append(str(proved) if proved else f"No other setting is promised: {instead}.")
        show("\n\n".join(filter(None, parts)))
    return 3 if result.silent and proved is None else 0
