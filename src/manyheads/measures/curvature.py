r"""Extreme eigenvalues of the Hessian of the train loss, and of the score of one sequence, for any model.

Each eigenvalue comes with the norm of its residual $\|\nabla^2\hat L\, v - \lambda v\|$ plus what
rounding may do to the Hessian, which together bound its distance to the spectrum, and with a flag
that says whether the accuracy asked for was reached; it was, too, where the whole Hessian is zero
to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from scipy.sparse import eye_array
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, aslinearoperator, eigsh

from manyheads import _check
from manyheads._check import check, many, none, one_of, options_of, share, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures.hessian import HessianOperator
from manyheads.measures.rounding import hessian_error
from manyheads.model.autodiff import is_model
from manyheads.model.loss import Loss, get_loss, is_loss
from manyheads.model.variants import attention_of
from manyheads.training.progress import Bar
from manyheads.training.trajectory import Trajectory, is_trajectory

# parameters; below, the whole matrix is cheaper than a Lanczos
DENSE_UP_TO = 400


@dataclass(frozen=True, eq=False)
class Eigenvalue:
    """One eigenvalue of the Hessian with a unit eigenvector; for attention, that of all H heads.

    `direction` moves one head of each class, or every parameter of another model. `within_class` is
    None if all members of a class move together; otherwise the class whose members move against
    each other (one by +direction, another by -direction, over √2).
    """

    value: float
    residual: float
    converged: bool
    direction: Any
    within_class: int | None

    def __str__(self) -> str:
        note = "" if self.converged else ", NOT CONVERGED"
        how = (
            ""
            if self.within_class is None
            else f", members of class {self.within_class} against each other"
        )
        return f"{self.value:.10g} (residual {self.residual:.1e}{note}{how})"


@dataclass(frozen=True, eq=False)
class Curvature:
    """Smallest and largest eigenvalue of a Hessian, how they were found, and at what cost."""

    smallest: Eigenvalue
    largest: Eigenvalue
    num_parameters: float
    num_products: int
    method: str
    tolerance: float

    @property
    def converged(self) -> bool:
        return self.smallest.converged and self.largest.converged

    def __str__(self) -> str:
        return (
            f"Hessian of {self.num_parameters:.15g} parameters ({self.method}, {self.num_products} "
            "products):\n"
            f"  smallest eigenvalue {self.smallest}\n  largest eigenvalue  {self.largest}"
        )


@check(
    model=is_model,
    dataset=is_dataset,
    loss=is_loss,
    tolerance=share,
    max_products=whole(10),
    method=one_of("dense", "lanczos") | none,
    seed=_check.seed,
)
def loss_curvature(
    model: Any,
    dataset: Dataset,
    *,
    loss: str | Loss = "logistic",
    tolerance: float = 1e-7,
    max_products: int = 5000,
    method: str | None = None,
    seed: int = 0,
) -> Curvature:
    """λ_min and λ_max of the Hessian of the train loss, over all parameters of a model (of all H heads).

    `tolerance` is the residual asked for, relative to the larger of the two eigenvalues in absolute
    value. `method` is "dense", "lanczos" (ARPACK), or None to choose by size. Lanczos starts from a
    random vector drawn with `seed`.
    """
    return _extremes(model, dataset, get_loss(loss), tolerance, max_products, method, seed)


@check(
    model=is_model,
    dataset=is_dataset,
    index=whole(0),
    tolerance=share,
    max_products=whole(10),
    method=one_of("dense", "lanczos") | none,
    seed=_check.seed,
)
def score_curvature(
    model: Any,
    dataset: Dataset,
    index: int,
    *,
    tolerance: float = 1e-7,
    max_products: int = 5000,
    method: str | None = None,
    seed: int = 0,
) -> Curvature:
    """λ_min and λ_max of the Hessian of the model's score for sequence `index` of a data set."""
    return _extremes(model, dataset.subset([index]), None, tolerance, max_products, method, seed)


def _extremes(
    model, dataset, loss: Loss | None, tolerance, max_products, method, seed
) -> Curvature:
    """Of the train loss, or without one of the summed scores."""
    with jax.enable_x64(True):
        build = (
            HessianOperator.of_score
            if loss is None
            else partial(HessianOperator.of_loss, loss=loss)
        )
        operator = build(model, dataset)
        if operator.size < 4:
            method = "dense"
        method = method or ("dense" if operator.size <= DENSE_UP_TO else "lanczos")
        search = _Search(method, tolerance, max_products, seed)
        return search.extremes(operator, partial(hessian_error, model, dataset, loss))


