"""What a model offers to be trained and measured, and the norms of the full model.

No class has to be inherited from: whatever has these attributes is a model. `MultiHead` has its own
closed forms; `manyheads.model.autodiff` makes a model of any Equinox module that maps (tokens,
mask) to a number.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from manyheads._types import AnyArray
from manyheads.data.dataset import Dataset
from manyheads.model.loss import Loss


@runtime_checkable
class Model(Protocol):
    """Parameters and the objective they have on a dataset."""

    @property
    def parameters(self) -> Any:
        """A pytree of the arrays that train. A frozen block is not in it (None is an empty subtree)."""

    @property
    def copies(self) -> np.ndarray | None:
        """How many identical copies the leading axis of every leaf stands for; None: one of each leaf."""

    def displaced(self, displacement: Any) -> Self:
        """The model at its parameters plus `displacement`, in NumPy."""
        ...

    def objective(
        self,
        dataset: Dataset,
        dtype: Any = np.float64,
        chunk: int | None = None,
        platform: str = "cpu",
    ) -> Objective:
        """The loss on `dataset` as a function of the parameters; raises ValueError if the model does not fit it."""
        ...


class Objective(Protocol):
    """Scores, loss and gradient on a fixed dataset, as functions of the parameters.

    A pytree (an `equinox.Module`, say) whose leaves are arrays, so that it passes through jit, vmap
    and scan.

    Two methods are optional. `evaluate(parameters, sample_weight, due, *, loss, precision)` is
    `loss_and_gradient` with a fourth result, a dict of records that come out of the same
    evaluation, needed where the traced flag `due` is set. `measured(parameters)` is a dict of
    further records of a point. Both may only use names in `trajectory.RECORDS`. On several devices
    each has the objective of its part: the records of `evaluate` must be means over the sequences
    of positive weight, and those of `measured` must not depend on the data.
    """

    @property
    def labels(self) -> AnyArray:
        """(n,), +1 or -1."""
        ...

    @property
    def copies(self) -> AnyArray:
        """(classes,) as `Model.copies`; ones of shape (1,) where that is None."""
        ...

    def scores(self, parameters: Any) -> jax.Array:
        """(n,)."""
        ...

    def loss_and_gradient(
        self, parameters: Any, sample_weight: AnyArray, *, loss: Loss, precision: Any = ...
    ) -> tuple[jax.Array, jax.Array, Any]:
        r"""Loss $\sum_i w_i\ell(y_i f(X_i))$, the scores, and the gradient of one copy of each leaf.

        `loss` may close over traced values: call it, and do not make it a static argument of a jit
        of your own.
        """
        ...

    def replaced(self, i: AnyArray, other: Self) -> Self:
        """With example i taken from `other`, made by the same model from data of the same shape."""
        ...

    def some(self, indices: AnyArray) -> Self:
        """These examples, an array of whole numbers, in this order."""
        ...


def num_copies(model: Model) -> float:
    """H for a model of H heads; 1 where nothing is repeated."""
    return 1.0 if model.copies is None else float(np.sum(model.copies))


def _rows(leaf: jax.Array) -> jax.Array:
    return leaf.reshape(leaf.shape[0] if leaf.ndim else 1, -1)


def inner(copies: AnyArray, a: Any, b: Any) -> jax.Array:
    """Inner product of the full model: every copy counts."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jnp.asarray(sum(jnp.sum(copies * jnp.sum(_rows(x * y), axis=1)) for x, y in pairs))


def norm(copies: AnyArray, tree: Any) -> jax.Array:
    r"""$(\sum_g N_g \|\cdot\|^2)^{1/2}$, the norm of the full model; no square overflows or underflows."""
    leaves = jax.tree.leaves(tree)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves]))
    unit = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1.0)
    squares = (jnp.sum(copies * jnp.sum(_rows(leaf / unit) ** 2, axis=1)) for leaf in leaves)
    return unit * jnp.sqrt(sum(squares))


def scaled(tree: Any, factor: AnyArray) -> Any:
    """Every leaf times `factor`, one number for all or one for each entry of the leading axis."""

    def one(leaf):
        by_row = jnp.reshape(factor, (-1, *(1,) * (leaf.ndim - 1)) if leaf.ndim else ())
        return leaf * by_row

    return jax.tree.map(one, tree)
