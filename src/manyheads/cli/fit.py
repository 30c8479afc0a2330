"""`manyheads fit`: an attention probe of the user's own sequences, and how good it is."""

from __future__ import annotations

import json as format_json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from manyheads.cli.options import Count, show, telling


def command(
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[DATA]")] = "digits",
    *,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="PROBE")] = None,
    heads: Count = None,
    decoder: Literal["query", "pooled", "full", "last"] = "query",
    positions: Literal["auto", "yes", "no"] = "auto",
    no_report: bool = False,
    plot: Annotated[Path | None, tyro.conf.arg(metavar="FILE.svg")] = None,
    json: bool = False,
    quiet: bool = False,
) -> int:
    """Fit an attention probe to sequences of embeddings, and say how good it is beside simpler models.

    DATA is an .npz file with arrays `tokens` (n, T, d) and `labels` and possibly `mask`, a .csv or
    .parquet file with one row per token (columns `sequence`, `label`, features), two .npy files
    (tokens, labels), or a data source such as digits. Heads, start, positions and penalty are
    chosen by cross-validation. The error comes from sequences that no choice saw, with its
    interval, beside logistic regression and a random forest. The same data give the same probe.

    Examples:
        manyheads fit digits -o digits.safetensors
        manyheads fit embeddings.npz -o probe.safetensors --plot heads.svg

    Args:
        data: the file or the data source.
        out: save the probe to this file, for `manyheads predict`.
        heads: number of heads; by default chosen among 1, 4 and 16.
        decoder: a query is learned for each head, or tokens ask: all of them, or the last one.
        positions: whether a token's place counts; by default chosen.
        no_report: do not estimate the error, which takes most of the time.
        plot: draw the error against the number of heads to this file.
        json: print JSON instead of text.
        quiet: no progress.
    """
    from manyheads.cli.sequences import read
    from manyheads.data.files import checked_path
    from manyheads.probe.attention_probe import AttentionProbe
    from manyheads.probe.report import report as reported

    for name, place in (("--out", out), ("--plot", plot)):
        if place is not None:
            checked_path(place, name)
    sequences, labels = read(data)
    if labels is None:
        raise ValueError(f"{data} has no labels; add an array or a column of them.")
    probe = AttentionProbe(
        decoder=decoder,
        num_heads="auto" if heads is None else heads,
        positions={"auto": "auto", "yes": True, "no": False}[positions],
    )
    found = None
    with telling(quiet) as tell:
        probe._tell = lambda line: tell(line.removeprefix("! "))
        if not no_report or plot is not None:
            found = reported(probe, sequences.tokens, labels, sequences.mask, tell=probe._tell)
        probe.fit(sequences.tokens, labels, mask=sequences.mask)
    facts = {} if found is None else found.to_dict()
    chosen = f"{probe.fit_.kind}, penalty {probe.penalty_:.1e}"
    if out is not None:
        probe.save(out, data=data, **facts)
    if plot is not None and found is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 3.2), layout="constrained")
        found.plot(figure.subplots())
        figure.savefig(plot)
    if json:
        print(format_json.dumps({"probe": chosen, **facts}, indent=2, allow_nan=False))
        return 0
    if found is not None:
        show(f"{found}\n")
    show(f"The probe of all {len(labels)} sequences has {chosen}.")
    if out is not None:
        show(f"Saved to {out}; use it with `manyheads predict {out} DATA`.")
    return 0
