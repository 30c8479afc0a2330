"""`manyheads fit`: fit a classifier to the user's own sequences and give one recommendation."""

from __future__ import annotations

import json as format_json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from manyheads._names import DECODERS, OPTIMIZERS
from manyheads.cli.colors import hush, say, show, tell
from manyheads.cli.numbers import On, Seed, auto, heads, named

AUTO = "auto"
DIVERGED = 1  # exit code


def command(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = "digits",
    *,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="MODEL")] = None,
    heads: Annotated[float | str, auto("N", heads)] = AUTO,
    start: Annotated[str, named(("zero", "first_phase", "gaussian", AUTO))] = AUTO,
    step_size: Annotated[float | str, auto("NUMBER", float)] = AUTO,
    steps: Annotated[int | str, auto("INT", int)] = AUTO,
    optimizer: Annotated[str, named(OPTIMIZERS)] = "gd",
    decoder: Annotated[str, named(DECODERS)] = "full",
    scale: Annotated[str, named(("rms", "standard", "none"))] = "rms",
    positions: Annotated[str, named(("none", "one-hot", "sinusoidal"))] = "none",
    intercept: On = True,
    held_out: float = 0.2,
    examples: int = 200,
    positive: Annotated[str | None, tyro.conf.arg(metavar="LABEL")] = None,
    theory: On = True,
    seed: Seed = 0,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Fit a multi-head attention classifier to sequences, and say in plain words how good it is.

    DATA is an .npz file with arrays `tokens` (n, T, d) and `labels`, a .csv or .parquet file with one row per token
    (columns `sequence`, `label`, features), two .npy files (tokens, labels), or a data source such as digits or
    mixture. With more than two classes, one model per class is fitted against the rest. A fifth of each class is
    set aside before anything is chosen; the error there is printed with its interval, beside that of logistic
    regression. The classifier is saved as a safetensors file, which `manyheads predict` reads.

    Examples:
        manyheads fit digits -o digits.safetensors
        manyheads fit my-data.csv -o model.safetensors --positions one-hot
        manyheads fit X.npy y.npy --heads 8 --start gaussian --no-theory
        manyheads fit my-data.npz --positive spam

    Args:
        data: the file or the data source.
        out: save the classifier to this file.
        heads: number of heads; by default chosen on held-out data, as are start and number of steps.
        start: where descent begins.
        step_size: step size; by default the largest power of two at which the loss falls steadily.
        steps: largest number of steps.
        optimizer: the update rule.
        decoder: one readout row per token, one for all tokens, or one for the last token.
        scale: divide tokens by their root mean square norm, standardize every feature, or leave them unchanged.
        positions: features that encode the position of a token.
        intercept: do not give every token a constant feature.
        held_out: share of each class that is set aside to measure the error.
        examples: sequences of a generated task.
        positive: the label that becomes +1, against all others; by default the larger of two.
        theory: do not report what the theory guarantees, which saves time.
        seed: seed of everything random.
        json: print JSON instead of text.
        quiet: no progress.
    """
    import jax

    from manyheads.cli.tasks import classes, use_all_cores
    from manyheads.data.files import checked_path
    from manyheads.estimator.advice import MOST_JUDGED, Diverged, recommend
    from manyheads.estimator.clock import Clock, memory, search_stages
    from manyheads.estimator.fitted import digest
    from manyheads.estimator.search import Wishes

    if out is not None:
        checked_path(out, "--out")
    use_all_cores()
    keys = jax.random.split(jax.random.key(seed), 5)
    wishes = Wishes(heads, start, step_size, steps, optimizer, decoder)
    dataset, several = classes(data, keys, examples, positive)
    progress = None
    if not quiet:
        many = (
            ""
            if several is None
            else f"{dataset.name}: {len(dataset)} sequences of {len(several[1])} classes"
        )
        tell(many or str(dataset))
        used = round((1 - held_out) * len(dataset)) if 0 < held_out < 1 else len(dataset)
        progress = Clock(search_stages(dataset, used, wishes.candidates), tell)
        if ahead := progress.estimate(
            f"fitting about {used:,} sequences", memory(dataset, min(used, MOST_JUDGED))
        ):
            print(ahead, file=sys.stderr)
    try:
        found = recommend(
            dataset,
            classes=several,
            wishes=wishes,
            scale=scale,
            positions=positions,
            intercept=intercept,
            held_out=held_out,
            seed=seed,
            theory=theory,
            progress=progress,
        )
    except Diverged as error:
        say(f"error: {error}")
        return DIVERGED
    if not quiet:
        hush()
    if out is not None:
        found.fitted.facts.update(
            data=dataset.name, digest=digest(dataset.tokens, dataset.mask), **found.to_dict()
        )
        found.fitted.save(out)
    print(format_json.dumps(found.to_dict(), indent=2, allow_nan=False)) if json else show(found)
    if out is not None and not json:
        show(f"Saved to {out}; use it with `manyheads predict {out} DATA`.")
    return 0
