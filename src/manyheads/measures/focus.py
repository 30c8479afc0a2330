r"""Where the heads look: attention on relevant tokens, saturation, growth and alignment, specialization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from manyheads._check import a, check, many, none, share, whole
from manyheads.data.dataset import Dataset, is_dataset
from manyheads.data.mixture import TokenizedMixture, is_mixture
from manyheads.measures.rounding import attention_error
from manyheads.model.attention import MultiHead, collapse, full_key_query
from manyheads.model.autodiff import float64
from manyheads.model.variants import Frozen, attention_of
from manyheads.training.trajectory import Trajectory

# tokens this close, relative to the largest entry, are copies of one another
COPY = 1e-13
# a logit gap beyond which float32 attention is exactly zero
UNDERFLOW = float(-np.log(np.finfo(np.float32).tiny))


is_focused = a((Trajectory, MultiHead, Frozen), "train and frozen make them")


@dataclass(frozen=True, eq=False)
class Focus:
    r"""What the heads attend to, per step and class of heads. Arrays are (steps, classes) unless said otherwise.

    `relevant_mass`: mean share of the attention that falls on relevant tokens (NaN where those are
    not known). `saturation`: mean over queries of the largest weight on one token, its exact copies
    counted with it (they tie for every $W$); 1 is hard-max, and one minus it the total variation
    distance from there. `underflow`: share of (query, key) pairs whose attention is zero in
    float32; above zero the gradient there is lost. `key_query_norm`: $\|W_h\|_F$;
    `sharpness_needed`: Prop. 3's $\Gamma_\epsilon$ (NaN without a mixture). `key_query_alignment`,
    `readout_alignment`: cosine with $W_*$ and $U_*$ (NaN without a mixture, or at zero).
    `num_distinct`, `effective_heads`, `specialization` (steps,): classes that differ; how many
    heads carry the score (participation ratio of their share in it); mean total variation distance
    between the attention of two heads. `accuracy`: the rounding that `relevant_mass`, `saturation`
    and `specialization` may have; it grows with the logits.
    """

    steps: np.ndarray
    multiplicity: np.ndarray
    relevant_mass: np.ndarray
    saturation: np.ndarray
    underflow: np.ndarray
    key_query_norm: np.ndarray
    sharpness_needed: float
    key_query_alignment: np.ndarray
    readout_alignment: np.ndarray
    num_distinct: np.ndarray
    effective_heads: np.ndarray
    specialization: np.ndarray
    accuracy: float

    @property
    def underflows(self) -> bool:
        """Whether float32 would round some attention to zero: train in float64 from here on."""
        return bool((self.underflow > 0).any())

    def __str__(self) -> str:
        share = self.multiplicity / self.multiplicity.sum()
        lines = [
            f"attention of {self.multiplicity.sum():.15g} heads in {len(self.multiplicity)} "
            "classes, weights to "
            f"{self.accuracy:.1e}"
        ]
        for k, step in enumerate(self.steps):
            parts = [f"  step {step:>8d}:"]
            if np.isfinite(self.relevant_mass[k]).all():
                parts.append(f"on relevant tokens {self.relevant_mass[k] @ share:.4f},")
            parts.append(
                f"saturation {self.saturation[k] @ share:.4f}, |W| "
                f"{self.key_query_norm[k] @ share:.4g}"
            )
            if np.isfinite(self.sharpness_needed):
                parts.append(f"(of {self.sharpness_needed:.4g} needed),")
            if np.isfinite(self.key_query_alignment[k]).all():
                parts.append(f"|cosine with W*| {np.abs(self.key_query_alignment[k]) @ share:.3f},")
            parts.append(
                f"{self.num_distinct[k]} distinct, {self.effective_heads[k]:.4g} effective, "
                f"specialization {self.specialization[k]:.3f}"
            )
            lines.append(" ".join(parts))
        if self.underflows:
            lines.append(
                "  ALARM: float32 rounds some attention to zero here; train with dtype='float64'"
            )
        return "\n".join(lines)


@check(
    run=is_focused,
    dataset=is_dataset,
    mixture=is_mixture | none,
    epsilon=share,
    steps=many(whole(0)) | none,
)
def attention_focus(
    run: Trajectory | MultiHead | Frozen,
    dataset: Dataset,
    *,
    mixture: TokenizedMixture | None = None,
    epsilon: float = 0.1,
    steps: Sequence[int] | None = None,
) -> Focus:
    """Focus of a model, or of a run at its snapshots (or these `steps` of them), on a data set.

    With the `mixture` the data come from, weights are compared with its $W_*$ and $U_*$, and their
    size with the one that leaves at most `epsilon` of the attention on irrelevant tokens (Prop. 3).
    """
    if isinstance(run, Trajectory):
        chosen = (
            np.union1d(run.snapshot_steps, [0, run.last_step])
            if steps is None
            else np.asarray(steps)
        )
        found = [attention_of(run.model(int(step))) for step in chosen]
    elif steps is None:
        chosen, found = np.zeros(1, np.int64), [attention_of(run)]
    else:
        raise ValueError(
            "steps= is for a run; a model has none. Pass the trajectory, or leave steps out."
        )
    models = [model for model in found if model is not None]
    if not models:
        raise ValueError(
            "attention_focus needs the attention of a MultiHead (or of one with a frozen block)."
        )
    with jax.enable_x64(True):
        rows = [_focus_of(model, dataset, mixture) for model in models]
    needed = np.nan if mixture is None else sharpness_needed(mixture, epsilon)
    return Focus(
        steps=chosen.astype(np.int64),
        multiplicity=models[0].multiplicity,
        sharpness_needed=needed,
        accuracy=float(np.finfo(float).eps * max(row.pop("rounding") for row in rows)),
        **{name: np.array([row[name] for row in rows]) for name in rows[0]},
    )


@check(mixture=is_mixture, epsilon=share)
def sharpness_needed(mixture: TokenizedMixture, epsilon: float) -> float:
    r"""$\Gamma_\epsilon = \max\big(0, \frac{8\sqrt{2(M+1)}}{3S^2} \log\frac{1/\zeta - 1}{\epsilon}\big)$ of Prop. 3."""
    M, S, zeta = mixture.num_patterns, mixture.signal, mixture.sparsity
    return float(max(0.0, 8 * np.sqrt(2 * (M + 1)) / (3 * S**2) * np.log((1 / zeta - 1) / epsilon)))


def _focus_of(model: MultiHead, dataset: Dataset, mixture: TokenizedMixture | None) -> dict:
    n, N = dataset.num_examples, model.multiplicity
    W = np.asarray(full_key_query(model.key_query), float)
    U = np.asarray(model.readout, float)
    everything = np.ones((n, dataset.num_tokens), bool)
    relevant, mask = (
        everything if flags is None else flags for flags in (dataset.relevant, dataset.mask)
    )
    found = _statistics(
        model.replace_heads(float64(model.heads)), N / N.sum(), dataset.tokens, relevant, mask
    )
    mass, top, under, scores, differ = map(np.asarray, found)
    # (n, classes): what one head of each class adds to the score
    portion = np.abs(scores)
    total, squares = portion @ N, portion**2 @ N
    effective = np.divide(total**2, squares, out=np.full(n, N.sum()), where=squares > 0)
    return {
        "relevant_mass": mass if dataset.relevant is not None else np.full(len(N), np.nan),
        "saturation": top,
        "underflow": under,
        "key_query_norm": np.linalg.norm(W, axis=(1, 2)),
        "key_query_alignment": _cosine(W, mixture, "W_star"),
        "readout_alignment": _cosine(U, mixture, "U_star" if U.ndim == 3 else "u_star"),
        "num_distinct": collapse(model).num_classes,
        "effective_heads": float(effective.mean()),
        "specialization": float(differ),
        "rounding": attention_error(model, dataset),
    }


def _cosine(heads: np.ndarray, mixture: TokenizedMixture | None, name: str) -> np.ndarray:
    if mixture is None:
        return np.full(len(heads), np.nan)
    flat, target = heads.reshape(len(heads), -1), getattr(mixture, name)
    sizes = np.linalg.norm(flat, axis=1) * np.linalg.norm(target)
    return np.divide(flat @ target.ravel(), sizes, out=np.full(len(heads), np.nan), where=sizes > 0)


@jax.jit
def _statistics(model: MultiHead, share, tokens, relevant, mask):
    """Per class: mass on relevant tokens, saturation, share below float32; scores; mean distance of two heads."""

    def one(X, relevant, mask):
        # classes, queries, keys
        A = model.attention(X, mask)
        g, q, T = A.shape
        real = mask.astype(A.dtype) if q > 1 else jnp.ones(1)
        queries = jnp.sum(real)
        mass = jnp.einsum("gqs,s->g", A, relevant.astype(A.dtype)) / queries
        copies = jnp.max(jnp.abs(X[:, None, :] - X[None, :, :]), axis=2) <= COPY * jnp.max(
            jnp.abs(X)
        )
        top = jnp.sum(jnp.max(A @ copies.astype(A.dtype), axis=2), axis=1) / queries
        pairs = queries * jnp.sum(mask.astype(A.dtype))
        tiny = (A < jnp.exp(-UNDERFLOW)) & (real > 0)[None, :, None] & mask[None, None, :]
        under = jnp.sum(tiny.astype(A.dtype), axis=(1, 2)) / pairs
        U = jnp.asarray(model.readout)
        U = U if U.ndim == 3 else jnp.broadcast_to(U[:, None, :], (g, q, U.shape[-1]))
        scores = jnp.einsum("gqd,gqs,sd->g", U, A, X)
        return mass, top, under, scores, _mean_difference(A.reshape(g, -1), share) / (2 * queries)

    mass, top, under, scores, differ = jax.lax.map(lambda row: one(*row), (tokens, relevant, mask))
    return mass.mean(0), top.mean(0), under.mean(0), scores, differ.mean(0)


def _mean_difference(values, share):
    """Sum over all columns of the mean |a - b| for two draws of rows; in sorted order no pair is ever formed."""
    order = jnp.argsort(values, axis=0)
    ordered, weight = jnp.take_along_axis(values, order, axis=0), share[order]
    below = jnp.cumsum(weight, axis=0)[:-1]
    return jnp.sum(2 * below * (1 - below) * jnp.diff(ordered, axis=0))
