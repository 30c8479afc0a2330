"""The data and the start of a command, from the registered data sources and starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyheads.data.origin import Origin
from manyheads.data.read import paths_of
from manyheads.data.real import File
from manyheads.data.source import SOURCES


def use_all_cores() -> None:
    """A device for every core, unless the environment says how many devices of the processor there are."""
    from manyheads.training.devices import use_cores

    if (
        "host_platform_device_count" not in os.environ.get("XLA_FLAGS", "")
        and "JAX_NUM_CPU_DEVICES" not in os.environ
    ):
        with contextlib.suppress(ValueError):  # JAX runs already
            use_cores()


@contextlib.contextmanager
def computing_on(device: str | None) -> Generator[None, None, None]:
    """Inside, JAX computes on a device of this kind; None for what JAX finds."""
    import jax

    if device is None:
        yield
        return
    try:
        chosen = jax.local_devices(backend=device)[0]
    except RuntimeError:
        there = ", ".join(dict.fromkeys([jax.local_devices()[0].platform, "cpu"]))
        raise ValueError(f"--device {device} is not available here; available: {there}.") from None
    with jax.default_device(chosen):
        yield


def source(data: str, key: Any) -> Any:
    """The data source of that name, or the file at that path."""
    name = {"random": "random_labels"}.get(data, data).replace("-", "_")
    if name in SOURCES:
        return SOURCES[name](key)
    for path in paths_of(data):
        if not Path(path).exists():
            names = ", ".join(SOURCES)
            raise ValueError(
                f"{path!r} is neither a file nor a data source; pass an .npz, .csv or .parquet file, two .npy files "
                f"(tokens, labels) or one of {names}."
            )
    return File(data)


DRAWN_WITH = {"first phase": 1, "training": 2, "test": 3}  # part -> which of the keys of a seed


def drawn(name: str, seed: int, part: str, count: int):
    """One part of a generated task, the same again for the same seed."""
    keys = _keys(seed)
    data = source(name, keys[0]).sample(count, key=keys[DRAWN_WITH[part]])
    return replace(data, origin=Origin(name, seed, part, count))


def parts(data: str, seed: int, examples: int, first: int, held_out: int, positive=None):
    """The data source and three disjoint parts: fresh data for the start, training data, test data.

    A part for the start or the test with zero sequences is None. `positive` is the label that becomes +1.
    """
    keys = _keys(seed)
    for name, count in (("first-phase", first), ("test", held_out)):
        if count < 0:
            raise ValueError(f"--{name}-examples {count} must be 0 or more.")
    task = source(data, keys[0])
    if hasattr(task, "sample"):
        if positive is not None:
            raise ValueError(
                f"--positive {positive} is for data of your own; leave it out for {data}."
            )
        test = drawn(data, seed, "test", held_out) if held_out else None
        fresh = drawn(data, seed, "first phase", first) if first else None
        return task, fresh, drawn(data, seed, "training", examples), test
    loaded = whole(data, keys, examples, positive)
    quarter = loaded.num_examples // 4
    if quarter < 2 and (first or held_out):
        raise ValueError(
            f"{data} has {loaded.num_examples} sequences; at least 8 are needed to set some aside."
        )
    fresh, rest = loaded.split(min(first, quarter), key=keys[1]) if first else (None, loaded)
    test, rest = rest.split(min(held_out, quarter), key=keys[2]) if held_out else (None, rest)
    if abs(rest.labels.sum()) == rest.num_examples:
        raise ValueError(
            f"the {rest.num_examples} sequences of {data} left for training are of one class; "
            "pass another --seed or set fewer aside."
        )
    if rest.in_place:
        rest = rest.subset(rest.tokens.file_order)  # read from one end to the other

    def named(part, name):
        return part and replace(
            part, origin=replace(part.origin, source=data, seed=seed, part=name)
        )

    return task, named(fresh, "first phase"), named(rest, "training"), named(test, "test")


def whole(data: str, keys, examples: int, positive: str | None = None):
    """All sequences of a file or another fixed collection, or that many of a generated task.

    `positive` is the label that becomes +1.
    """
    from manyheads.data.dataset import Dataset

    task = source(data, keys[0])
    if isinstance(task, File):
        return task.load(positive)
    found = task.sample(examples, key=keys[2]) if hasattr(task, "sample") else task.load()
    if positive is None:
        return found
    return Dataset.from_arrays(
        found.tokens,
        found.names,
        mask=found.mask,
        relevant=found.relevant,
        name=found.name,
        norm_bound=found.norm_bound,
        positive=positive,
    )


def classes(data: str, keys, examples: int, positive: str | None):
    """The sequences; if a file has more than two classes and `positive` names none, also their codes and names."""
    import numpy as np

    from manyheads.data.dataset import Dataset
    from manyheads.data.labels import checked_labels
    from manyheads.data.mapped import is_large
    from manyheads.data.read import read

    if (
        positive is None
        and isinstance(source(data, keys[0]), File)
        and not is_large(paths_of(data)[0])
    ):
        found = read(*paths_of(data))
        if found.labels is not None:
            y = checked_labels(found.named[0], len(found.labels))
            values, codes = np.unique(y, return_inverse=True)
            if len(values) > 2:
                name = Path(paths_of(data)[0]).stem
                some = Dataset.from_arrays(
                    found.tokens, y, mask=found.mask, name=name, positive=values[-1]
                )
                return some, (codes, tuple(map(str, values)))
    return whole(data, keys, examples, positive), None


def sequences(data: str, keys, examples: int):
    """Tokens, mask and the names of the labels, None where a file has no labels."""
    import numpy as np

    from manyheads.data.labels import checked_labels
    from manyheads.data.read import read
    from manyheads.estimator.sequences import as_sequences

    if isinstance(source(data, keys[0]), File):
        found = read(*paths_of(data))
        if found.mask is None:
            tokens, mask = as_sequences(found.tokens)
        else:
            mask = np.asarray(found.mask, bool)
            tokens, _ = as_sequences(np.where(mask[:, :, None], found.tokens, 0.0))
        return (
            tokens,
            mask,
            None
            if found.labels is None
            else checked_labels(found.named[0], len(tokens)).astype(str),
        )
    dataset = whole(data, keys, examples)
    return dataset.tokens, dataset.mask, dataset.names


def planned(path: Path, data: str):
    """The plan in a file, the sequences it covers, the other sequences, and its start.

    `data` names the data file if it has moved.
    """
    import jax

    from manyheads.estimator.promise import PlanFile

    plan = PlanFile.load(path)
    keys = jax.random.split(jax.random.key(plan.seed), 5)
    if data not in ("", plan.data) and not all(Path(path).is_file() for path in paths_of(data)):
        raise ValueError(
            f"{data!r} is not a file, and {path} was made on {plan.data}; leave it out."
        )
    dataset = whole(data or plan.data, keys, plan.num_examples, plan.positive)
    return plan, *plan.parts(dataset, keys[4])


def fresh_wanted(start: str, examples: int) -> int:
    """How many sequences to set aside for computing the start."""
    if start != "first_phase":
        return 0
    if examples == 0:
        raise ValueError(
            "--first-phase-examples 0 leaves the first phase without data; pass 2 or more."
        )
    return examples


def make_start(
    start: str,
    heads: float,
    scale: float | None,
    *,
    dataset: Any,
    fresh: Any,
    source: Any,
    key: Any,
    decoder: str,
    loss: str,
) -> Any:
    """The model at step 0; `scale` is the norm of each Gaussian head's two weight matrices."""
    from manyheads.training import start as starts

    if start not in starts.STARTS:
        raise ValueError(f"--start {start!r} must be one of {', '.join(starts.STARTS)}.")
    if scale is not None and start != "gaussian":
        raise ValueError(
            f"--scale {scale:g} is for --start gaussian only; leave it out, or choose that start."
        )
    if start == "population":
        return starts.population_first_phase(source, heads, key=key)
    if start == "first_phase":
        return starts.first_phase(fresh, heads, key=key, decoder=decoder, loss=loss)
    shape = {"num_tokens": dataset.num_tokens, "dim": dataset.dim, "decoder": decoder}
    if start == "zero":
        return starts.zero_start(heads, **shape)
    scales = {} if scale is None else {"key_query_scale": scale, "readout_scale": scale}
    return starts.gaussian_start(heads, key=key, **shape, **scales)


