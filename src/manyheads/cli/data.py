"""Data by the name that a verb is given: a file or a data source, whole, split, or as a run was trained on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from manyheads._check import checked, seed
from manyheads.data.dataset import Dataset
from manyheads.data.origin import Origin
from manyheads.data.read import paths_of
from manyheads.data.real import File
from manyheads.data.source import SOURCES
from manyheads.training.trajectory import Trajectory

KEYS = {"source": 0, "first phase": 1, "training": 2, "test": 3, "start": 4}


def key_of(number: int, part: str) -> Any:
    """The random key of one of the things that a seed decides."""
    key = jax.random.key(checked("--seed", number, seed))
    return jax.random.split(key, len(KEYS))[KEYS[part]]


def source(name: str, number: int = 0) -> Any:
    """The data source of that name, or the file at that path."""
    if (known := name.replace("-", "_")) in SOURCES:
        return SOURCES[known](key_of(number, "source"))
    for path in paths_of(name):
        if not Path(path).exists():
            raise ValueError(
                f"{path!r} is neither a file nor a data source; pass an .npz, .csv or .parquet "
                "file, two .npy "
                f"files as X.npy,y.npy, or one of {', '.join(SOURCES)}."
            )
    return File(name)


def drawn(name: str, number: int, part: str, count: int) -> Dataset:
    """One part of a generated task, the same again for the same seed."""
    data = source(name, number).sample(count, key=key_of(number, part))
    return replace(data, origin=Origin(name, number, part, count))


def whole(name: str, number: int, examples: int, positive: str | None = None) -> Dataset:
    """All sequences of a file or another fixed collection, or that many of a generated task."""
    task = source(name, number)
    if hasattr(task, "sample"):
        return drawn(name, number, "training", examples)
    return task.load(positive) if isinstance(task, File) else task.load()


def split(
    name: str,
    number: int,
    aside: dict[str, int],
    examples: int | None = None,
    positive: str | None = None,
) -> dict[str, Dataset]:
    """Disjoint parts: "training", and those set aside where their number is not 0.

    A generated task draws each part. Of a file each takes at most a quarter, and training gets the
    rest.
    """
    task = source(name, number)
    if hasattr(task, "sample"):
        if positive is not None:
            raise ValueError(
                f"--positive {positive} is for data of your own; leave it out for {name}."
            )
        counts = {"training": 100 if examples is None else examples} | aside
        return {part: drawn(name, number, part, n) for part, n in counts.items() if n}
    if examples is not None:
        raise ValueError(
            f"--examples {examples} is for generated tasks; all sequences of {name} are used."
        )
    rest, parts = whole(name, number, 0, positive), {}
    quarter = rest.num_examples // 4
    if quarter < 2 and any(aside.values()):
        raise ValueError(
            f"{name} has {rest.num_examples} sequences; at least 8 are needed to set some aside."
        )
    for part, count in aside.items():
        if count:
            parts[part], rest = rest.split(min(count, quarter), key=key_of(number, part))
    if abs(rest.labels.sum()) == rest.num_examples:
        raise ValueError(
            f"the {rest.num_examples} sequences of {name} left for training are of one class; "
            "pass another --seed or set fewer aside."
        )
    # A file is read from one end to the other, which a random order would make slow.
    parts["training"] = rest.subset(rest.tokens.file_order) if rest.in_place else rest
    for part, data in parts.items():
        origin = replace(data.origin, source=name, seed=number, part=part)
        parts[part] = replace(data, origin=origin)
    return parts


def stored_run(path: str, name: str | None) -> tuple[Trajectory, Any, Dataset, Dataset | None]:
    """A saved run, its data source, data that hold its training sequences, and its test data if these do not.

    `name` may be None where the run says what it was trained on.
    """
    if not Path(path).is_file():
        raise ValueError(
            f"{path!r} is not a file; make a run with `manyheads train DATA --out "
            f"{Path(path).stem}.npz`."
        )
    run = Trajectory.load(path)
    origin, test = (run.origins.get(part, Origin()) for part in ("data", "test"))
    name = name or origin.source
    if not name:
        raise ValueError(
            f"{path} does not say what it was trained on; pass --data with the file or the data "
            "source."
        )
    if name == origin.source and origin.drawn:
        number = origin.seed or 0
        held_out = drawn(name, number, "test", test.drawn) if test.drawn else None
        return run, source(name, number), drawn(name, number, "training", origin.drawn), held_out
    names = run.settings.get("label_names")
    positive = names[1] if names else None
    return run, None, whole(name, 0, run.settings["num_examples"], positive), None
