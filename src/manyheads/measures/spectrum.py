r"""The whole spectrum of the Hessian: exactly for small models, as a density for large ones.

The Hessian of H heads has the eigenvalues of the collapsed one, and those of $H^{-c} B_g$ with
multiplicity $N_g - 1$ for every class (`measures.hessian`): at $10^{12}$ heads there are
$10^{12}(Td + d^2)$ of them, in a handful of values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from manyheads import _check
from manyheads._check import check, none, positive, whole
from manyheads.data.budget import fits_memory
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures.hessian import HessianOperator, class_product
from manyheads.measures.rounding import hessian_error
from manyheads.model.autodiff import is_model
from manyheads.model.loss import Loss, get_loss, is_loss

# rows of the collapsed Hessian
LARGEST_DENSE = 4000


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues in increasing order with their multiplicities; `accuracy` is the rounding in an eigenvalue."""

    eigenvalues: np.ndarray
    multiplicities: np.ndarray
    accuracy: float

    @property
    def trace(self) -> float:
        return float(self.eigenvalues @ self.multiplicities)

    def __str__(self) -> str:
        negative = float(self.multiplicities[self.eigenvalues < -self.accuracy].sum())
        return (
            f"{self.multiplicities.sum():.15g} eigenvalues in [{self.eigenvalues[0]:.6g}, "
            f"{self.eigenvalues[-1]:.6g}], "
            f"{negative:.15g} of them negative, trace {self.trace:.6g}, each to {self.accuracy:.1e}"
        )


@check(model=is_model, dataset=is_dataset, loss=is_loss)
def loss_spectrum(model: Any, dataset: Dataset, *, loss: str | Loss = "logistic") -> Spectrum:
    """Every eigenvalue of the Hessian of the train loss of a model (of all H heads), for few distinct parameters."""
    with jax.enable_x64(True):
        operator = HessianOperator.of_loss(model, dataset, get_loss(loss))
        if operator.size > LARGEST_DENSE:
            raise ValueError(
                f"the collapsed Hessian has {operator.size} rows, more than the {LARGEST_DENSE} "
                "done densely; "
                "use spectral_density, or loss_curvature for the two ends."
            )
        pieces = [(np.linalg.eigvalsh(part.dense()), count) for part, count in operator.pieces()]
    values = np.concatenate([eigenvalues for eigenvalues, _ in pieces])
    counts = np.concatenate([np.full(len(eigenvalues), count) for eigenvalues, count in pieces])
    order = np.argsort(values, kind="stable")
    largest = float(np.abs(values).max())
    units = operator.size * largest + hessian_error(model, dataset, get_loss(loss), largest)[0]
    accuracy = float(np.finfo(float).eps) * units
    return Spectrum(values[order], counts[order], accuracy)


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """Density of the eigenvalues (it integrates to one over the full H-head spectrum), from random probes.

    `density` is that of the eigenvalues blurred by a Gaussian of standard deviation `width`;
    `standard_error` comes from the spread of the probes. `trace` is the sum of all eigenvalues with
    its standard error.
    """

    grid: np.ndarray
    density: np.ndarray
    standard_error: np.ndarray
    width: float
    trace: float
    trace_error: float
    num_probes: int

    def __str__(self) -> str:
        return (
            f"spectral density on [{self.grid[0]:.4g}, {self.grid[-1]:.4g}] from {self.num_probes} "
            "probes, blurred by "
            f"{self.width:.2g}; trace {self.trace:.6g} ± {self.trace_error:.2g}"
        )


@check(
    model=is_model,
    dataset=is_dataset,
    loss=is_loss,
    num_probes=whole(2),
    num_products=whole(),
    num_points=whole(2),
    width=positive | none,
    key=_check.key,
)
def spectral_density(
    model: Any,
    dataset: Dataset,
    *,
    loss: str | Loss = "logistic",
    num_probes: int = 10,
    num_products: int = 60,
    num_points: int = 201,
    width: float | None = None,
    key: jax.Array,
) -> SpectralDensity:
    """Stochastic Lanczos quadrature (matfree's tridiagonalization) of the Hessian of the train loss.

    The collapsed Hessian and the blocks within classes are probed separately and added with the
    number of eigenvalues each stands for. `width` defaults to 1/100 of the range.
    """
    with jax.enable_x64(True):
        parts = list(HessianOperator.of_loss(model, dataset, get_loss(loss)).pieces())
        rows = max(part.size for part, _ in parts)
        numbers = float(num_probes) * max(
            rows, min(num_products, rows) * max(num_products, num_points)
        )
        fits_memory(
            "a spectral density of that many probes, products and points",
            8 * numbers,
            "pass fewer of them",
        )
        keys = jax.random.split(key, len(parts))
        quadratures = [
            _quadrature(op, num_probes, num_products, k)
            for (op, _), k in zip(parts, keys, strict=True)
        ]
    counts = np.array([part.size * count for part, count in parts])
    low = min(nodes.min() for nodes, _ in quadratures)
    high = max(nodes.max() for nodes, _ in quadratures)
    width = (high - low) / 100 if width is None else float(width)
    width = width or 1e-12
    grid = np.linspace(low - 4 * width, high + 4 * width, num_points)
    by_probe, traces = np.zeros((num_probes, num_points)), np.zeros(num_probes)
    for (nodes, weights), count in zip(quadratures, counts, strict=True):
        blur = np.exp(-0.5 * ((grid - nodes[:, :, None]) / width) ** 2) / (
            width * np.sqrt(2 * np.pi)
        )
        by_probe += count / counts.sum() * np.einsum("pk,pkx->px", weights, blur)
        traces += count * np.sum(weights * nodes, axis=1)
    root = np.sqrt(num_probes)
    return SpectralDensity(
        grid,
        by_probe.mean(0),
        by_probe.std(0, ddof=1) / root,
        width,
        float(traces.mean()),
        float(traces.std(ddof=1) / root),
        num_probes,
    )


def _quadrature(
    operator: HessianOperator, num_probes, num_products, key
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the Gauss quadratures that random signs give, one row per probe."""
    from matfree import decomp

    depth = min(num_products, operator.size)
    tridiagonalize = decomp.tridiag_sym(depth, materialize=False)

    def one_probe(signs):
        unit = signs / np.sqrt(operator.size)
        return tridiagonalize(
            lambda v, point: class_product(point, v), unit, operator.point
        ).J_small

    probes = jax.random.rademacher(key, (num_probes, operator.size)).astype(float)
    diagonals, offs = jax.jit(lambda rows: jax.lax.map(one_probe, rows))(probes)
    nodes, weights = [], []
    for a, b in zip(np.asarray(diagonals), np.asarray(offs), strict=True):
        # an exhausted Krylov space (a zero matrix, after one product) leaves NaN: what came before is all there is
        good = np.isfinite(a) & np.concatenate([[True], np.isfinite(b)])
        known = depth if good.all() else max(1, int(np.argmin(good)))
        a, b = a[:known], b[: known - 1]
        values, vectors = np.linalg.eigh(np.diag(a) + np.diag(b, 1) + np.diag(b, -1))
        nodes.append(np.pad(values, (0, depth - known), mode="edge"))
        weights.append(np.pad(vectors[0] ** 2, (0, depth - known)))
    return np.array(nodes), np.array(weights)
