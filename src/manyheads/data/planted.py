"""Gaussian tokens with labels from a planted attention model, and random tokens with random labels."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.door import finite, random_stream, whole

LARGEST_DRAW = 200_000  # candidates tried before a margin filter is called hopeless


@dataclass(frozen=True, eq=False)
class Planted:
    r"""Gaussian tokens labeled by the sign of a planted attention model of `num_heads` ($H^\star$) heads.

    Tokens are $N(0, \text{token\_scale}^2 I)$; the teacher's weights are $N(0, 1/d)$ entries times `teacher_scale`,
    drawn with `key`. Only sequences with |teacher's score| >= `margin` are kept.
    """

    num_tokens: int = 8
    dim: int = 10
    num_heads: int = 4
    margin: float = 0.0
    token_scale: float = 1.0
    teacher_scale: float = 1.0
    key: jax.Array | None = None
    key_query: np.ndarray = field(init=False, repr=False)
    readout: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("num_tokens", "dim", "num_heads"):
            whole(name, getattr(self, name))
        for name in ("token_scale", "teacher_scale"):
            finite(name, getattr(self, name))
        finite("margin", self.margin, positive=False, hint="0 keeps every sequence")
        if self.key is None:
            raise ValueError("a planted model draws its teacher at random: pass key=jax.random.key(0).")
        rng = random_stream(self.key)
        d, H = self.dim, self.num_heads
        object.__setattr__(self, "key_query", self.teacher_scale * rng.standard_normal((H, d, d)) / np.sqrt(d))
        object.__setattr__(
            self, "readout", self.teacher_scale * rng.standard_normal((H, self.num_tokens, d)) / np.sqrt(d)
        )

    def scores(self, tokens: np.ndarray) -> np.ndarray:
        """The teacher's score of each sequence, H*^-1/2 Σ_h ⟨U_h, softmax(X W_h Xᵀ) X⟩."""
        S = np.einsum("ntd,hde,nse->nhts", tokens, self.key_query, tokens, optimize=True)
        A = np.exp(S - S.max(-1, keepdims=True))
        A /= A.sum(-1, keepdims=True)
        B = np.einsum("htd,nsd->nhts", self.readout, tokens, optimize=True)
        return np.einsum("nhts,nhts->n", A, B) / np.sqrt(self.num_heads)

    def sample(self, num_examples: int, *, key: jax.Array) -> Dataset:
        """Draw sequences until `num_examples` pass the margin filter."""
        whole("num_examples", num_examples, 2)
        rng = random_stream(key)
        kept, kept_scores, tried, best = [], [], 0, 0.0
        while sum(map(len, kept)) < num_examples:
            if tried >= LARGEST_DRAW + 100 * num_examples:
                found = sum(map(len, kept))
                raise ValueError(
                    f"margin={self.margin} rejects nearly everything: {found} of {tried} sequences passed, "
                    f"{num_examples} are wanted, the largest score seen is {best:.3g}. "
                    f"Pass a margin below {best / 2:.2g}, or a larger teacher_scale."
                )
            tokens = self.token_scale * rng.standard_normal((max(256, num_examples), self.num_tokens, self.dim))
            with np.errstate(over="ignore", invalid="ignore"):
                scores = self.scores(tokens)
            if not np.isfinite(scores).all():
                raise ValueError(
                    f"token_scale={self.token_scale:g} and teacher_scale={self.teacher_scale:g} make scores that are "
                    "not finite; pass smaller scales."
                )
            tried, best = tried + len(tokens), max(best, float(np.abs(scores).max()))
            keep = np.abs(scores) >= self.margin
            kept.append(tokens[keep])
            kept_scores.append(scores[keep])
        tokens = np.concatenate(kept)[:num_examples]
        labels = np.where(np.concatenate(kept_scores)[:num_examples] >= 0, 1.0, -1.0)
        return Dataset(tokens, labels, name="planted attention model")._checked()


@dataclass(frozen=True, eq=False)
class RandomLabels:
    """Tokens of equal norm in independent uniform directions, labels by a fair coin: nothing to learn but by heart."""

    num_tokens: int = 6
    dim: int = 6
    token_norm: float = 2.0

    def __post_init__(self) -> None:
        for name in ("num_tokens", "dim"):
            whole(name, getattr(self, name))
        finite("token_norm", self.token_norm)

    def sample(self, num_examples: int, *, key: jax.Array) -> Dataset:
        """Draw sequences and coin-flip labels."""
        whole("num_examples", num_examples, 2)
        rng = random_stream(key)
        tokens = rng.standard_normal((num_examples, self.num_tokens, self.dim))
        tokens *= self.token_norm / np.linalg.norm(tokens, axis=-1, keepdims=True)
        labels = np.where(rng.random(num_examples) < 0.5, 1.0, -1.0)
        return Dataset(tokens, labels, name="random labels")._checked()
