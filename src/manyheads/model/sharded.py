"""An objective over several devices: each holds a part of the sequences, and a step adds up what they find.

A part is the objective that the model makes of its sequences, whatever the model; the last part is filled up with
sequences of weight zero. Nothing but one vector, the loss and the gradient, travels in a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from manyheads._types import AnyArray
from manyheads.data.dataset import Dataset
from manyheads.data.mapped import Mapped
from manyheads.model.attention import HIGHEST
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.model.protocol import Model

AXIS = "parts"
SPLIT, WHOLE = PartitionSpec(AXIS), PartitionSpec()


class ShardedObjective(eqx.Module):
    """The objective of a dataset whose parts live on the devices of a mesh; follows `model.protocol`."""

    parts: Any  # the objective of a part; every leaf has a leading axis over the devices
    labels: AnyArray  # (n,)
    copies: AnyArray
    mesh: Mesh = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Sequences of a part."""
        return -(-self.labels.shape[0] // self.mesh.size)

    def scores(self, parameters: Any) -> jax.Array:
        return self._joined(
            self._on_each(lambda part, point: part.scores(point)[None], SPLIT, parameters)
        )

    def loss_and_gradient(
        self,
        parameters: Any,
        sample_weight: AnyArray,
        *,
        loss: Loss = LOGISTIC,
        precision: Any = HIGHEST,
    ) -> tuple[jax.Array, jax.Array, Any]:
        def one(part, point, weight):
            return *part.loss_and_gradient(point, weight[0], loss=loss, precision=precision), {}

        return self._added(one, parameters, sample_weight)[:3]

    def evaluate(
        self,
        parameters: Any,
        sample_weight: AnyArray,
        due: Any,
        *,
        loss: Loss = LOGISTIC,
        precision: Any = HIGHEST,
    ) -> tuple[jax.Array, jax.Array, Any, dict[str, jax.Array]]:
        """With the records of the parts, which are means over their sequences of positive weight."""
        how = {"loss": loss, "precision": precision}
        if not hasattr(self.parts, "evaluate"):
            return *self.loss_and_gradient(parameters, sample_weight, **how), {}

        def one(part, point, weight, due):
            *found, extras = part.evaluate(point, weight[0], due, **how)
            count = jnp.sum(weight > 0)
            return *found, jax.tree.map(lambda mean: jnp.where(count > 0, count * mean, 0), extras)

        *found, sums = self._added(one, parameters, sample_weight, due)
        count = jnp.sum(jnp.asarray(sample_weight) > 0)
        return *found, jax.tree.map(lambda total: total / count, sums)

    def measured(self, parameters: Any) -> dict[str, jax.Array]:
        """The same on every device."""
        if not hasattr(self.parts, "measured"):
            return {}
        return self._on_each(lambda part, point: part.measured(point), WHOLE, parameters)

    def only(self, i: AnyArray) -> Any:
        part = jax.tree.map(lambda leaf: leaf[i // self.size], self.parts)
        return part.only(i % self.size)

    def replaced(self, i: AnyArray, other: ShardedObjective) -> ShardedObjective:
        where, place = i // self.size, i % self.size
        replaced = jax.vmap(
            lambda own, theirs: own.replaced(place, theirs)
        )  # which may leave leaves away
        same, new = replaced(self.parts, self.parts), replaced(self.parts, other.parts)
        parts = jax.tree.map(lambda old, others: old.at[where].set(others[where]), same, new)
        return ShardedObjective(
            parts, jnp.asarray(self.labels).at[i].set(other.labels[i]), self.copies, self.mesh
        )

    def replicated(self, tree: Any) -> Any:
        """Inside jit: a tree whose leaves are whole on every device."""
        return jax.lax.with_sharding_constraint(tree, NamedSharding(self.mesh, WHOLE))

    def _added(self, one: Callable, parameters: Any, sample_weight: AnyArray, *more: Any):
        """Loss, scores, gradient and sums of `one`, added up over the parts as one vector."""

        def part_of_sum(part, point, weight, *more):
            value, scores, *sums = one(part, point, weight, *more)
            vector, back = ravel_pytree((value, *sums))
            return back(jax.lax.psum(vector, AXIS)), scores[None]

        n, rows = self.labels.shape[0], (self.mesh.size, self.size)
        weight = (
            jnp.zeros(rows[0] * rows[1], jnp.result_type(sample_weight))
            .at[:n]
            .set(sample_weight)
            .reshape(rows)
        )
        (value, *sums), scores = self._on_each(
            part_of_sum, (WHOLE, SPLIT), parameters, weight, *more
        )
        return value, self._joined(scores), *sums

    def _on_each(self, function: Callable, out: Any, parameters: Any, *more: Any):
        """`function` of a device's part, the parameters, its row of the first of `more` and the others whole."""
        rows = (SPLIT, *(WHOLE,) * len(more))[: len(more)]

        def local(parts, parameters, *more):
            return function(jax.tree.map(lambda leaf: leaf[0], parts), parameters, *more)

        specs = (SPLIT, WHOLE, *rows)
        return jax.shard_map(local, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)(
            self.parts, parameters, *more
        )

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
            f"devices={mesh.devices.size} splits tokens that are in memory, and those of {dataset.name!r} stream from "
            "their file; leave devices= out, or load the data with Dataset.load."
        )
    n, devices = dataset.num_examples, list(mesh.devices.flat)
    size, rows, tree = -(-n // len(devices)), [], None
    for k, device in enumerate(devices):
        if device.process_index == jax.process_index():
            chosen = np.minimum(np.arange(k * size, (k + 1) * size), n - 1)
            part = model.objective(dataset.subset(chosen), dtype, chunk, device.platform)
            leaves, tree = jax.tree.flatten(part)
            rows.append([jax.device_put(np.asarray(leaf)[None], device) for leaf in leaves])
    split = NamedSharding(mesh, SPLIT)
    columns = (list(column) for column in zip(*rows, strict=True))
    parts = [
        jax.make_array_from_single_device_arrays(
            (len(devices), *c[0].shape[1:]), split, c, dtype=c[0].dtype
        )
        for c in columns
    ]
    copies = np.ones(1) if model.copies is None else model.copies
    assert tree is not None  # a mesh has a device of every process
    return ShardedObjective(
        jax.tree.unflatten(tree, parts), dataset.labels.astype(dtype), copies.astype(dtype), mesh
    )


def on_mesh(tree: Any, mesh: Mesh) -> Any:
    """A tree on the devices of a mesh: what is split stays, everything else is whole on every device."""
    whole = NamedSharding(mesh, WHOLE)

    def placed(leaf):
        if isinstance(leaf, jax.Array) and leaf.sharding.device_set == set(mesh.devices.flat):
            return leaf
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, whole, lambda index: array[index])

    return jax.tree.map(placed, tree)
