"""`manyheads check`: how a probe, ours or somebody else's, stands on given data."""

from __future__ import annotations

import json as format_json
from pathlib import Path
from typing import Annotated

import tyro

from manyheads.cli.options import Count, show


def command(
    probe: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PROBE")],
    *,
    data: Annotated[str, tyro.conf.arg(metavar="DATA")],
    heads: Count = None,
    no_compare: bool = False,
    json: bool = False,
) -> int:
    """Say how an attention probe stands on data: errors, margin, equal and dead heads, what the theory proves from here.

    PROBE is a file written by `manyheads fit`, or a safetensors file of another library:
    EleutherAI's attention-probes, AttnLite, EP (efficient probing), AIM's attention pooling, or a
    learned `query` with an `attention` (nn.MultiheadAttention) and a `linear`. In PyTorch,
    `safetensors.torch.save_file(module.state_dict(), PROBE)`.

    Examples:
        manyheads check probe.safetensors --data embeddings.npz
        manyheads check theirs.safetensors --data embeddings.npz --heads 8 --no-compare

    Args:
        probe: the file of the probe.
        data: embeddings with labels, as for `manyheads fit`.
        heads: number of heads of a foreign probe, where its tensors do not say it (AIM's,
            nn.MultiheadAttention).
        no_compare: do not fit an AttentionProbe to the same data.
        json: print JSON instead of text.
    """
    from manyheads.cli.sequences import read
    from manyheads.probe.attention_probe import AttentionProbe
    from manyheads.probe.checkup import checkup

    fitted = AttentionProbe.open(probe, num_heads=heads)
    sequences, labels = read(data)
    if labels is None:
        raise ValueError(f"{data} has no labels; add an array or a column of them.")
    found = checkup(fitted, sequences.tokens, labels, sequences.mask, compare=not no_compare)
    if json:
        print(format_json.dumps(found.to_dict(), indent=2))
    else:
        show(found)
    return 0
