"""`manyheads predict`: predict labels with a fitted classifier."""

from __future__ import annotations

import json as format_json
import math
from pathlib import Path
from typing import Annotated, Any

import tyro

from manyheads.cli.colors import say
from manyheads.cli.numbers import Seed


def command(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    *,
    examples: int = 200,
    seed: Seed = 0,
    json: bool = False,
) -> int:
    """Print one label per sequence, and to stderr how many are wrong if the data have labels of the same names.

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
        json: print label, probability of that label and score of each sequence as JSON, one line each; labels that are
            all numbers are written as numbers.
    """
    import jax
    import numpy as np

    from manyheads.cli.tasks import sequences
    from manyheads.estimator.fitted import Fitted

    fitted = Fitted.load(model)
    tokens, mask, names = sequences(data, jax.random.split(jax.random.key(seed), 5), examples)
    fitted.check_width(tokens, data, model)
    scores, codes = fitted.scores((tokens, mask)), fitted.codes((tokens, mask))
    chances, own = fitted.probabilities((tokens, mask)), _own_types(fitted.label_names)
    for code, score, chance in zip(codes.tolist(), scores.tolist(), chances.tolist(), strict=True):
        row = {"label": own[code], "probability": chance[code], "score": score}
        print(format_json.dumps(row) if json else fitted.label_names[code])
    if names is not None:
        known = {name: fitted.code_of(name) for name in np.unique(names).tolist()}
        if None in known.values():
            theirs, ours = ", ".join(list(known)[:6]), ", ".join(fitted.label_names)
            say(f"not compared: the data have the labels {theirs}, the model has {ours}")
        else:
            wrong, num = (
                int(
                    sum(
                        known[name] != code
                        for name, code in zip(names.tolist(), codes, strict=True)
                    )
                ),
                len(names),
            )
            seen = fitted.trained_on(tokens, mask)
            told = f"; {seen} of them were trained on" if seen else ""
            say(f"wrong on {wrong} of {num} sequences ({wrong / num:.1%}){told}")
    return 0


def _own_types(names: tuple[str, ...]) -> list[Any]:
    """Labels as numbers where all of them are finite numbers."""
    for kind in (int, float):
        try:
            values = [kind(name) for name in names]
        except ValueError:
            continue
        if all(abs(value) < math.inf for value in values):
            return values
    return list(names)