def warn_of_time(steps: int, dataset: Any, model: Any, tell: Callable[[str], Any]) -> None:
    """Report a lower bound on the time of a run, if it is more than a minute."""
    from manyheads.data.budget import descent_seconds, duration

    seconds = descent_seconds(
        steps, *dataset.tokens.shape, 1 if model.copies is None else len(model.copies)
    )
    if seconds > 60:
        tell(f"at least {duration(seconds)}; Ctrl-C stops")


def holds_run(path: str) -> bool:
    """Whether a file holds a trajectory rather than data."""
    from manyheads.data.files import read_npz

    return Path(path).suffix == ".npz" and read_npz(path)[1].get("kind") == "trajectory"


def stored_run(path: str, data: str | None):
    """A saved run, its data source, and data that hold its training sequences; also its test data if these do not.

    `data` may be left out where the run says what it was trained on.
    """
    from manyheads.training.trajectory import Trajectory

    if not Path(path).is_file():
        raise ValueError(
            f"{path!r} is not a file; make a run with `manyheads train DATA --out {Path(path).stem}.npz`."
        )
    run = Trajectory.load(path)
    origin, test = (run.origins.get(name, Origin()) for name in ("data", "test"))
    name = data or origin.source
    if not name:
        raise ValueError(
            f"{path} does not say what it was trained on; pass --data with the file or the data source."
        )
    if origin.drawn and name == origin.source and not Path(name).exists():
        again = [
            drawn(name, part.seed or 0, part.part, part.drawn) if part.drawn else None
            for part in (origin, test)
        ]
        return run, source(name, _keys(origin.seed or 0)[0]), *again
    names = run.settings.get("label_names")
    positive = names[1] if names and Path(paths_of(name)[0]).is_file() else None
    return run, None, whole(name, _keys(0), run.settings["num_examples"], positive), None


def _keys(seed: int):
    import jax

    return jax.random.split(jax.random.key(seed), 5)
