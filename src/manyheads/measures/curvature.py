r"""Extreme eigenvalues of the Hessian of the train loss, and of the score of one sequence, for the full H-head model.

Each eigenvalue comes with the norm of its residual $\|\nabla^2\hat L\, v - \lambda v\|$, which bounds its distance to
the spectrum, and with a flag that says whether the accuracy asked for was reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, aslinearoperator, eigsh

from manyheads.data.dataset import Dataset
from manyheads.measures.hessian import HessianOperator
from manyheads.model.attention import Heads, MultiHead
from manyheads.model.loss import Loss, get_loss
from manyheads.training.progress import Bar
from manyheads.training.trajectory import Trajectory

DENSE_UP_TO = 400  # parameters; below, the whole matrix is cheaper than a Lanczos


@dataclass(frozen=True, eq=False)
class Eigenvalue:
    """One eigenvalue of the H-head Hessian with a unit eigenvector.

    `direction` moves one head of each class. `within_class` is None if all members of a class move together; otherwise
    the class whose members move against each other (one by +direction, another by -direction, over √2).
    """

    value: float
    residual: float
    converged: bool
    direction: Heads
    within_class: int | None

    def __str__(self) -> str:
        note = "" if self.converged else ", NOT CONVERGED"
        how = "" if self.within_class is None else f", members of class {self.within_class} against each other"
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
            f"Hessian of {self.num_parameters:.15g} parameters ({self.method}, {self.num_products} products):\n"
            f"  smallest eigenvalue {self.smallest}\n  largest eigenvalue  {self.largest}"
        )


def loss_curvature(
    model: MultiHead,
    dataset: Dataset,
    *,
    loss: str | Loss = "logistic",
    tolerance: float = 1e-7,
    max_products: int = 5000,
    method: str | None = None,
    seed: int = 0,
) -> Curvature:
    """λ_min and λ_max of the Hessian of the train loss, over all parameters of all H heads.

    `tolerance` is the residual asked for, relative to the larger of the two eigenvalues in absolute value. `method` is
    "dense", "lanczos" (ARPACK), or None to choose by size. Lanczos starts from a random vector drawn with `seed`.
    """
    _check(tolerance, max_products, method)
    with jax.enable_x64(True):
        return _extremes(
            HessianOperator.of_loss(model, dataset, get_loss(loss)), model, tolerance, max_products, method, seed
        )


def score_curvature(
    model: MultiHead,
    dataset: Dataset,
    index: int,
    *,
    tolerance: float = 1e-7,
    max_products: int = 5000,
    method: str | None = None,
    seed: int = 0,
) -> Curvature:
    """λ_min and λ_max of the Hessian of the model's score for sequence `index` of a data set."""
    _check(tolerance, max_products, method)
    one = dataset.subset([index])
    with jax.enable_x64(True):
        return _extremes(HessianOperator.of_score(model, one), model, tolerance, max_products, method, seed)


def _check(tolerance, max_products, method) -> None:
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance={tolerance:g} is outside (0, 1); 1e-7 is the default.")
    if max_products < 10:
        raise ValueError(f"max_products={max_products} is too few to find an eigenvalue; pass 100 or more.")
    if method not in (None, "dense", "lanczos"):
        raise ValueError(f"method={method!r} is not known; choose 'dense', 'lanczos', or None to choose by size.")


def _extremes(operator: HessianOperator, model: MultiHead, tolerance, max_products, method, seed) -> Curvature:
    method = method or ("dense" if operator.size <= DENSE_UP_TO else "lanczos")
    if operator.size < 4:
        method = "dense"
    ends = _dense_ends if method == "dense" else _lanczos_ends
    several = np.flatnonzero(model.multiplicity >= 2)
    within = None
    if len(several):  # what couples the heads is positive semidefinite: only the lower end can lie within a class
        inner = operator.within(several)
        value, vector = ends(inner, tolerance, max_products, seed)[0]
        within = (inner, value, *_one_class(inner, vector, several, model))
    if within is not None and method == "lanczos" and len(several) == model.num_classes:
        # every class has two members or more, so nothing lies below the lowest value within one
        smallest, (high, top) = within, _lanczos_top(operator, tolerance, max_products, seed)
    else:
        (low, bottom), (high, top) = ends(operator, tolerance, max_products, seed)
        smallest = (operator, low, bottom, operator.direction(bottom), None)
        if within is not None and within[1] < low:
            smallest = within
    largest = (operator, high, top, operator.direction(top), None)
    products = operator.products + (0 if within is None else within[0].products)
    scale = max(abs(smallest[1]), abs(high))
    results = []
    for op, value, vector, direction, where in (smallest, largest):
        residual = float(np.linalg.norm(op(vector) - value * vector))
        products += 1
        good = residual <= tolerance * scale
        results.append(Eigenvalue(float(value), residual, bool(good), direction, where))
    per_head = operator.size / model.num_classes
    return Curvature(*results, per_head * model.num_heads, products, method, tolerance)


def _one_class(inner: HessianOperator, vector, several, model: MultiHead) -> tuple[np.ndarray, Heads, int]:
    """An eigenvector of the block-diagonal part, restricted to the class that it lives on most.

    Classes with a common eigenvalue may share a vector; the part on each of them is an eigenvector too.
    """
    move = inner.direction(vector)
    sizes = sum(np.sum(leaf.reshape(len(several), -1) ** 2, axis=1) for leaf in jax.tree.leaves(move))
    chosen = int(np.argmax(sizes))
    only = (np.arange(len(several)) == chosen) / np.sqrt(sizes[chosen])
    move = jax.tree.map(lambda leaf: leaf * only.reshape(-1, *(1,) * (leaf.ndim - 1)), move)

    def embed(leaf):
        full = np.zeros((model.num_classes, *leaf.shape[1:]))
        full[several] = leaf
        return full

    unit = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(move)])
    return unit, jax.tree.map(embed, move), int(several[chosen])


