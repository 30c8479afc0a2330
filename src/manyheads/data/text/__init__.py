"""Sentences as tokens: a WordPiece tokenizer, the forward pass of a BERT encoder, and labeled movie reviews."""

from manyheads._lazy import front_door

_HOME = {
    "WordPiece": "manyheads.data.text.wordpiece",
    "Encoder": "manyheads.data.text.encoder",
    "Corpus": "manyheads.data.text.corpus",
    "prepare": "manyheads.data.text.corpus",
    "reviews": "manyheads.data.text.movies",
}

__getattr__, __dir__ = front_door(__name__, _HOME)
