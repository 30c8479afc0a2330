"""How the tangent kernel moves: along a run, and towards infinitely many Gaussian heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from manyheads import _check
from manyheads._check import check, many, none, not_negative, one_of, real, whole
from manyheads._names import DECODERS
from manyheads.data.budget import FEWER, descent_seconds, fits_memory, fits_time
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.measures.kernel import MEMORY, tangent_kernel
from manyheads.training.start import gaussian_start
from manyheads.training.trajectory import Trajectory, is_trajectory


@dataclass(frozen=True, eq=False)
class KernelDrift:
    """How lazy a run was: how far the tangent kernel is from that of the start, at each step.

    `relative_change` is the Frobenius norm of the difference over that of the first kernel,
    `alignment` the cosine between the two. A kernel that does not move is what the linearized model
    assumes. `accuracy` is the largest rounding in a `relative_change`.
    """

    steps: np.ndarray
    relative_change: np.ndarray
    alignment: np.ndarray
    accuracy: float

    def __str__(self) -> str:
        rows = [
            f"  step {k:>8d}: moved by {c:.4g} of its norm, cosine with the start {a:.6f}"
            for k, c, a in zip(self.steps, self.relative_change, self.alignment, strict=True)
        ]
        return "\n".join([f"tangent kernel along the run (changes to {self.accuracy:.1e})", *rows])


@check(
    trajectory=is_trajectory,
    dataset=is_dataset,
    steps=many(whole(0)) | none,
    memory=real(low=1e5),
)
def kernel_drift(
    trajectory: Trajectory,
    dataset: Dataset,
    *,
    steps: Sequence[int] | None = None,
    memory: float = MEMORY,
) -> KernelDrift:
    """The drift of the tangent kernel at the snapshots of a run (or at these `steps`), start and end included."""
    chosen = (
        np.union1d(trajectory.snapshot_steps, [0, trajectory.last_step])
        if steps is None
        else np.asarray(steps)
    )
    first = tangent_kernel(trajectory.start, dataset, memory=memory)
    K0 = first.matrix
    size = np.linalg.norm(K0)
    change, cosine, rounding = [], [], []
    for step in chosen.tolist():
        kernel = tangent_kernel(trajectory.model(step), dataset, memory=memory)
        K = kernel.matrix
        change.append(np.linalg.norm(K - K0) / size)
        cosine.append(np.sum(K * K0) / (np.linalg.norm(K) * size))
        # entries to accuracy times the norms of two gradients: a matrix of that many times the trace
        rounding.append(
            (kernel.accuracy * np.trace(K) + (1 + change[-1]) * first.accuracy * np.trace(K0))
            / size
        )
    return KernelDrift(
        chosen.astype(np.int64), np.array(change), np.array(cosine), float(max(rounding))
    )


@dataclass(frozen=True, eq=False)
class KernelLimit:
    """The kernel of infinitely many Gaussian heads: a Monte Carlo mean with the standard error of every entry."""

    matrix: np.ndarray
    standard_error: np.ndarray
    num_draws: int

    @property
    def accuracy(self) -> float:
        """Three standard errors of an entry, relative to the norms of its two features."""
        norms = np.sqrt(np.maximum(self.matrix.diagonal(), 0.0))
        sizes = np.outer(norms, norms)
        errors = 3 * self.standard_error + float(np.finfo(float).eps) * sizes
        return float(np.max(np.divide(errors, sizes, out=np.zeros_like(errors), where=sizes > 0)))

    def __str__(self) -> str:
        worst = float(np.max(self.standard_error) / np.max(np.abs(self.matrix)))
        return (
            f"limit kernel {self.matrix.shape[0]}x{self.matrix.shape[1]} from {self.num_draws} "
            "Gaussian heads, "
            f"trace {np.trace(self.matrix):.6g}, largest standard error {worst:.2e} of the largest "
            "entry"
        )


@check(
    dataset=is_dataset,
    key=_check.key,
    key_query_scale=not_negative,
    readout_scale=not_negative,
    decoder=one_of(*DECODERS),
    rank=whole() | none,
    num_draws=whole(),
    num_batches=whole(2),
    memory=real(low=1e5),
)
def gaussian_limit(
    dataset: Dataset,
    *,
    key: jax.Array,
    key_query_scale: float = 1.0,
    readout_scale: float = 1.0,
    decoder: str = "full",
    rank: int | None = None,
    num_draws: int = 1024,
    num_batches: int = 32,
    memory: float = MEMORY,
) -> KernelLimit:
    r"""$E\langle\nabla\Phi(X_i), \nabla\Phi(X_j)\rangle$ over one head of `gaussian_start`: the limit of many heads.

    The draws are made in `num_batches` independent batches, whose spread gives the standard error.
    """
    if num_batches < 2 or num_draws < num_batches:
        raise ValueError(
            f"num_draws={num_draws} in num_batches={num_batches}: at least 2 batches with one draw "
            "each are needed "
            "for a standard error; pass num_draws=1024."
        )
    per_batch = -(-num_draws // num_batches)
    n = dataset.num_examples
    fits_memory(f"a limit kernel of {n:,} x {n:,} entries", 7.0 * 8 * n * n, FEWER)
    one = descent_seconds(num_batches, n, dataset.num_tokens, dataset.dim, per_batch)
    fits_time(f"drawing {num_draws:,} heads in {num_batches:,} batches", one, "pass fewer draws")
    total, squares = np.zeros((n, n)), np.zeros((n, n))
    for batch_key in jax.random.split(key, num_batches):
        heads = gaussian_start(
            per_batch,
            num_tokens=dataset.num_tokens,
            dim=dataset.dim,
            key=batch_key,
            key_query_scale=key_query_scale,
            readout_scale=readout_scale,
            decoder=decoder,
            rank=rank,
        )
        # 1/sqrt(H) twice: the mean over the batch
        K = tangent_kernel(heads, dataset, memory=memory).matrix
        total, squares = total + K, squares + K**2
    mean = total / num_batches
    variance = np.maximum(squares / num_batches - mean**2, 0.0) * num_batches / (num_batches - 1)
    return KernelLimit(mean, np.sqrt(variance / num_batches), per_batch * num_batches)
