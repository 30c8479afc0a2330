"""Sequences and labels for the verbs of the probe: a file, or all of a data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read(data: str, examples: int = 200) -> tuple[Any, Any]:
    """Sequences and the names of their labels, None where a file has none."""
    import numpy as np

    from manyheads.cli.data import whole
    from manyheads.data.labels import checked_labels
    from manyheads.data.read import paths_of
    from manyheads.data.read import read as read_file
    from manyheads.probe.sequences import as_sequences

    if all(Path(path).exists() for path in paths_of(data)):
        found = read_file(*paths_of(data))
        sequences = as_sequences(found.tokens, found.mask)
        if found.labels is None:
            return sequences, None
        return sequences, checked_labels(found.named[0], len(sequences.tokens)).astype(str)
    made = whole(data, 0, examples)
    return as_sequences(made.tokens, made.mask), np.asarray(made.names).astype(str)
