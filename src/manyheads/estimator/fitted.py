"""A fitted classifier: scores, labels and attention of new sequences, and a file that everybody can read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from manyheads.data.dataset import Dataset
from manyheads.data.door import guarded
from manyheads.data.files import Damaged, checked_path, write_whole
from manyheads.estimator.search import Found, Trial, Wishes, search
from manyheads.estimator.sequences import Layout, as_sequences
from manyheads.model.attention import MultiHead

FORMAT_VERSION = 2
SEALED_SINCE = 2  # the format_version from which on the header has a checksum
KIND = "manyheads classifier"


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """One model for two classes, or one for each class against the rest, with what prepares their tokens.

    `label_names` are the classes as text, `seed` and `choice` say how it was made, `facts` holds what else is known
    (the error on held-out data, say). `found` has the runs; it is not saved.
    """

    layout: Layout
    models: tuple[MultiHead, ...]
    label_names: tuple[str, ...]
    choice: Trial
    seed: int
    facts: dict[str, Any]
    found: Found | None = None

    def dataset(self, X: Any) -> Dataset:
        """Sequences as the models take them: a Dataset, what `as_sequences` takes, or a pair (tokens, mask)."""
        if isinstance(X, Dataset):
            return self.layout.dataset(X.tokens, X.mask)
        return self.layout.dataset(*(X if isinstance(X, tuple) else as_sequences(X)))

    def check_width(self, tokens: np.ndarray, data: str, model: str | Path) -> None:
        """Refuse tokens of another dimension than those the models were fitted to; `data` and `model` are named."""
        if tokens.shape[2] != self.layout.dim:
            raise ValueError(
                f"{data} has tokens of dimension {tokens.shape[2]}, and {model} was fitted to dimension "
                f"{self.layout.dim}; pass data with the same features, or fit a model to these."
            )

    def trained_on(self, tokens: np.ndarray, mask: np.ndarray | None) -> int:
        """How many of these sequences it was trained on, if they are those of its fit; else 0."""
        return (
            int(self.facts.get("num_train", 0))
            if self.facts.get("digest") == digest(tokens, mask)
            else 0
        )

    def scores(self, X: Any) -> np.ndarray:
        """(n,) for two classes, above zero for the second; (n, classes) for more."""
        data = self.dataset(X)
        scores = np.stack([model.scores(data) for model in self.models], axis=1)
        return scores[:, 0] if len(self.label_names) == 2 else scores

    def codes(self, X: Any) -> np.ndarray:
        """The position of each sequence's class in `label_names`."""
        scores = self.scores(X)
        return (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The name of each sequence's class."""
        return np.array(self.label_names)[self.codes(X)]

    def probabilities(self, X: Any) -> np.ndarray:
        """(n, classes): the logistic function of the scores, made to sum to one."""
        scores = self.scores(X)
        up = np.exp(-np.logaddexp(0.0, -scores))
        if scores.ndim == 1:
            return np.stack([np.exp(-np.logaddexp(0.0, scores)), up], axis=1)
        total = up.sum(axis=1, keepdims=True)
        return np.where(total > 0, up / np.where(total > 0, total, 1.0), 1 / up.shape[1])

    def attention(self, X: Any) -> np.ndarray:
        """(n, models, classes of heads, queries, tokens): where each query looks."""
        data = self.dataset(X)
        mask = np.ones(data.tokens.shape[:2], bool) if data.mask is None else data.mask
        with jax.enable_x64(True):
            X, real = jnp.asarray(data.tokens), jnp.asarray(mask)
            maps = [np.asarray(jax.vmap(model.attention)(X, real)) for model in self.models]
        return np.stack(maps, axis=1)

    def code_of(self, name: str) -> int | None:
        """The position in `label_names` of a label as data have it, where 1 and 1.0 are the same, or None."""
        for code, own in enumerate(self.label_names):
            if own == name or _number(own) == _number(name) is not None:
                return code
        against_all = (
            len(self.label_names) == 2 and self.label_names[0] == f"not {self.label_names[1]}"
        )
        return 0 if against_all else None

    @guarded()
    def save(self, path: str | Path) -> None:
        """Write a safetensors file: the weights as tensors, all else as JSON under "manyheads" in its header."""
        path = checked_path(path)
        tensors = {}
        for i, model in enumerate(self.models):
            arrays = {
                "key_query": model.key_query,
                "readout": model.readout,
                "multiplicity": model.multiplicity,
            }
            tensors |= {
                f"{i}.{name}": np.ascontiguousarray(array) for name, array in arrays.items()
            }
        header = {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "layout": self.layout.to_dict(),
            "seed": self.seed,
            "label_names": list(self.label_names),
            "choice": asdict(self.choice),
            "facts": self.facts,
            "models": [{"decoder": m.decoder, "exponent": m.exponent} for m in self.models],
        }
        header["sha256"] = _seal(tensors, json.loads(json.dumps(header)))
        write_whole(path, save(tensors, metadata={"manyheads": json.dumps(header)}))

    @classmethod
    @guarded()
    def load(cls, path: str | Path) -> Fitted:
        """Read what `save` wrote. Nothing in such a file is executed."""
        if not Path(path).is_file():
            raise FileNotFoundError(
                f"{path} does not exist or is not a file; pass one written by `manyheads fit`."
            )
        try:
            with safe_open(str(path), framework="numpy") as file:
                header = json.loads((file.metadata() or {}).get("manyheads", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError, OSError):
            raise Damaged(
                f"{path} is not a readable safetensors file: it is damaged, or of another format; pass one written by "
                "`manyheads fit`."
            ) from None
        if not isinstance(header, dict) or header.get("kind") != KIND:
            raise ValueError(
                f"{path} holds no classifier of manyheads; pass one written by `manyheads fit`."
            )
        version, seal = header.get("format_version"), header.pop("sha256", None)
        damaged = f"{path} is damaged: its content does not match its checksum; use another copy, or fit it anew."
        if seal is not None and seal != _seal(tensors, header):
            raise Damaged(damaged)
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise ValueError(
                f"{path} was written by a newer version of manyheads; update manyheads."
            )
        if seal is None and version not in range(1, SEALED_SINCE):  # earlier files have none
            raise Damaged(damaged)
        try:
            models = tuple(
                MultiHead.create(
                    tensors[f"{i}.key_query"],
                    tensors[f"{i}.readout"],
                    multiplicity=tensors[f"{i}.multiplicity"],
                    **more,
                )
                for i, more in enumerate(header["models"])
            )
            made: dict[str, Any] = {
                name: tuple(v) if isinstance(v, list) else v for name, v in header["choice"].items()
            }
            return cls(
                Layout.from_dict(header["layout"]),
                models,
                tuple(header["label_names"]),
                Trial(**made),
                header["seed"],
                header["facts"],
            )
        except (KeyError, TypeError):
            raise Damaged(
                f"{path} is not a whole classifier: entries are missing; use another copy."
            ) from None

    def __str__(self) -> str:
        names = ", ".join(self.label_names[:6]) + (", ..." if len(self.label_names) > 6 else "")
        return f"classifier of {names}: {self.choice}"

    __repr__ = __str__


def digest(tokens: np.ndarray, mask: np.ndarray | None) -> str:
    """A hash of sequences, by which those that were fitted are known again."""
    real = np.ones(tokens.shape[:2], bool) if mask is None else mask
    return _hash(
        [
            f"{tokens.shape}",
            np.where(real[:, :, None], tokens, 0.0).astype(np.float64),
            real.astype(bool),
        ]
    )


def _seal(tensors: dict[str, np.ndarray], header: dict[str, Any]) -> str:
    """SHA-256 of the tensors, with their names and types, and of the other entries of the header."""
    parts: list[str | np.ndarray] = [json.dumps(header, sort_keys=True)]
    for name in sorted(tensors):
        parts += [f"{name} {tensors[name].dtype.str} {tensors[name].shape}", tensors[name]]
    return _hash(parts)


def _hash(parts: list[str | np.ndarray]) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(
            part.encode() if isinstance(part, str) else np.ascontiguousarray(part).tobytes()
        )
    return found.hexdigest()


def _number(name: str) -> float | None:
    try:
        return float(name)
    except ValueError:
        return None


def fit(
    tokens: np.ndarray,
    mask: np.ndarray | None,
    codes: np.ndarray,
    label_names: tuple[str, ...],
    wishes: Wishes,
    *,
    scale: str = "rms",
    positions: str = "none",
    intercept: bool = True,
    weight: np.ndarray | None = None,
    seed: int = 0,
    tell: Callable[[str], None] | None = None,
) -> Fitted:
    """Train on sequences whose classes are `codes`, positions in `label_names`."""
    even = np.ones(len(tokens)) if weight is None else weight
    layout = Layout.measured(
        tokens,
        mask,
        even,
        scale=scale,
        positions=positions,
        intercept=intercept,
        any_length=wishes.decoder != "full",
    )
    targets = (
        [codes == 1] if len(label_names) == 2 else [codes == k for k in range(len(label_names))]
    )
    problems = [layout.dataset(tokens, mask, np.where(target, 1.0, -1.0)) for target in targets]
    found = search(problems, codes, weight, wishes, seed, tell)
    models = tuple(run.final for run in found.runs)
    return Fitted(
        layout, models, label_names, found.chosen, seed, {"num_train": len(tokens)}, found
    )
