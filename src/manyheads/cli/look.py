"""`manyheads look`: what the heads of a fitted classifier look at."""

from __future__ import annotations

import json as format_json
from pathlib import Path
from typing import Annotated

import tyro

from manyheads.cli.colors import encodes, say
from manyheads.cli.numbers import Seed, auto

PICTURE = ".svg"


def command(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    *,
    count: int = 5,
    skip: int = 0,
    columns: Annotated[int | str, auto("INT", int)] = "auto",
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE.svg")] = None,
    examples: int = 200,
    seed: Seed = 0,
    json: bool = False,
) -> int:
    """Show what the heads look at in a few sequences: the darker a token, the more attention it gets.

    MODEL is a file written by `manyheads fit -o`, DATA is as for `manyheads predict`. The first block of a sequence has
    its tokens, darker if they are longer; then comes one block for every head, or for every kind of heads that are
    equal. Tokens are numbered from 0. With more than two classes, the model of the predicted class is shown.

    Examples:
        manyheads look digits.safetensors digits
        manyheads look model.safetensors new-data.npz --count 3 -o attention.svg

    Args:
        model: a file written by `manyheads fit`.
        data: the file or the data source.
        count: how many sequences to show.
        skip: how many sequences to leave out before them.
        columns: draw the tokens in rows of this many (image patches, say); 32 by itself, 4 for digits.
        out: also write a picture to this file.
        examples: sequences of a generated task.
        seed: seed of a generated task.
        json: print one JSON line per sequence instead: prediction, and attention of every head on every token.
    """
    import sys

    import jax

    from manyheads.cli.tasks import sequences, source
    from manyheads.data.files import checked_path, write_whole
    from manyheads.estimator.fitted import Fitted
    from manyheads.estimator.look import SHADES, as_svg, as_text, look

    if out is not None:
        if checked_path(out, "--out").suffix.lower() != PICTURE:
            raise ValueError(
                f"--out {out} must be a name and {PICTURE}, the kind of picture that is written."
            )
        if out.resolve() == model.resolve():
            raise ValueError(f"--out {out} is the model itself; choose another name.")
    for name, value, least in (("count", count, 1), ("skip", skip, 0), ("columns", columns, 1)):
        if isinstance(value, int) and value < least:
            raise ValueError(f"--{name} {value} must be {least} or more.")
    fitted = Fitted.load(model)
    keys = jax.random.split(jax.random.key(seed), 5)
    tokens, mask, names = sequences(data, keys, examples)
    fitted.check_width(tokens, data, model)
    if skip >= len(tokens):
        raise ValueError(
            f"--skip {skip} leaves none of the {len(tokens)} sequences of {data}; skip fewer."
        )
    chosen = slice(skip, skip + count)
    looks = look(
        fitted,
        tokens[chosen],
        None if mask is None else mask[chosen],
        None if names is None else names[chosen],
        skip,
    )
    across = (
        columns if isinstance(columns, int) else getattr(source(data, keys[0]), "columns", None)
    )
    if json:
        for one in looks:
            print(format_json.dumps(one.to_dict()))
    else:
        print(as_text(looks, across, plain=not encodes(SHADES, sys.stdout)))
    if told := fitted.trained_on(tokens, mask):
        say(f"{told} of the {len(tokens)} sequences were trained on")
    if out is not None:
        write_whole(out, as_svg(looks, across).encode())
        say(f"wrote {out}: open it in a browser")
    return 0
