"""The forward pass of a BERT encoder: sentences in, the hidden states of any layer out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manyheads._lazy import compiled, lazy
from manyheads.data.budget import fits_memory
from manyheads.data.door import FROM_ZERO, guarded
from manyheads.data.files import short
from manyheads.data.text.packages import MODEL, installed
from manyheads.data.text.wordpiece import PADDING, WordPiece

jax, jnp = lazy("jax"), lazy("jax.numpy")
LENGTHS = (
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
)  # sentences are padded to one of these: few programs
BATCH_TOKENS = 2048  # tokens evaluated together

# Ours -> the name in the file, below `embeddings.` and `encoder.layer.N.`.
EMBEDDINGS = {
    "words": "word_embeddings.weight",
    "positions": "position_embeddings.weight",
    "kinds": "token_type_embeddings.weight",
    "scale": "LayerNorm.weight",
    "shift": "LayerNorm.bias",
}
LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "norm_1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm_2": "output.LayerNorm",
}


@dataclass(frozen=True, eq=False)
class Encoder:
    """A BERT encoder: its weights (`embeddings`, and `layers` stacked along their first axis) and its tokenizer.

    Layer 0 is the sum of the word, position and kind embeddings, normalized; layer k is the output of the k-th block.
    """

    tokenizer: WordPiece
    embeddings: dict[str, np.ndarray]
    layers: dict[str, np.ndarray]
    num_heads: int
    epsilon: float = 1e-12  # of the layer normalization
    digest: str = ""  # SHA-256 of the file of weights

    @classmethod
    @guarded()
    def load(
        cls,
        weights: str | Path | None = None,
        tokenizer: str | Path | None = None,
        num_heads: int | None = None,
    ) -> Encoder:
        """The encoder in a safetensors file, or all-MiniLM-L6-v2 from its installed package.

        Sizes are those of the arrays. `tokenizer` is a tokenizer.json or a vocab.txt, by default the one beside the
        weights, and `num_heads` is read from the config.json there unless given.
        """
        if weights is None:
            weights = installed(MODEL)
        path = Path(weights)
        if not path.is_file():
            raise FileNotFoundError(
                f"weights={path} does not exist; pass a model.safetensors file."
            )
        config = _config(path.with_name("config.json"))
        beside = [path.with_name(name) for name in ("tokenizer.json", "vocab.txt")]
        words = tokenizer or next((file for file in beside if file.is_file()), None)
        if words is None:
            raise ValueError(
                f"there is no tokenizer.json or vocab.txt beside {path}; pass tokenizer=."
            )
        embeddings, layers = _arrays(path)
        heads, width = num_heads or config.get("num_attention_heads"), embeddings["words"].shape[1]
        if not isinstance(heads, int) or heads < 1 or width % heads:
            raise ValueError(
                f"num_heads={heads} of {path}: pass num_heads=, a divisor of the width {width}."
            )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        epsilon = float(config.get("layer_norm_eps", cls.epsilon))
        return cls(WordPiece.load(words), embeddings, layers, heads, epsilon, digest)

    @property
    def num_layers(self) -> int:
        return len(self.layers["query.weight"])

    @property
    def dim(self) -> int:
        return self.embeddings["words"].shape[1]

    def check(self, layers: Sequence[int], num_tokens: int) -> None:
        """Refuse layers that there are not, and sentences that are too short to hold a word or too long."""
        for layer in layers:
            if layer > self.num_layers:
                raise ValueError(
                    f"layer={layer} must be 0 (embeddings) to {self.num_layers}, the encoder's last."
                )
        most = len(self.embeddings["positions"])
        if not 3 <= num_tokens <= most:
            raise ValueError(
                f"num_tokens={num_tokens} must be 3 to {most}, the positions that the encoder knows."
            )

    @guarded(layer=FROM_ZERO)
    def hidden_states(
        self, sentences: Sequence[str], *, layer: int, num_tokens: int = 128
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hidden states (n, T, dim) of one layer with a mask (n, T), as `Dataset.from_arrays` takes them.

        A sentence is [CLS], its pieces, [SEP]; of one with more than `num_tokens` its beginning is taken.
        """
        (states,) = self.states(sentences, (layer,), num_tokens)
        longest = max(map(len, states))
        size = 4 * len(states) * longest * self.dim
        fits_memory(f"{len(states):,} sentences of {longest} tokens", size, "encode them in parts")
        tokens = np.zeros((len(states), longest, self.dim), np.float32)
        mask = np.zeros(tokens.shape[:2], bool)
        for i, one in enumerate(states):
            tokens[i, : len(one)], mask[i, : len(one)] = one, True
        return tokens, mask

    def states(
        self, sentences: Sequence[str], layers: Sequence[int], num_tokens: int
    ) -> list[list[np.ndarray]]:
        """For every layer a list of arrays (length, dim), one per sentence."""
        if len(sentences) == 0:
            raise ValueError("there are no sentences; pass at least one.")
        self.check(layers, num_tokens)
        coded = [
            self.tokenizer.numbers(self.tokenizer.framed(text, num_tokens)) for text in sentences
        ]
        size = 4 * len(layers) * sum(map(len, coded)) * self.dim
        fits_memory(
            f"{len(coded):,} sentences in {len(layers)} layers", size, "encode them in parts"
        )
        empty = np.zeros((0, self.dim), np.float32)
        found = [[empty] * len(coded) for _ in layers]
        below = {name: array[: max(layers)] for name, array in self.layers.items()}
        for length, batch in _batches(
            [len(one) for one in coded], len(self.embeddings["positions"])
        ):
            rows = max(1, BATCH_TOKENS // length)
            numbers = np.full((rows, length), self.tokenizer.vocabulary[PADDING], np.int32)
            mask = np.zeros((rows, length), bool)
            mask[:, 0] = True  # rows that fill up the batch look at something
            for row, i in enumerate(batch):
                numbers[row, : len(coded[i])], mask[row, : len(coded[i])] = coded[i], True
            every = forward(
                self.embeddings,
                below,
                numbers,
                mask,
                num_heads=self.num_heads,
                epsilon=self.epsilon,
            )
            for place, layer in enumerate(layers):
                states = np.asarray(every[layer])
                for row, i in enumerate(batch):
                    found[place][i] = states[row, : len(coded[i])].copy()
        return found

    @guarded()
    def sentence_embeddings(self, sentences: Sequence[str], *, num_tokens: int = 128) -> np.ndarray:
        """The mean of the last layer over each sentence, divided by its norm: (n, dim), as MiniLM is used."""
        (states,) = self.states(sentences, (self.num_layers,), num_tokens)
        means = np.stack([one.mean(axis=0) for one in states])
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    def __str__(self) -> str:
        words, blocks = len(self.embeddings["words"]), self.num_layers
        return f"Encoder: {blocks} layers of {self.num_heads} heads in dimension {self.dim}, {words:,} pieces"

    __repr__ = __str__


@compiled(static_argnames=("num_heads", "epsilon"))
def forward(embeddings, layers, numbers, mask, *, num_heads: int, epsilon: float):
    """Hidden states of all layers, a list of arrays (n, T, dim), for pieces `numbers` (n, T); padding is not looked at.

    Every product asks for full precision, as elsewhere in manyheads.
    """
    T = numbers.shape[1]
    x = embeddings["words"][numbers] + (embeddings["positions"][:T] + embeddings["kinds"][:1])[None]
    x = _normalized(x, embeddings["scale"], embeddings["shift"], epsilon)

    def block(x, layer):
        def affine(x, name):
            bias = layer[f"{name}.bias"][None, None]
            return jnp.einsum("ntd,ed->nte", x, layer[f"{name}.weight"], precision="highest") + bias

        def norm(x, name):
            return _normalized(x, layer[f"{name}.weight"], layer[f"{name}.bias"], epsilon)

        n, T, dim = x.shape
        query, key, value = (
            affine(x, name).reshape(n, T, num_heads, -1) for name in ("query", "key", "value")
        )
        looks = jnp.einsum("nqhd,nkhd->nhqk", query, key, precision="highest") / np.sqrt(
            dim // num_heads
        )
        weights = jax.nn.softmax(
            jnp.where(mask[:, None, None, :], looks.astype(x.dtype), -jnp.inf), axis=-1
        )
        mixed = jnp.einsum("nhqk,nkhd->nqhd", weights, value, precision="highest").reshape(
            n, T, dim
        )
        x = norm(x + affine(mixed, "out"), "norm_1")
        x = norm(x + affine(jax.nn.gelu(affine(x, "up"), approximate=False), "down"), "norm_2")
        return x, x

    _, above = jax.lax.scan(block, x, layers)
    return [x, *above]


def _normalized(x, scale, shift, epsilon: float):
    centered = x - x.mean(axis=-1, keepdims=True)
    spread = jnp.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)
    return centered / spread * scale[None, None] + shift[None, None]


