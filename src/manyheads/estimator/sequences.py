"""How a user's sequences become tokens of the model: their scale, their positions, a constant feature."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from manyheads._registry import nearest
from manyheads.data.convert import padded
from manyheads.data.dataset import Dataset
from manyheads.data.door import array_of, real_array, shown

SCALES = ("rms", "standard", "none")
POSITIONS = ("none", "one-hot", "sinusoidal")
LARGEST = 1e40  # entries of tokens, as for a Dataset
WAVES = 4  # wavelengths of sinusoidal positions; each gives a sine and a cosine
LONGEST_WAVE = 10_000.0


def as_sequences(X: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Tokens (n, T, d) and a mask of a 3-D array, a list of sequences of any length, or a table (one token each)."""
    array = array_of(X, "X")
    if array.dtype == object and array.ndim <= 1:
        return padded(X, "X")
    tokens = real_array("X", array)
    if tokens.ndim == 2:
        tokens = tokens[:, None, :]
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(
            f"X has shape {array.shape}; pass an array (sequences, tokens, dim), a list of arrays (tokens, dim), or a "
            "table (sequences, dim) of one token each."
        )
    if not np.isfinite(tokens).all():
        raise ValueError(
            "X contains NaN or infinity; replace them, or pass sequences of different length as a list of arrays."
        )
    return tokens.astype(np.float64), None


@dataclass(frozen=True)
class Layout:
    """What was fixed when the classifier was fitted: a token x becomes ((x - center) / spread, 1, position)."""

    dim: int
    num_tokens: int
    center: tuple[float, ...]
    spread: tuple[float, ...]
    positions: str
    intercept: bool
    any_length: bool

    @classmethod
    def measured(
        cls,
        tokens: np.ndarray,
        mask: np.ndarray | None,
        weight: np.ndarray,
        *,
        scale: str,
        positions: str,
        intercept: bool,
        any_length: bool,
    ) -> Layout:
        """The layout for these sequences, whose weights say how much each counts."""
        for name, value, known in (("scale", scale, SCALES), ("positions", positions, POSITIONS)):
            if value not in known:
                raise ValueError(
                    f"{name}={shown(value)} is not known; {nearest(str(value), known)}."
                )
        _, T, d = tokens.shape
        share = np.broadcast_to(weight[:, None], tokens.shape[:2]) * (1.0 if mask is None else mask)
        share = share / share.sum()
        center, spread = np.zeros(d), np.ones(d)
        if scale == "standard":
            center = np.einsum("nt,ntd->d", share, tokens)
            spread = np.sqrt(d * np.einsum("nt,ntd->d", share, (tokens - center) ** 2))
        elif scale == "rms":
            spread[:] = np.sqrt(np.einsum("nt,ntd->", share, tokens**2))
        spread[~(spread > 0)] = 1.0
        any_length = any_length and positions != "one-hot"
        return cls(
            d,
            T,
            tuple(center.tolist()),
            tuple(spread.tolist()),
            positions,
            bool(intercept),
            any_length,
        )

    def dataset(
        self, tokens: np.ndarray, mask: np.ndarray | None, labels: np.ndarray | None = None
    ) -> Dataset:
        """Sequences as the model takes them; they may be shorter than those it was fitted to."""
        n, T, d = tokens.shape
        if d != self.dim:
            raise ValueError(
                f"X has {d} features, but MultiHeadAttentionClassifier is expecting {self.dim} features as input"
            )
        if T > self.num_tokens and not self.any_length:
            raise ValueError(
                f"the sequences have {T} tokens, and the model was fitted to at most {self.num_tokens}; cut them, or "
                "fit a model with the pooled decoder and without one-hot positions."
            )
        real = np.ones((n, T), bool) if mask is None else mask
        if not (some := real.any(axis=1)).all():
            raise ValueError(
                f"sequence {int(np.argmin(some))} has no token that is not masked; leave it out."
            )
        if (most := float(np.abs(tokens).max())) > LARGEST:
            raise ValueError(
                f"the largest entry of the tokens is {most:.3g}; entries up to {LARGEST:g} are allowed."
            )
        features = [(tokens - self.center) / self.spread]
        if self.intercept:
            features.append(np.ones((n, T, 1)))
        if self.positions != "none":
            features.append(np.broadcast_to(self._position(T), (n, T, self._position(T).shape[1])))
        X = np.concatenate(features, axis=-1) * real[:, :, None]
        if not self.any_length and T < self.num_tokens:
            more = self.num_tokens - T
            X, real = np.pad(X, ((0, 0), (0, more), (0, 0))), np.pad(real, ((0, 0), (0, more)))
        y = np.ones(n) if labels is None else labels
        return Dataset(X, y, None if real.all() else real)

    def _position(self, length: int) -> np.ndarray:
        place = np.arange(length)
        if self.positions == "one-hot":
            return np.eye(self.num_tokens)[:length]
        rates = LONGEST_WAVE ** -(np.arange(WAVES) / WAVES)
        angle = place[:, None] * rates[None, :]
        return np.concatenate([np.sin(angle), np.cos(angle)], axis=1) / np.sqrt(WAVES)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Layout:
        """What `to_dict` wrote."""
        made: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return cls(**made)
