"""Descent on several devices: each holds a part of the sequences, and a step ends with one sum over all of them.

A part is the objective that the model makes of its sequences, whatever the model; the last part is
filled up with sequences of weight zero. One vector, the loss and the gradient, travels in a step.
The devices may belong to several processes that have called `jax.distributed.initialize()`: each
makes the same call and gets the same trajectory.
"""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from manyheads._check import check, none, shown, whole
from manyheads._types import AnyArray
from manyheads.data.budget import processors
from manyheads.data.dataset import Dataset
from manyheads.data.mapped import Mapped
from manyheads.model.protocol import Model

AXIS = "parts"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()
# numbers in the tokens of a part; with fewer, two cores are no faster than one
PART = 8192


@check(count=whole(1, 1024) | none)
def use_cores(count: int | None = None) -> int:
    """Make a device of every core of the processor, or of `count` cores; `train` then splits its sequences over them.

    Call it before JAX computes anything: JAX fixes its devices then. JAX's own threads hardly speed
    up a step of descent; a device for each of two cores makes it 1.7 times as fast
    (`benchmarks/bench_devices.py`).
    """
    count = processors() if count is None else count
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        there = len(jax.local_devices(backend="cpu"))
        if there != count:
            raise ValueError(
                f"use_cores({count}) comes too late: JAX runs already, with {there} of the "
                "processor; call it right "
                "after the imports, before anything is computed."
            ) from None
    return count


def default_device() -> Any:
    """The device of this process on which JAX computes where nothing else is said."""
    chosen = jax.config.jax_default_device  # ty: ignore[missing-attribute]
    if isinstance(chosen, jax.Device):
        return chosen
    return jax.local_devices(backend=chosen)[0]


def choose_devices(devices: Any) -> list[Any]:
    """The devices that `devices` asks for: "all", how many, a list of JAX's devices, or None for the default one."""
    if devices is None:
        return [default_device()]
    if isinstance(devices, list | tuple) and devices:
        if all(isinstance(device, jax.Device) for device in devices):
            return list(devices)
    there = jax.devices()
    if isinstance(devices, str) and devices == "all":
        return there
    count = whole(1, len(there)).accept(devices)
    if not isinstance(count, int):
        cores = " (mh.use_cores(4) makes four of a processor)" if len(there) == 1 else ""
        raise ValueError(
            f"devices={shown(devices)} must be 'all', a number from 1 to {len(there)}, as many as "
            f"there are{cores}, or "
            "a list of JAX's devices."
        )
    if jax.process_count() > 1:
        raise ValueError(
            f"devices={count}: {jax.process_count()} processes make this run; pass devices='all'."
        )
    return [default_device()] if count == 1 else there[:count]


