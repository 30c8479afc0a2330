"""The data of a command: a file, or a generated task, cut into disjoint parts."""

from __future__ import annotations

from pathlib import Path


def parts(data: str, keys, examples: int, first: int, held_out: int):
    """The task (None for a file) and three disjoint parts: fresh data for the first phase, training data, test data.

    Zero sequences for the first phase or the test: None.
    """
    import manyheads as mh

    tasks = {
        "mixture": lambda: mh.TokenizedMixture(noise_mu=0.1, noise_nu=0.1, noise_norm=0.5, key=keys[0]),
        "planted": lambda: mh.Planted(margin=0.1, key=keys[0]),
        "random": lambda: mh.RandomLabels(),
    }
    for name, count in (("first-phase", first), ("test", held_out)):
        if count < 0:
            raise ValueError(f"--{name}-examples {count} must be 0 or more.")
    if data in tasks:
        task = tasks[data]()
        test = task.sample(held_out, key=keys[3]) if held_out else None
        fresh = task.sample(first, key=keys[1]) if first else None
        return task, fresh, task.sample(examples, key=keys[2]), test
    if not Path(data).exists():
        raise ValueError(f"{data!r} is neither a file nor a task; pass an .npz file, mixture, planted or random.")
    whole = mh.Dataset.load(data)
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
    return None, fresh, rest, test


def whole(data: str, keys, examples: int):
    """All sequences of a file, or that many of a generated task."""
    import manyheads as mh

    if Path(data).exists():
        return mh.Dataset.load(data)
    return parts(data, keys, examples, examples, 0)[2]


def holds_run(path: str) -> bool:
    """Whether a file holds a trajectory rather than data; False for the name of a task."""
    from manyheads.data.dataset import read_npz

    return Path(path).exists() and read_npz(path)[1].get("kind") == "trajectory"
