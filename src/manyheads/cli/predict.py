"""`manyheads predict`: labels by a fitted probe, and which tokens it looked at."""

from __future__ import annotations

import json as format_json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from manyheads.cli.options import can_show


def command(
    probe: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PROBE")],
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
    *,
    look: Annotated[int, tyro.conf.arg(metavar="COUNT")] = 0,
    json: bool = False,
) -> int:
    """Print one label per sequence, and to stderr how many are wrong if the data have labels of the same names.

    PROBE is a file written by `manyheads fit -o`. DATA is as for `manyheads fit`, but may lack
    labels.

    Examples:
        manyheads predict probe.safetensors new-data.npz
        manyheads predict digits.safetensors digits --look 3

    Args:
        probe: a file written by `manyheads fit`.
        data: the file or the data source.
        look: draw which tokens the heads look at in this many sequences, instead of printing
            labels.
        json: print label, probability and scores of each sequence as JSON, one line each.
    """
    import numpy as np

    from manyheads.cli.sequences import read
    from manyheads.probe.attention_probe import AttentionProbe
    from manyheads.probe.look import SHADES, drawn, legend

    if look < 0:
        raise ValueError(f"--look {look} must be 0 or more.")
    fitted = AttentionProbe.load(probe)
    (tokens, mask), names = read(data)
    if tokens.shape[2] != fitted.n_features_in_:
        raise ValueError(
            f"{data} has tokens of dimension {tokens.shape[2]}, and {probe} was fitted to "
            "dimension "
            f"{fitted.n_features_in_}; pass data with the same features, or fit a probe to these."
        )
    chances = fitted.predict_proba(tokens, mask)
    codes = np.argmax(chances, axis=1)
    labels = fitted.classes_[codes]
    if look:
        plain = not can_show(SHADES)
        few = slice(0, look)
        maps, parts = fitted.attention(tokens[few], mask[few]), fitted.parts(tokens[few], mask[few])
        for i in range(len(maps)):
            known = "" if names is None else f", labeled {names[i]}"
            print(f"sequence {i}: {labels[i]} (probability {chances[i, codes[i]]:.2f}){known}")
            print(drawn(maps[i], mask[i], parts[i, :, codes[i]], plain))
        print(legend(plain))
    else:
        for label, row, code in zip(labels.tolist(), chances, codes, strict=True):
            line = {"label": label, "probability": float(row[code])}
            print(format_json.dumps(line) if json else label)
    if names is not None and set(names.tolist()) <= set(fitted.classes_.astype(str).tolist()):
        wrong = int(np.sum(labels.astype(str) != names))
        told = f"wrong on {wrong} of {len(names)} sequences ({wrong / len(names):.1%})"
        print(told, file=sys.stderr)
    elif names is not None:
        ours = ", ".join(fitted.classes_.astype(str)[:6])
        told = f"not compared: the data have other labels than the probe, which has {ours}"
        print(told, file=sys.stderr)
    return 0
