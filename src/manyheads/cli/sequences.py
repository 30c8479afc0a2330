"""Sequences and labels for the verbs of the probe: a file, or all of a data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read(data: str, examples: int = 200) -> tuple[Any, Any]:
    """Sequences and the names of their labels, None where a file has none."""
    import jax
    import numpy as np

    from manyheads.cli.tasks import source
    from manyheads.data.convert import paths_of, read_file
    from manyheads.data.labels import checked_labels
    from manyheads.probe.sequences import as_sequences

    if all(Path(path).exists() for path in paths_of(data)):
        found = read_file(*paths_of(data))
        sequences = as_sequences(found.tokens, found.mask)
        if found.labels is None:
            return sequences, None
        return sequences, checked_labels(found.named[0], len(sequences.tokens)).astype(str)
    task = source(data, jax.random.key(0))
    made: Any = (
        task.sample(examples, key=jax.random.key(1)) if hasattr(task, "sample") else task.load()
    )
    return as_sequences(made.tokens, made.mask), np.asarray(made.names).astype(str)