@dataclass(frozen=True)
class _Search:
    """Both ends of the spectrum of an operator, in one of two ways."""

    method: str
    tolerance: float
    max_products: int
    seed: int

    def extremes(
        self, operator: HessianOperator, error: Callable[[float], tuple[float, float]]
    ) -> Curvature:
        """`error` is `hessian_error` for a largest eigenvalue."""
        several = np.flatnonzero(operator.counts >= 2)
        within = None
        if len(
            several
        ):  # what couples the heads is positive semidefinite: only the lower end can lie within a class
            inner = operator.within(several)
            value, vector = self.ends(inner)[0]
            within = (inner, value, *_one_class(inner, vector, several, len(operator.counts)))
        if within is not None and self.method == "lanczos" and len(several) == len(operator.counts):
            # every class has two members or more, so nothing lies below the lowest value within one
            smallest, (high, top) = within, self.arpack(operator, "LA", 0.0)
        else:
            (low, bottom), (high, top) = self.ends(operator)
            smallest = (operator, low, bottom, operator.direction(bottom), None)
            if within is not None and within[1] < low:
                smallest = within
        largest = (operator, high, top, operator.direction(top), None)
        scale = max(abs(smallest[1]), abs(high))
        rounding, whole = (float(np.finfo(float).eps) * size for size in error(scale))
        results = []
        for op, value, vector, direction, where in (smallest, largest):
            residual = float(np.linalg.norm(op(vector) - value * vector))
            # a Hessian of zero to rounding
            good = residual <= self.tolerance * scale or scale + residual <= whole
            results.append(
                Eigenvalue(float(value), residual + rounding, bool(good), direction, where)
            )
        products = operator.products + (0 if within is None else within[0].products)
        total = operator.size / len(operator.counts) * float(operator.counts.sum())
        return Curvature(*results, total, products, self.method, self.tolerance)

    def ends(
        self, operator: HessianOperator
    ) -> tuple[tuple[float, np.ndarray], tuple[float, np.ndarray]]:
        """Smallest and largest eigenvalue, with their vectors.

        By Lanczos, the largest first, then the smallest of the operator moved down by it: ARPACK
        measures both by one scale.
        """
        # fewer are too few for ARPACK
        if self.method == "dense" or operator.size < 4:
            values, vectors = np.linalg.eigh(operator.dense())
            return (values[0], vectors[:, 0]), (values[-1], vectors[:, -1])
        top = self.arpack(operator, "LA", 0.0)
        low = self.arpack(operator, "SA", -abs(top[0]))
        scale = max(abs(low[0]), abs(top[0]))
        if (
            np.linalg.norm(operator(top[1]) - top[0] * top[1]) > self.tolerance * scale
        ):  # the lower end is the larger
            top = self.arpack(operator, "LA", abs(low[0]))
        return low, top

    def arpack(
        self, operator: HessianOperator, which: str, shift: float
    ) -> tuple[float, np.ndarray]:
        size, products = operator.size, self.max_products // 2
        start = np.random.default_rng(self.seed).standard_normal(size)
        ncv = min(size - 1, 40, max(3, products))
        # the first sweep costs ncv products, each restart about half as many
        sweeps = max(1, 2 * products // ncv - 1)
        shifted = operator + shift * aslinearoperator(eye_array(size))
        try:
            values, vectors = eigsh(
                shifted, k=1, which=which, tol=self.tolerance / 4, ncv=ncv, maxiter=sweeps, v0=start
            )
        except ArpackNoConvergence as stopped:
            values, vectors = stopped.eigenvalues, stopped.eigenvectors
        except ArpackError:
            values, vectors = np.zeros(0), np.zeros((size, 0))
        if len(values):
            return float(values[0] - shift), vectors[:, 0]
        # a matrix of zeros takes the start vector to zero; the residual tells whether it was one
        unit = start / np.linalg.norm(start)
        return float(unit @ shifted.matvec(unit) - shift), unit


def _one_class(
    inner: HessianOperator, vector, several, num_classes: int
) -> tuple[np.ndarray, Any, int]:
    """An eigenvector of the block-diagonal part, restricted to the class that it lives on most.

    Classes with a common eigenvalue may share a vector; the part on each of them is an eigenvector
    too.
    """
    move = inner.direction(vector)
    sizes = sum(
        np.sum(leaf.reshape(len(several), -1) ** 2, axis=1) for leaf in jax.tree.leaves(move)
    )
    chosen = int(np.argmax(sizes))
    only = (np.arange(len(several)) == chosen) / np.sqrt(sizes[chosen])
    move = jax.tree.map(lambda leaf: leaf * only.reshape(-1, *(1,) * (leaf.ndim - 1)), move)

    def embed(leaf):
        full = np.zeros((num_classes, *leaf.shape[1:]))
        full[several] = leaf
        return full

    unit = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(move)])
    return unit, jax.tree.map(embed, move), int(several[chosen])