def paying_devices(dataset: Dataset, before: int | None) -> int | None:
    """How many devices `train` uses if not told: those that a run was made on before, or the cores that pay off."""
    there = jax.local_devices()
    if (
        jax.config.jax_default_device is not None  # ty: ignore[missing-attribute]
        or jax.process_count() > 1
        or there[0].platform != "cpu"
        or isinstance(dataset.tokens, Mapped)
    ):
        return None
    if before is not None:
        return before if before <= len(there) else None
    return max(1, min(len(there), dataset.tokens.size // PART, dataset.num_examples))


def make_mesh(devices: Sequence[Any]) -> Mesh | None:
    """A mesh of several devices; None for one."""
    return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


class ShardedObjective(eqx.Module):
    """The objective of a dataset whose parts live on the devices of a mesh; follows `model.protocol`."""

    # the objective of a part; every leaf has a leading axis over the devices
    parts: Any
    labels: AnyArray  # (n,)
    copies: AnyArray
    mesh: Mesh = eqx.field(static=True)

    def scores(self, parameters: Any) -> jax.Array:
        found = self._on_each(lambda part, point: part.scores(point)[None], SPLIT, parameters)
        return self._joined(found)

    def loss_and_gradient(
        self, parameters: Any, sample_weight: AnyArray, **how: Any
    ) -> tuple[jax.Array, jax.Array, Any]:
        return self.evaluate(parameters, sample_weight, False, **how)[:3]

    def evaluate(
        self, parameters: Any, sample_weight: AnyArray, due: Any, **how: Any
    ) -> tuple[jax.Array, jax.Array, Any, dict[str, jax.Array]]:
        """With the records of the parts, which are means over their sequences of positive weight."""

        def local(part, point, weight, due):
            weight, means = weight[0], {}
            if hasattr(part, "evaluate"):
                value, scores, gradient, means = part.evaluate(point, weight, due, **how)
            else:
                value, scores, gradient = part.loss_and_gradient(point, weight, **how)
            count = jnp.sum(weight > 0)
            # the mean over no sequence is not a number
            sums = jax.tree.map(lambda mean: jnp.where(count > 0, count * mean, 0), means)
            vector, back = ravel_pytree((value, gradient, sums))
            return back(jax.lax.psum(vector, AXIS)), scores[None]

        (value, gradient, sums), scores = self._on_each(
            local, (WHOLE, SPLIT), parameters, self._weights(sample_weight), jnp.asarray(due)
        )
        count = jnp.sum(jnp.asarray(sample_weight) > 0)
        means = jax.tree.map(lambda total: total / count, sums)
        return value, self._joined(scores), gradient, means

    def measured(self, parameters: Any) -> dict[str, jax.Array]:
        """Those of any part: they do not depend on the data."""
        first = jax.tree.map(lambda leaf: leaf[0], self.parts)
        return first.measured(parameters) if hasattr(first, "measured") else {}

    def replicated(self, tree: Any) -> Any:
        """Inside jit: a tree whose leaves are whole on every device."""
        return jax.lax.with_sharding_constraint(tree, NamedSharding(self.mesh, WHOLE))

    def _on_each(self, function: Callable, out: Any, parameters: Any, *more: Any) -> Any:
        """`function` of a device's part, the parameters, its row of the first of `more` and the others whole."""

        def local(parts, parameters, *more):
            return function(jax.tree.map(lambda leaf: leaf[0], parts), parameters, *more)

        specs = (SPLIT, WHOLE, SPLIT, WHOLE)[: 2 + len(more)]
        mapped = jax.shard_map(
            local, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False
        )
        return mapped(self.parts, parameters, *more)

    def _weights(self, sample_weight: AnyArray) -> jax.Array:
        """The weights by device, with zeros behind the last sequence."""
        n, count = self.labels.shape[0], self.mesh.size
        size = -(-n // count)
        padded = jnp.zeros(count * size, jnp.result_type(sample_weight)).at[:n].set(sample_weight)
        return padded.reshape(count, size)

    def _joined(self, scores: jax.Array) -> jax.Array:
        return scores.reshape(-1)[: self.labels.shape[0]]


def sharded_objective(
    model: Model,
    dataset: Dataset,
    dtype: Any,
    chunk: int | None,
    mesh: Mesh | None,
    platform: str = "cpu",
) -> Any:
    """The objective of a model with its sequences split over a mesh; each process makes the parts of its own devices.

    Without a mesh, `model.objective`.
    """
    if mesh is None:
        return model.objective(dataset, dtype, chunk, platform)
    if isinstance(dataset.tokens, Mapped):
        raise ValueError(
            f"devices={mesh.devices.size} splits tokens that are in memory, and those of "
            f"{dataset.name!r} stream from "
            "their file; leave devices= out, or load the data with Dataset.load."
        )
    n, devices = dataset.num_examples, list(mesh.devices.flat)
    size, parts = -(-n // len(devices)), []
    for k, device in enumerate(devices):
        if device.process_index == jax.process_index():
            # the last part repeats the last sequence, which has no weight there
            chosen = np.minimum(np.arange(k * size, (k + 1) * size), n - 1)
            parts.append(model.objective(dataset.subset(chosen), dtype, chunk, platform))
    split = NamedSharding(mesh, SPLIT)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
    placed = jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(split, leaf), stacked)
    copies = np.ones(1) if model.copies is None else model.copies
    return ShardedObjective(placed, dataset.labels.astype(dtype), copies.astype(dtype), mesh)


def on_mesh(tree: Any, mesh: Mesh) -> Any:
    """A tree on the devices of a mesh: what is split stays, everything else is whole on every device."""
    whole_on_each = NamedSharding(mesh, WHOLE)

    def placed(leaf):
        if isinstance(leaf, jax.Array) and leaf.sharding.device_set == set(mesh.devices.flat):
            return leaf
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, whole_on_each, lambda index: array[index])

    return jax.tree.map(placed, tree)


# Several processes: they must run the same programs in the same order, so they agree on how far to go.


def as_process_0(number: int) -> int:
    """The number that process 0 has."""
    return int(broadcast_one_to_all(np.int32(number)))


def check_same(tree: Any, *more: Any) -> None:
    """Refuse to begin where processes were given different arrays, in a tree, or other things."""
    digest = hashlib.sha256(repr(more).encode())
    for leaf in jax.tree.leaves(tree):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    all_digests = process_allgather(np.frombuffer(digest.digest(), np.uint8))
    if np.any(all_digests != all_digests[0]):
        raise ValueError(
            "the processes of this run were given different data, models or options; make the same "
            "call in each."
        )


def spread(
    work: Callable[[Any, Any], Any], tasks: Sequence[Any], devices: Sequence[Any]
) -> Generator[tuple[Any, Any], None, None]:
    """(task, `work(task, device)`) of every task as it is done, with a thread for each device of this process.

    Inside, the device is JAX's default. Where this ends early, tasks that have begun are finished
    first.
    """
    own = [device for device in devices if device.process_index == jax.process_index()]
    wide = jax.config.jax_enable_x64  # ty: ignore[missing-attribute]
    free: queue.SimpleQueue = queue.SimpleQueue()
    for device in own:
        free.put(device)

    def one(task):
        device = free.get()
        try:
            # settings of JAX belong to a thread
            with jax.enable_x64(wide), jax.default_device(device):
                return work(task, device)
        finally:
            free.put(device)

    if len(own) == 1:
        yield from ((task, one(task)) for task in tasks)
        return
    with ThreadPoolExecutor(len(own)) as pool:
        begun = {pool.submit(one, task): task for task in tasks}
        try:
            for done in as_completed(begun):
                yield begun[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)
