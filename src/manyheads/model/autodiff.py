"""Any model by automatic differentiation: an Equinox module becomes a model, its derivatives come in chunks.

`as_model` takes what a user hands in. The derivatives below need an objective of the protocol and
nothing else; where a model counts identical copies (N of them), flat vectors are in class
coordinates √N θ, in which inner products are those of the full model.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from manyheads._check import REFUSED, Constraint, checked, shown, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.model.attention import HIGHEST
from manyheads.model.loss import Loss
from manyheads.model.protocol import Model, Objective, scaled

# sequences differentiated together
CHUNK = {"cpu": 256, "gpu": 4096}
EXAMPLE = "an equinox.Module whose __call__(self, tokens, mask) returns one number"


def as_model(thing: Any) -> Any:
    """A model of the protocol: what already is one, or an Equinox module that maps (tokens, mask) to a number.

    The floating-point arrays of the module are its parameters; a field marked
    `eqx.field(static=True)` does not train. `mask` is always given, True for real tokens.
    """
    return checked("model", thing, is_model)


def _accept_model(thing: Any) -> Any:
    if isinstance(thing, Model) and not isinstance(thing, type):
        return thing
    if not isinstance(thing, eqx.Module):
        return REFUSED
    if not callable(thing):
        raise ValueError(
            f"{type(thing).__name__} has no __call__(self, tokens, mask); write {EXAMPLE}."
        )
    parameters, rest = eqx.partition(thing, _trains)
    if not jax.tree.leaves(parameters):
        raise ValueError(
            f"{type(thing).__name__} has no floating-point array to train; store its weights in "
            "fields."
        )
    return ModuleModel(jax.tree.map(np.asarray, parameters), rest)


is_model = Constraint(
    f"a MultiHead, made by zero_start or first_phase, say, or {EXAMPLE}",
    _accept_model,
)


def _trains(leaf: Any) -> bool:
    return eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.floating)


class ModuleModel(eqx.Module):
    """An Equinox module as a model: `parameters` are its floating-point arrays, `rest` is everything else."""

    parameters: Any
    rest: Any

    @property
    def copies(self) -> None:
        return None

    @property
    def module(self) -> Any:
        """The module at these parameters."""
        return eqx.combine(self.parameters, self.rest)

    def displaced(self, displacement: Any) -> ModuleModel:
        moved = jax.tree.map(
            lambda a, b: np.asarray(a) + np.asarray(b), self.parameters, displacement
        )
        return ModuleModel(moved, self.rest)

    def objective(
        self,
        dataset: Dataset,
        dtype: Any = np.float64,
        chunk: int | None = None,
        platform: str = "cpu",
    ) -> ModuleObjective:
        """The module on a dataset, once it is known to return one number for each sequence."""
        n, T, d = checked("dataset", dataset, is_dataset).tokens.shape
        size = min(
            n,
            checked("chunk", chunk, whole())
            if chunk is not None
            else CHUNK["cpu" if platform == "cpu" else "gpu"],
        )
        mask = np.ones((n, T), bool) if dataset.mask is None else dataset.mask
        fixed, static = eqx.partition(self.rest, eqx.is_array)
        leaves, tree = jax.tree.flatten(static)
        result = ModuleObjective(
            chunked(dataset.tokens.astype(dtype), size),
            chunked(mask, size),
            dataset.labels.astype(dtype),
            np.ones(1, dtype),
            fixed,
            (tree, tuple(leaves)),
        )
        self._check_output(
            result, jax.ShapeDtypeStruct((T, d), dtype), jax.ShapeDtypeStruct((T,), bool)
        )
        return result

    def _check_output(self, objective: ModuleObjective, tokens: Any, mask: Any) -> None:
        name = type(self.rest).__name__
        parameters = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, tokens.dtype), self.parameters
        )
        try:
            out = jax.eval_shape(objective.score, parameters, tokens, mask)
        except Exception as error:  # whatever the module raises
            text = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            raise ValueError(
                f"{name} fails on tokens {tokens.shape} with a mask {mask.shape} ({text})."
            ) from None
        if getattr(out, "shape", None) != () or not jnp.issubdtype(out.dtype, jnp.floating):
            got = shown(jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", out))
            raise ValueError(
                f"{name} returns {got} for one sequence; it must return one real number, shape ()."
            )

    def scores(self, dataset: Dataset) -> np.ndarray:
        """The score of every sequence of a dataset, in float64."""
        return scores(self, dataset)

    def __str__(self) -> str:
        leaves = jax.tree.leaves(self.parameters)
        return f"{type(self.rest).__name__}: {sum(leaf.size for leaf in leaves)} parameters in {len(leaves)} arrays"


class ModuleObjective(eqx.Module):
    """A module on a dataset that is cut into chunks; implements the objective of the protocol by autodiff."""

    tokens: Any  # (chunks, size, T, d)
    mask: Any  # (chunks, size, T)
    labels: Any  # (n,)
    copies: Any  # (1,): one copy of everything
    fixed: Any  # arrays of the module that do not train
    static: Any = eqx.field(static=True)  # what is no array: its structure and its leaves

    def score(self, parameters: Any, tokens: Any, mask: Any, precision: Any = HIGHEST) -> jax.Array:
        """The score of one sequence."""
        tree, leaves = self.static
        module = eqx.combine(parameters, self.fixed, jax.tree.unflatten(tree, leaves))
        with jax.default_matmul_precision(precision.name.lower()):
            return module(tokens, mask)

    def scores(self, parameters: Any) -> jax.Array:
        def one_chunk(piece):
            return jax.vmap(lambda X, mask: self.score(parameters, X, mask))(*piece)

        return jax.lax.map(one_chunk, (self.tokens, self.mask)).reshape(-1)[: self.labels.shape[0]]

    def loss_and_gradient(
        self, parameters: Any, sample_weight: Any, *, loss: Loss, precision: Any = HIGHEST
    ) -> tuple[jax.Array, jax.Array, Any]:
        (chunks, size), n = self.tokens.shape[:2], self.labels.shape[0]

        def one_chunk(carry, piece):
            X, mask, y, w = piece
            phi, back = jax.vjp(
                lambda p: jax.vmap(lambda x, m: self.score(p, x, m, precision))(X, mask), parameters
            )
            margins = y * phi
            (gradient,) = back(w * loss.slope(margins) * y)
            part = (jnp.sum(w * loss.value(margins)), gradient)
            return jax.tree.map(jnp.add, carry, part), phi

        start = (jnp.zeros((), self.tokens.dtype), jax.tree.map(jnp.zeros_like, parameters))
        real = np.arange(chunks * size).reshape(chunks, size) < n
        weight = jnp.where(real, chunked(jnp.asarray(sample_weight), size), 0)
        pieces = (self.tokens, self.mask, chunked(jnp.asarray(self.labels), size), weight)
        (total, gradient), phi = jax.lax.scan(one_chunk, start, pieces)
        return total, phi.reshape(-1)[:n], gradient

    def some(self, indices: Any) -> ModuleObjective:
        """These examples, in one chunk."""
        place = (indices // self.tokens.shape[1], indices % self.tokens.shape[1])
        here = (jnp.asarray(a)[place][None] for a in (self.tokens, self.mask))
        labels = jnp.asarray(self.labels)[indices]
        return ModuleObjective(*here, labels, self.copies, self.fixed, self.static)

    def replaced(self, i: Any, other: ModuleObjective) -> ModuleObjective:
        """Example i taken from `other`, which has the same shapes."""
        place = (i // self.tokens.shape[1], i % self.tokens.shape[1])
        tokens = jnp.asarray(self.tokens).at[place].set(other.tokens[place])
        mask = jnp.asarray(self.mask).at[place].set(other.mask[place])
        labels = jnp.asarray(self.labels).at[i].set(other.labels[i])
        return ModuleObjective(tokens, mask, labels, self.copies, self.fixed, self.static)


def chunked(array: Any, size: int) -> Any:
    """Cut the leading axis into pieces of `size`; the last piece repeats the last entry."""
    n = array.shape[0]
    return array[np.minimum(np.arange(-(-n // size) * size), n - 1)].reshape(
        -1, size, *array.shape[1:]
    )


def float64(tree: Any) -> Any:
    """A tree of arrays in NumPy's float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def flatten(tree: Any, factor: Any) -> Any:
    """One vector of all entries, those of a class times its factor."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(scaled(tree, factor))])


def unflatten(vector: Any, like: Any, factor: Any) -> Any:
    """A vector as a tree shaped like `like`, the entries of a class times its factor."""
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    pieces = [
        part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)
    ]
    return scaled(jax.tree.unflatten(tree, pieces), factor)


def scores(model: Any, dataset: Dataset, dtype: Any = np.float64) -> np.ndarray:
    """The score of every sequence under any model, in float64 unless told otherwise."""
    model = as_model(model)
    with jax.enable_x64(np.dtype(dtype) == np.float64):
        parameters = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), model.parameters)
        return np.asarray(_scores(model.objective(dataset, dtype), parameters))


_scores = jax.jit(lambda objective, parameters: objective.scores(parameters))


def loss_and_gradient(model: Any, dataset: Dataset, loss: Loss) -> tuple[float, Any]:
    """Train loss and the gradient of one copy of every parameter, in float64."""
    model, n = as_model(model), dataset.num_examples
    with jax.enable_x64(True):
        objective = model.objective(dataset)
        value, gradient = _loss_and_gradient(
            objective, float64(model.parameters), np.full(n, 1 / n), loss
        )
        return float(value), jax.tree.map(np.asarray, gradient)


@partial(jax.jit, static_argnames="loss")
def _loss_and_gradient(objective, parameters, sample_weight, loss):
    value, _, gradient = objective.loss_and_gradient(
        parameters, sample_weight, loss=loss, precision=HIGHEST
    )
    return value, gradient


def hessian_product(
    objective: Objective, parameters: Any, sample_weight: Any, move: Any, *, loss: Loss
) -> Any:
    """The change of the gradient of one copy when all copies move along `move`; inside jit."""

    def gradient(point):
        return objective.loss_and_gradient(point, sample_weight, loss=loss, precision=HIGHEST)[2]

    return jax.jvp(gradient, (parameters,), (move,))[1]


def score_gradients(
    objective: Objective, parameters: Any, indices: Any, reduce: Any = None
) -> jax.Array:
    """The gradients of the scores of these sequences, a flat row in class coordinates each; inside jit.

    `reduce` is what is kept of a row; all of it by default.
    """

    def one(i):
        gradient = jax.grad(lambda point: objective.some(i[None]).scores(point)[0])(parameters)
        row = flatten(gradient, 1 / jnp.sqrt(objective.copies))
        return row if reduce is None else reduce(row)

    return jax.lax.map(one, indices, batch_size=16)


def gradient_norms(model: Any, dataset: Dataset) -> np.ndarray:
    """The norm of the gradient of every score, over all parameters, in float64."""
    model = as_model(model)
    with jax.enable_x64(True):
        indices = np.arange(dataset.num_examples)
        return np.asarray(
            _gradient_norms(model.objective(dataset), float64(model.parameters), indices)
        )


_gradient_norms = jax.jit(partial(score_gradients, reduce=jnp.linalg.norm))


def slopes(model: Any, dataset: Dataset, direction: Any) -> np.ndarray:
    r"""$\langle\nabla\Phi(X_i), \theta\rangle$ for a move $\theta$ of one copy of every parameter, in float64."""
    model = as_model(model)
    with jax.enable_x64(True):
        return np.asarray(
            _slopes(model.objective(dataset), float64(model.parameters), float64(direction))
        )


_slopes = jax.jit(
    lambda objective, parameters, move: jax.jvp(objective.scores, (parameters,), (move,))[1]
)
