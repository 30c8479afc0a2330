"""Resuming a run: whether it is the same run, and the state it had."""

from __future__ import annotations

import hashlib
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.mapped import Mapped
from manyheads.model.protocol import Model
from manyheads.training.loop import Observer, State
from manyheads.training.trajectory import Trajectory

SAME = ("optimizer", "coordinates", "step_size", "loss", "dtype", "tf32", "num_examples")
OFTEN_ABSENT = ("batch_size", "batch_key", "b1", "b2", "eps")


def fingerprint(dataset: Dataset, sample_weight: np.ndarray | None = None) -> str:
    """A short hash of what enters a loss: equal for equal data and weights."""
    digest = hashlib.sha256()
    fields = {name: getattr(dataset, name) for name in ("tokens", "labels", "mask")}
    for name, values in (fields | {"weight": sample_weight}).items():
        if values is None:
            continue
        kind = np.dtype(bool if name == "mask" else np.float64)
        digest.update(f"{name} {kind.str} {values.shape} ".encode())
        mapped = isinstance(values, Mapped)
        for block in (block for _, block in values.blocks()) if mapped else (values,):
            if mapped and not np.isfinite(block).all():
                raise ValueError(
                    f"the tokens of {dataset.name!r} are no longer finite: the file has changed "
                    "since it was "
                    "opened; repair it, and open it again with Dataset.open."
                )
            digest.update(np.ascontiguousarray(block, kind).data)
    return digest.hexdigest()[:16]


def sources_of(
    dataset: Dataset, sample_weight: np.ndarray | None, test: Dataset | None
) -> dict[str, str | None]:
    """Hashes of all data that enter a record of a run."""
    relevant = dataset.relevant
    return {
        "data": fingerprint(dataset, sample_weight),
        "relevant": None
        if relevant is None
        else hashlib.sha256(np.ascontiguousarray(relevant).tobytes()).hexdigest()[:16],
        "test": None if test is None else fingerprint(test),
    }


def check_same_run(before: Trajectory, model: Model, settings: dict, sources: dict) -> None:
    """Refuse to resume a run that this call would not have begun."""
    if before.status == "diverged":
        raise ValueError(
            f"the run to resume diverged at step {before.last_step}; start anew with a smaller "
            "step_size."
        )
    for name in (*SAME, *OFTEN_ABSENT):
        was, now = before.settings.get(name), settings.get(name)
        if was != now:
            raise ValueError(
                f"the run to resume has {name}={was!r}, this call {now!r}; pass the same value."
            )
    for name, words in (
        ("data", "other data or sample weights"),
        ("relevant", "other relevant tokens"),
        ("test", "other test data, or none"),
    ):
        if before.sources.get(name, sources[name]) != sources[name]:
            raise ValueError(f"the run to resume was made with {words}; pass what it began with.")
    if (was := before.settings.get("devices", 1)) != settings["devices"]:
        warnings.warn(
            f"the run to resume was made on {_devices(was)} and continues on "
            f"{_devices(settings['devices'])}: it "
            "agrees with an uninterrupted run to rounding, not bit for bit",
            stacklevel=4,
        )
    if settings["num_steps"] < before.last_step:
        raise ValueError(
            f"num_steps={settings['num_steps']} is less than the {before.last_step} steps already "
            "done; pass more."
        )
    old, new = before.start, model
    leaves = [jax.tree.leaves((m.parameters, m.copies)) for m in (old, new)]
    if not (
        # static fields too: decoder, exponent
        jax.tree.structure(old) == jax.tree.structure(new)
        and len(leaves[0]) == len(leaves[1])
        and all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))
    ):
        raise ValueError(
            "the run to resume began from another model; pass trajectory.start, or the same seed "
            "and heads."
        )


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def restore(state: State, before: Trajectory, observers: dict[str, Observer]) -> State:
    """The state in which a run stopped, with room for the records to come."""
    written = {
        name: int(np.searchsorted(o.steps, before.last_step)) for name, o in observers.items()
    }
    run = state.run
    leaves, tree = jax.tree.flatten(run.optimizer)
    if [np.shape(leaf) for leaf in leaves] != [np.shape(leaf) for leaf in before.optimizer_state]:
        raise ValueError("the run to resume was made by another optimizer; pass the same one.")
    records = {name: getattr(before, name) for name in run.kept["records"]}
    known = {"records": records, "snapshots": before.snapshots}
    known |= {f"observed {name}": values for name, values in before.observed.items()}
    for name, values in [*records.items(), *((name, known.get(name)) for name in run.kept)]:
        if values is None:
            raise ValueError(
                f"the run to resume has no {name}; start it with the same test data and observe=."
            )

    def filled(rows, values, count):
        return rows.at[:count].set(values[:count])

    kept = {
        name: jax.tree.map(partial(filled, count=written[name]), run.kept[name], known[name])
        for name in run.kept
    }
    displacement = jax.tree.map(
        lambda leaf, like: np.asarray(leaf, like.dtype), before.displacement, run.displacement
    )
    optimizer = jax.tree.unflatten(tree, [np.asarray(leaf) for leaf in before.optimizer_state])
    step = jnp.array(before.last_step, jnp.int32)
    return State(
        step,
        {name: jnp.array(count, jnp.int32) for name, count in written.items()},
        run._replace(
            displacement=displacement,
            optimizer=optimizer,
            before=(displacement, optimizer),
            evaluated=step,
            kept=kept,
        ),
    )