def _dense_ends(operator, tolerance, max_products, seed):
    values, vectors = np.linalg.eigh(operator.dense())
    return (values[0], vectors[:, 0]), (values[-1], vectors[:, -1])


def _lanczos_top(operator, tolerance, max_products, seed):
    start = np.random.default_rng(seed).standard_normal(operator.size)
    return _arpack(operator, operator.size, 0.0, "LA", tolerance / 4, max_products // 2, start)


def _lanczos_ends(operator, tolerance, max_products, seed):
    """The largest, then the smallest of the operator moved down by it, so that ARPACK measures both by one scale."""
    start = np.random.default_rng(seed).standard_normal(operator.size)
    top = _arpack(operator, operator.size, 0.0, "LA", tolerance / 4, max_products // 2, start)
    shift = abs(top[0])
    low = _arpack(operator, operator.size, -shift, "SA", tolerance / 4, max_products // 2, start)
    scale = max(abs(low[0]), shift)
    if np.linalg.norm(operator(top[1]) - top[0] * top[1]) > tolerance * scale:  # the lower end was the larger one
        top = _arpack(operator, operator.size, abs(low[0]), "LA", tolerance / 4, max_products // 2, start)
    return low, top


def _arpack(product, size, shift, which, tolerance, max_products, start) -> tuple[float, np.ndarray]:
    ncv = min(size - 1, 40, max(3, max_products))
    operator = aslinearoperator(_Shifted(product, size, shift))
    # the first sweep costs ncv products, each restart about half as many
    sweeps = max(1, 2 * max_products // ncv - 1)
    try:
        values, vectors = eigsh(operator, k=1, which=which, tol=tolerance, ncv=ncv, maxiter=sweeps, v0=start)
    except ArpackNoConvergence as stopped:
        if len(stopped.eigenvalues) == 0:
            return _rayleigh(operator, start, shift)
        values, vectors = stopped.eigenvalues, stopped.eigenvectors
    except ArpackError:  # a matrix of zeros takes the start vector to zero; the residual tells whether it was one
        return _rayleigh(operator, start, shift)
    return float(values[0] - shift), vectors[:, 0]


class _Shifted:
    """The operator plus a multiple of the identity, as SciPy asks for it."""

    dtype = np.dtype(np.float64)

    def __init__(self, product, size: int, shift: float):
        self.product, self.shape, self.shift = product, (size, size), shift

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self.product(v) + self.shift * v


def _rayleigh(operator, vector, shift) -> tuple[float, np.ndarray]:
    unit = vector / np.linalg.norm(vector)
    return float(unit @ operator.matvec(unit) - shift), unit


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
            f"  {self.kind} {p:>10.6g}: smallest {a:>14.6e}, largest {b:>14.6e}, residual {r.max():.1e}"
            + ("" if ok else "  NOT CONVERGED")
            for p, a, b, r, ok in zip(
                self.positions, self.smallest, self.largest, self.residual, self.converged, strict=True
            )
        ]
        return "\n".join([f"eigenvalues of the Hessian at {len(self.positions)} points", *rows])


def curvature_along(
    trajectory: Trajectory, dataset: Dataset, *, steps: Sequence[int] | None = None, progress: bool = False, **options
) -> CurvaturePath:
    """Extreme eigenvalues at the snapshots of a run (or at these `steps` of them), start and end included.

    `options` are those of `loss_curvature`; the loss is the one of the run.
    """
    chosen = np.union1d(trajectory.snapshot_steps, [0, trajectory.last_step]) if steps is None else np.asarray(steps)
    options.setdefault("loss", trajectory.settings.get("loss", "logistic"))
    models = (trajectory.model(int(step)) for step in chosen)
    return _path(models, chosen, dataset, "step", progress, options)


def curvature_on_segment(
    first: MultiHead, second: MultiHead, dataset: Dataset, *, num_points: int = 5, progress: bool = False, **options
) -> CurvaturePath:
    """Extreme eigenvalues at evenly spaced points of the segment between two models with the same classes of heads."""
    if num_points < 2:
        raise ValueError(f"num_points={num_points} must be at least 2, the two ends of the segment.")
    shapes = [jax.tree.map(np.shape, m.heads) for m in (first, second)]
    if shapes[0] != shapes[1] or not np.array_equal(first.multiplicity, second.multiplicity):
        raise ValueError(
            "the two models have different shapes or multiplicities; a segment needs the same classes of heads."
        )
    kinds = [f"decoder={m.decoder!r}, exponent={m.exponent:g}" for m in (first, second)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"one model has {kinds[0]}, the other {kinds[1]}; no segment joins them.")
    positions = np.linspace(0.0, 1.0, num_points)

    def between(s):
        return first.replace_heads(
            jax.tree.map(
                lambda a, b: (1 - s) * np.asarray(a, float) + s * np.asarray(b, float), first.heads, second.heads
            )
        )

    return _path(map(between, positions), positions, dataset, "position", progress, options)


def _path(models, positions, dataset, kind, progress, options) -> CurvaturePath:
    found = []
    with Bar(len(positions), 0, progress, "curvature") as bar:
        for done, model in enumerate(models, 1):
            found.append(loss_curvature(model, dataset, **options))
            bar.show(done, unit="points")
    return CurvaturePath(
        np.asarray(positions, float),
        np.array([c.smallest.value for c in found]),
        np.array([c.largest.value for c in found]),
        np.array([[c.smallest.residual, c.largest.residual] for c in found]),
        np.array([c.converged for c in found]),
        kind,
    )