@dataclass(frozen=True, eq=False)
class CurvaturePath:
    """Extreme eigenvalues at several points: steps of a run, or positions on a segment between 0 and 1."""

    positions: np.ndarray
    smallest: np.ndarray
    largest: np.ndarray
    residual: np.ndarray  # (points, 2)
    converged: np.ndarray  # (points,)
    kind: str

    def __str__(self) -> str:
        rows = [
            f"  {self.kind} {p:>10.6g}: smallest {a:>14.6e}, largest {b:>14.6e}, residual "
            f"{r.max():.1e}" + ("" if ok else "  NOT CONVERGED")
            for p, a, b, r, ok in zip(
                self.positions,
                self.smallest,
                self.largest,
                self.residual,
                self.converged,
                strict=True,
            )
        ]
        return "\n".join([f"eigenvalues of the Hessian at {len(self.positions)} points", *rows])


@check(
    trajectory=is_trajectory,
    dataset=is_dataset,
    steps=many(whole(0)) | none,
)
def curvature_along(
    trajectory: Trajectory,
    dataset: Dataset,
    *,
    steps: Sequence[int] | None = None,
    **options,
) -> CurvaturePath:
    """Extreme eigenvalues at the snapshots of a run (or at these `steps` of them), start and end included.

    `options` are those of `loss_curvature`; the loss is the one of the run.
    """
    chosen = (
        np.union1d(trajectory.snapshot_steps, [0, trajectory.last_step])
        if steps is None
        else np.asarray(steps)
    )
    options = options_of(loss_curvature, options)
    options.setdefault("loss", trajectory.settings.get("loss", "logistic"))
    models = (trajectory.model(step) for step in chosen.tolist())
    return _path(models, chosen, dataset, "step", options)


@check(
    first=is_model,
    second=is_model,
    dataset=is_dataset,
    num_points=whole(2),
)
def curvature_on_segment(
    first: Any,
    second: Any,
    dataset: Dataset,
    *,
    num_points: int = 5,
    **options,
) -> CurvaturePath:
    """Extreme eigenvalues at evenly spaced points of the segment between two models of one kind."""
    options = options_of(loss_curvature, options)
    shapes, counts = zip(
        *((jax.tree.map(np.shape, m.parameters), m.copies) for m in (first, second)), strict=True
    )
    if shapes[0] != shapes[1] or not np.array_equal(*counts):
        raise ValueError(
            "the two models have different shapes or multiplicities; a segment needs the same "
            "classes of heads."
        )
    kinds = [_kind(m) for m in (first, second)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"one model has {kinds[0]}, the other {kinds[1]}; no segment joins them.")
    emptied = [m.displaced(jax.tree.map(np.negative, m.parameters)) for m in (first, second)]
    if not eqx.tree_equal(*emptied):
        raise ValueError(
            "the two models differ in what does not train (a frozen block, a setting); make that "
            "equal."
        )
    positions = np.linspace(0.0, 1.0, num_points)
    move = jax.tree.map(
        lambda a, b: np.asarray(b, float) - np.asarray(a, float),
        first.parameters,
        second.parameters,
    )
    models = (first.displaced(jax.tree.map(lambda leaf, s=s: s * leaf, move)) for s in positions)
    return _path(models, positions, dataset, "position", options)


def _kind(model: Any) -> str:
    full = attention_of(model)
    return (
        type(model).__name__
        if full is None
        else f"decoder={full.decoder!r}, exponent={full.exponent:g}"
    )


def _path(models, positions, dataset, kind, options) -> CurvaturePath:
    found = []
    with Bar("curvature", len(positions)) as bar:
        for done, model in enumerate(models, 1):
            found.append(loss_curvature(model, dataset, **options))
            bar.show(done)
    return CurvaturePath(
        np.asarray(positions, float),
        np.array([c.smallest.value for c in found]),
        np.array([c.largest.value for c in found]),
        np.array([[c.smallest.residual, c.largest.residual] for c in found]),
        np.array([c.converged for c in found]),
        kind,
    )
