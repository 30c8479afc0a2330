"""Labeled sentences as tokens of small dimension: hidden states of an encoder, projected and kept on disk.

Principal components are those of the sentences that are not for testing. Prepared files lie in the user's cache folder,
or in the one that the environment variable MANYHEADS_TEXT names; their names hold a hash of the weights, the sentences
and the settings.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyheads.data.dataset import Dataset
from manyheads.data.door import FROM_ZERO, SHARE, array_of, guarded, shown
from manyheads.data.files import Damaged, read_npz, write_npz
from manyheads.data.text.encoder import Encoder

FORMAT_VERSION = 2
FOLDER = "MANYHEADS_TEXT"
CHUNK = 16384  # rows whose moments are computed together


@dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """Sentences prepared for training. Make one with `prepare` or `reviews`.

    `tokens[layer]` has a row per piece, all sentences one after another (`lengths` says where they end), in units in
    which the sentences that are not for testing have tokens of root mean square norm 1. `means[layer]` is the mean of
    the hidden states of each sentence at their full width. Both are kept in half precision.
    """

    labels: np.ndarray  # (n,)
    pieces: tuple[tuple[str, ...], ...]
    is_test: np.ndarray  # (n,)
    num_tokens: int
    tokens: dict[int, np.ndarray]
    means: dict[int, np.ndarray]
    name: str = "sentences"

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(self.tokens)

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(one) for one in self.pieces])

    @guarded(layer=FROM_ZERO)
    def dataset(self, layer: int, places: Any = None) -> Dataset:
        """The sentences at these places (all by default), padded to `num_tokens`."""
        self._check_layer(layer)
        ends, rows = np.cumsum(self.lengths), self.tokens[layer]
        places = np.arange(len(self.labels)) if places is None else np.asarray(places)
        tokens = np.zeros((len(places), self.num_tokens, rows.shape[1]))
        mask = np.arange(self.num_tokens)[None, :] < self.lengths[places][:, None]
        tokens[mask] = np.concatenate(
            [rows[ends[i] - len(self.pieces[i]) : ends[i]] for i in places]
        )
        whole = Dataset.from_arrays(
            np.zeros((len(self.labels), 1, 1)), self.labels
        )  # for the names of the labels
        return Dataset.from_arrays(
            tokens, self.labels[places], mask=mask, name=f"{self.name}, layer {layer}", like=whole
        )

    @guarded(layer=FROM_ZERO, validation=SHARE)
    def split(
        self, layer: int, *, validation: float = 0.2, seed: int = 0
    ) -> tuple[Dataset, Dataset, Dataset]:
        """Training, validation and test data; `seed` draws the validation data, the test data are always the same."""
        train, held, test = self.places(validation, seed)
        return self.dataset(layer, train), self.dataset(layer, held), self.dataset(layer, test)

    def places(self, validation: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the sentences of the three parts are."""
        pool = np.random.default_rng(seed).permutation(np.flatnonzero(~self.is_test))
        count = min(max(round(validation * len(pool)), 1), len(pool) - 1)
        return pool[count:], pool[:count], np.flatnonzero(self.is_test)

    def _check_layer(self, layer: int) -> None:
        if layer not in self.tokens:
            raise ValueError(
                f"layer={layer} is not prepared; these are: {', '.join(map(str, self.tokens))}."
            )

    def save(self, path: str | Path) -> None:
        """Write one .npz; `Corpus.load` reads it back equal."""
        text = "\n".join(" ".join(one) for one in self.pieces)
        arrays = {
            "labels": self.labels,
            "is_test": self.is_test,
            "pieces": np.frombuffer(text.encode(), np.uint8),
        }
        for layer in self.tokens:
            arrays |= {f"tokens_{layer}": self.tokens[layer], f"means_{layer}": self.means[layer]}
        meta = {
            "format_version": FORMAT_VERSION,
            "layers": list(self.tokens),
            "num_tokens": self.num_tokens,
        }
        write_npz(path, arrays, {**meta, "name": self.name})

    @classmethod
    @guarded()
    def load(cls, path: str | Path) -> Corpus:
        """Read what `save` wrote."""
        arrays, meta = read_npz(path, FORMAT_VERSION)
        try:
            layers, lines = meta["layers"], arrays["pieces"].tobytes().decode().split("\n")
            pieces = tuple(tuple(line.split(" ")) for line in lines)
            return cls(
                arrays["labels"],
                pieces,
                arrays["is_test"],
                meta["num_tokens"],
                {k: arrays[f"tokens_{k}"] for k in layers},
                {k: arrays[f"means_{k}"] for k in layers},
                meta["name"],
            )
        except KeyError as error:
            raise Damaged(
                f"{path} holds no prepared sentences ({error} is missing); prepare them anew."
            ) from None

    def __str__(self) -> str:
        n, dim = len(self.labels), next(iter(self.tokens.values())).shape[1]
        return (
            f"{self.name}: {n:,} sentences of at most {self.num_tokens} tokens in dimension {dim}, "
            f"{int(self.is_test.sum()):,} for testing; layers {', '.join(map(str, self.tokens))}"
        )

    __repr__ = __str__


