"""The data and the start of a command, from the registered data sources and starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from manyheads._fields import settings
from manyheads.data.source import SOURCES, make_source
from manyheads.training.start import STARTS


def source(data: str, key: Any) -> Any:
    """The data source of that name, or the file at that path."""
    name = {"random": "random_labels"}.get(data, data).replace("-", "_")
    if name in SOURCES and name != "file":
        return make_source(name, getattr(SOURCES[name], "example", {}), key)
    if not Path(data).exists():
        names = ", ".join(kind for kind in SOURCES if kind != "file")
        raise ValueError(f"{data!r} is neither a file nor a data source; pass an .npz file or one of {names}.")
    return SOURCES["file"](data)


def parts(data: str, keys, examples: int, first: int, held_out: int):
    """The data source and three disjoint parts: fresh data for the start, training data, test data.

    Zero sequences for the start or the test: None.
    """
    for name, count in (("first-phase", first), ("test", held_out)):
        if count < 0:
            raise ValueError(f"--{name}-examples {count} must be 0 or more.")
    task = source(data, keys[0])
    if hasattr(task, "sample"):
        test = task.sample(held_out, key=keys[3]) if held_out else None
        fresh = task.sample(first, key=keys[1]) if first else None
        return task, fresh, task.sample(examples, key=keys[2]), test
    whole = task.load()
    quarter = whole.num_examples // 4
    if quarter < 2 and (first or held_out):
        raise ValueError(f"{data} has {whole.num_examples} sequences; at least 8 are needed to set some aside.")
    fresh, rest = whole.split(min(first, quarter), key=keys[1]) if first else (None, whole)
    test, rest = rest.split(min(held_out, quarter), key=keys[2]) if held_out else (None, rest)
    if abs(rest.labels.sum()) == rest.num_examples:
        raise ValueError(
            f"the {rest.num_examples} sequences of {data} left for training are of one class; "
            "pass another --seed or set fewer aside."
        )
    return task, fresh, rest, test


def whole(data: str, keys, examples: int):
    """All sequences of a file or another fixed collection, or that many of a generated task."""
    task = source(data, keys[0])
    return task.sample(examples, key=keys[2]) if hasattr(task, "sample") else task.load()


def planned(path: Path, data: str):
    """What a plan's file says, the sequences that it is about, those that it left alone, and its start.

    `data` names the file where it has moved; for any other word the plan's own is used.
    """
    import jax

    from manyheads.estimator.promise import PlanFile

    plan = PlanFile.load(path)
    keys = jax.random.split(jax.random.key(plan.seed), 5)
    dataset = whole(data if Path(data).is_file() else plan.data, keys, plan.num_examples)
    return plan, *plan.parts(dataset, keys[4])


def unlabeled(data: str) -> Any:
    """Tokens and mask of a file that has no labels; None for anything else."""
    from manyheads.data.convert import TABLES, read_table, table_parts
    from manyheads.data.files import read_npz
    from manyheads.estimator.sequences import as_sequences

    if not Path(data).is_file():
        return None
    if Path(data).suffix.lower() in TABLES:
        table = read_table(data)
        return None if "label" in table.columns else table_parts(table.assign(label=0), None, None, None)[:2]
    arrays, _ = read_npz(data)
    if "labels" in arrays or "tokens" not in arrays:
        return None
    tokens, _ = as_sequences(arrays["tokens"])
    return tokens, arrays["mask"].astype(bool) if "mask" in arrays else None


def fresh_wanted(start: str, examples: int) -> int:
    """How many sequences a start is made from that are not trained on."""
    if "num_examples" not in settings(STARTS[start]):
        return 0
    if examples == 0:
        raise ValueError("--first-phase-examples 0 leaves the first phase without data; pass 2 or more.")
    return examples


def make_start(start: str, heads: float, scale: float | None, **facts) -> Any:
    """The model at step 0; `scale` is the norm of each Gaussian head's two weight matrices."""
    scales = {"key_query_scale": scale, "readout_scale": scale}
    if scale is not None and not scales.keys() <= settings(STARTS[start]).keys():
        raise ValueError(f"--scale {scale:g} is for --start gaussian only; leave it out, or choose that start.")
    return STARTS[start](**({} if scale is None else scales)).make(heads, **facts)


def warn_of_time(steps: int, dataset: Any, model: Any, tell: Callable[[str], Any]) -> None:
    """Say how long a run takes at least, if that is more than a minute."""
    from manyheads.data.budget import descent_seconds, duration

    seconds = descent_seconds(steps, *dataset.tokens.shape, 1 if model.copies is None else len(model.copies))
    if seconds > 60:
        tell(f"at least {duration(seconds)}; Ctrl-C stops")


def holds_run(path: str) -> bool:
    """Whether a file holds a trajectory rather than data; False for the name of a data source."""
    from manyheads.data.files import read_npz

    return Path(path).exists() and read_npz(path)[1].get("kind") == "trajectory"


def stored_run(path: str, data: str | None, keys, examples: int, first: int, held_out: int):
    """A saved run, its data source, and its training and test data, set aside as `train` did."""
    import numpy as np

    from manyheads.training.trajectory import Trajectory

    if data is None:
        raise ValueError(f"{path} is a run; pass --data with what it was trained on, a file or a data source")
    run = Trajectory.load(path)
    heads = run.start.heads  # after a first phase W is zero and U is not
    phased = not np.any(heads.key_query) and bool(np.any(heads.readout))
    task, _, dataset, test = parts(data, keys, examples, first if phased else 0, held_out)
    return run, task, dataset, test
