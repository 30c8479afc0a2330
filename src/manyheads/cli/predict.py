"""`manyheads predict`: predict labels with a fitted classifier."""

from __future__ import annotations

import json as format_json
from pathlib import Path
from typing import Annotated

import tyro

from manyheads.cli.colors import say
from manyheads.cli.numbers import Seed


def command(
    model: Annotated[Path, tyro.conf.Positional],
    data: Annotated[str, tyro.conf.Positional],
    *,
    examples: int = 200,
    seed: Seed = 0,
    json: bool = False,
) -> int:
    """Print one label per sequence, and the error to stderr if the data have labels of the same names.

    MODEL is a file written by `manyheads fit -o`. DATA is as for `manyheads fit`, but an .npz file or a table may lack
    labels.

    Examples:
        manyheads predict model.safetensors new-data.npz
        manyheads predict digits.safetensors digits --json

    Args:
        model: a file written by `manyheads fit`.
        data: the file or the data source.
        examples: sequences of a generated task.
        seed: seed of a generated task.
        json: print the label and the score of each sequence as JSON, one line each.
    """
    import jax
    import numpy as np

    from manyheads.cli.tasks import sequences
    from manyheads.estimator.fitted import Fitted

    fitted = Fitted.load(model)
    tokens, mask, names = sequences(data, jax.random.split(jax.random.key(seed), 5), examples)
    scores, labels = fitted.scores((tokens, mask)), fitted.predict((tokens, mask))
    for label, score in zip(labels.tolist(), scores.tolist(), strict=True):
        print(format_json.dumps({"label": label, "score": score}) if json else label)
    if names is not None:
        if set(names) <= set(fitted.label_names):
            say(f"error: {np.mean(labels != names):.1%} of {len(names)} sequences")
        else:
            theirs, ours = ", ".join(np.unique(names)[:6]), ", ".join(fitted.label_names)
            say(f"no error computed: the data have the labels {theirs}, the model has {ours}")
    return 0