def _batches(lengths: list[int], most: int) -> list[tuple[int, list[int]]]:
    """Places of sentences that are evaluated together, with the length, at most `most`, to which they are padded."""
    groups: dict[int, list[int]] = {}
    for place, length in enumerate(lengths):
        padded = next((size for size in LENGTHS if length <= size <= most), most)
        groups.setdefault(padded, []).append(place)
    cut = {size: max(1, BATCH_TOKENS // size) for size in groups}
    return [
        (size, places[i : i + cut[size]])
        for size, places in groups.items()
        for i in range(0, len(places), cut[size])
    ]


def _config(path: Path) -> dict[str, Any]:
    """What the config.json beside the weights says; an encoder of another kind is refused."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({short(error)}); use another copy.") from None
    known = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
    for name, value in known.items():
        if content.get(name, value) != value:
            raise ValueError(
                f"{path} says {name} = {content[name]!r}; only {value!r} is supported."
            )
    return content


def _arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays of the encoder in a file, which may hold others and put `bert.` before the names."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        given = {name.removeprefix("bert."): array for name, array in load_file(path).items()}
    except (
        SafetensorError,
        OSError,
        TypeError,
        KeyError,
    ) as error:  # the last two: a dtype that NumPy does not have
        raise ValueError(
            f"{path} is not a readable safetensors file ({short(error)}); use another copy."
        ) from None
    count = 0
    while f"encoder.layer.{count}.{LAYER['query']}.weight" in given:
        count += 1
    names = {
        f"{ours}.{part}": [f"encoder.layer.{i}.{theirs}.{part}" for i in range(count)]
        for ours, theirs in LAYER.items()
        for part in ("weight", "bias")
    }
    first = {ours: f"embeddings.{theirs}" for ours, theirs in EMBEDDINGS.items()}
    missing = [name for name in (*first.values(), *sum(names.values(), [])) if name not in given]
    if missing or not count:
        which = missing[0] if missing else f"encoder.layer.0.{LAYER['query']}.weight"
        raise ValueError(f"{path} has no array {which}; pass the weights of a BERT encoder.")
    embeddings = {ours: given[name].astype(np.float32) for ours, name in first.items()}
    return embeddings, {
        ours: np.stack([given[n].astype(np.float32) for n in each]) for ours, each in names.items()
    }