@guarded(layers=FROM_ZERO, test_share=SHARE)
def prepare(
    sentences: Sequence[str],
    labels,
    *,
    encoder: Encoder | None = None,
    layers: Sequence[int] = (6,),
    dim: int = 32,
    num_tokens: int = 32,
    test_share: float = 0.25,
    seed: int = 0,
    name: str = "sentences",
) -> Corpus:
    """Sentences with labels as a `Corpus`: encoded, projected to `dim` principal components, and kept on disk.

    Sentences that occur twice are kept once, and not at all where their labels differ. A random `test_share` is for
    testing; means and components are those of the others. `encoder` is all-MiniLM-L6-v2 unless given.
    """
    encoder = Encoder.load() if encoder is None else encoder
    given = array_of(labels, "labels")
    if given.shape != (len(sentences),):
        raise ValueError(
            f"labels has shape {given.shape}; it must be ({len(sentences)},), one label per sentence."
        )
    settings = {
        "layers": list(layers),
        "dim": dim,
        "num_tokens": num_tokens,
        "test_share": test_share,
        "seed": seed,
    }
    content = [list(sentences), list(map(str, given))]
    key = {"weights": encoder.digest, "content": _hash(content), "name": name, **settings}

    def make() -> Corpus:
        encoder.check(layers, num_tokens)
        return encoded(
            encoder, *drawn(sentences, given, test_share, seed), layers, dim, num_tokens, name
        )

    return cached(key, make)


def drawn(
    sentences: Sequence[str],
    labels: np.ndarray,
    test_share: float,
    seed: int,
    most: int | None = None,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """At most that many different sentences in random order, their labels, and which of them are for testing."""
    order = np.random.default_rng(seed).permutation(distinct(sentences, labels))[:most]
    is_test = np.arange(len(order)) >= len(order) - round(test_share * len(order))
    return [sentences[i] for i in order], labels[order], is_test


def distinct(sentences: Sequence[str], labels: np.ndarray) -> np.ndarray:
    """Places of the sentences that differ, upper and lower case and spaces aside; none that has two labels."""
    found: dict[str, list[int]] = {}
    for place, text in enumerate(sentences):
        found.setdefault(" ".join(text.lower().split()), []).append(place)
    return np.array(
        [same[0] for same in found.values() if len({str(labels[i]) for i in same}) == 1], int
    )


def encoded(
    encoder: Encoder,
    sentences: Sequence[str],
    labels: np.ndarray,
    is_test: np.ndarray,
    layers: Sequence[int],
    dim: int,
    num_tokens: int,
    name: str,
) -> Corpus:
    """Encode the sentences and project every layer to the components of those that are not for testing."""
    if dim > encoder.dim:
        raise ValueError(f"dim={dim} must be at most {encoder.dim}, the width of the encoder.")
    if not 0 < is_test.sum() < len(is_test) - 1:
        raise ValueError(
            f"{len(is_test)} different sentences with {is_test.sum()} for testing: pass more."
        )
    pieces = tuple(tuple(encoder.tokenizer.framed(text, num_tokens)) for text in sentences)
    lengths = [len(one) for one in pieces]
    starts, own = np.cumsum([0, *lengths[:-1]]), np.repeat(~is_test, lengths)
    tokens, means = {}, {}
    for layer, states in zip(layers, encoder.states(sentences, layers, num_tokens), strict=True):
        rows = np.concatenate(states)
        center, components = principal(rows[own], dim)
        rows -= center[None]
        projected = rows @ components
        unit = np.sqrt(np.sum(projected[own] ** 2, axis=1).mean())
        tokens[layer] = (projected / unit).astype(np.float16)
        sums = np.add.reduceat(rows, starts, axis=0)
        means[layer] = (sums / np.array(lengths)[:, None] / unit).astype(np.float16)
    return Corpus(np.asarray(labels), pieces, is_test, num_tokens, tokens, means, name)


def principal(rows: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the rows, and their first principal components as columns."""
    center = rows.mean(axis=0, dtype=np.float64)
    moments = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK] - center[None]
        moments += part.T @ part
    components = np.linalg.eigh(moments)[1][:, ::-1][:, :dim]
    signs = np.sign(components[np.argmax(np.abs(components), axis=0), np.arange(dim)])
    return center.astype(np.float32), (components * signs[None, :]).astype(np.float32)


def cache_path(key: dict[str, Any]) -> Path:
    """Where what is made from these settings is kept."""
    import platformdirs

    told = os.environ.get(FOLDER, "").strip()
    folder = Path(told) if told else platformdirs.user_cache_path("manyheads") / "text"
    return folder / f"{key['name'].replace(' ', '-')}-{_hash([FORMAT_VERSION, key])[:16]}.npz"


def cached(key: dict[str, Any], make: Callable[[], Corpus]) -> Corpus:
    """What is kept under these settings, made where it is not there or damaged; of several processes one makes it."""
    path = cache_path(key)
    if (found := _kept(path)) is not None:
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := _kept(path)) is not None:
            return found
        made = make()
        made.save(path)
        return made


def _kept(path: Path) -> Corpus | None:
    try:
        return Corpus.load(path) if path.is_file() else None
    except Damaged:
        return None


def _hash(content: Any) -> str:
    try:
        text = json.dumps(content, sort_keys=True)
    except (TypeError, ValueError):
        raise ValueError(
            f"{shown(content)} cannot be written as JSON; pass texts and numbers."
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()
