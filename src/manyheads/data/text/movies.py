"""Sentences of movie reviews (Rotten Tomatoes), labeled by whether the critic liked the movie."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np

from manyheads.data.door import FROM_ZERO, SHARE, guarded
from manyheads.data.text.corpus import Corpus, cache_path, cached, drawn, encoded
from manyheads.data.text.encoder import Encoder
from manyheads.data.text.packages import INSTALL, MODEL, REVIEWS, are_installed, installed

NAME = "movie reviews"
SOURCE = "rotten_tomatoes"


@guarded(layers=FROM_ZERO, num_examples=None, test_share=SHARE)
def reviews(
    *,
    layers: Sequence[int] = (6,),
    dim: int = 32,
    num_tokens: int = 32,
    num_examples: int | None = None,
    test_share: float = 0.25,
    seed: int = 0,
) -> Corpus:
    """8,530 sentences of movie reviews through all-MiniLM-L6-v2, or `num_examples` of them drawn at random.

    Needs two packages, or a file prepared elsewhere; the error says what to type. Encoding all of them takes a minute
    or two the first time; `reviews().split(layer=6)` are then training, validation and test data.
    """
    key = _key(layers, dim, num_tokens, num_examples, test_share, seed)

    def make() -> Corpus:
        weights = installed(MODEL)
        chosen = drawn(*sentences(), test_share, seed, num_examples)
        return encoded(Encoder.load(weights), *chosen, layers, dim, num_tokens, NAME)

    return cached(key, make)


def sentences() -> tuple[list[str], np.ndarray]:
    """All sentences with their labels, "negative" and "positive"."""
    with open(installed(REVIEWS), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == SOURCE]
    return [row["text"] for row in rows], np.array(
        [("negative", "positive")[int(row["label"])] for row in rows]
    )


def why_not(**settings: Any) -> str:
    """Why `reviews(**settings)` would fail here, in a sentence; empty where it would not."""
    defaults = dict(layers=(6,), dim=32, num_tokens=32, num_examples=None, test_share=0.25, seed=0)
    if cache_path(_key(**{**defaults, **settings})).is_file() or are_installed(MODEL, REVIEWS):
        return ""
    return f"the text packages are not installed: type `{INSTALL}`"


def _key(layers, dim, num_tokens, num_examples, test_share, seed) -> dict[str, Any]:
    return {
        "name": NAME,
        "weights": MODEL.digest,
        "sentences": REVIEWS.digest,
        "layers": list(layers),
        "dim": dim,
        "num_tokens": num_tokens,
        "num_examples": num_examples,
        "test_share": test_share,
        "seed": seed,
    }
