"""BERT's tokenizer: text is cleaned, split at spaces and punctuation, and each word into the longest known pieces."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from manyheads.data.door import guarded
from manyheads.data.files import short

UNKNOWN, FIRST, LAST, PADDING = "[UNK]", "[CLS]", "[SEP]", "[PAD]"
IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
SEPARATE_ASCII = frozenset(
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
)  # also where Unicode calls them symbols


@dataclass(frozen=True)
class WordPiece:
    """A vocabulary, and how text is normalized before it is looked up. Make one with `WordPiece.load`.

    A text that contains "[MASK]" or another special token is read as text, not as the token.
    """

    vocabulary: dict[str, int]
    lowercase: bool = True
    strip_accents: bool = True
    prefix: str = "##"  # of a piece that does not begin a word
    longest_word: int = 100  # characters; longer words are unknown

    def __post_init__(self) -> None:
        missing = [name for name in (UNKNOWN, FIRST, LAST, PADDING) if name not in self.vocabulary]
        if missing:
            raise ValueError(
                f"the vocabulary has no {', '.join(missing)}; pass that of a BERT encoder."
            )

    @classmethod
    @guarded()
    def load(cls, path: str | Path) -> WordPiece:
        """From a `tokenizer.json`, or from a `vocab.txt` with a piece per line (then uncased)."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist; pass a tokenizer.json or a vocab.txt.")
        try:
            text = path.read_text(encoding="utf-8")
            content = json.loads(text) if path.suffix == ".json" else None
        except ValueError as error:
            raise ValueError(
                f"{path} cannot be read ({short(error)}); pass a tokenizer.json or a vocab.txt."
            ) from None
        if content is None:
            return cls({piece: place for place, piece in enumerate(text.splitlines())})
        return cls(**_settings(content, path))

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, without the two that the encoder puts around it."""
        return [piece for word in self.words(text) for piece in self._split(word)]

    def words(self, text: str) -> list[str]:
        """The words and punctuation marks of a text, normalized."""
        text = "".join(_cleaned(character) for character in text)
        if self.strip_accents:
            text = "".join(
                c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn"
            )
        if self.lowercase:
            text = text.lower()
        return "".join(f" {c} " if _stands_alone(c) else c for c in text).split()

    def _split(self, word: str) -> list[str]:
        if len(word) > self.longest_word:
            return [UNKNOWN]
        pieces, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = (self.prefix if start else "") + word[start:end]
                if piece in self.vocabulary:
                    break
            else:
                return [UNKNOWN]
            pieces.append(piece)
            start = end
        return pieces

    def framed(self, text: str, num_tokens: int) -> list[str]:
        """The pieces between [CLS] and [SEP]; of a long text its beginning, so that all are at most `num_tokens`."""
        return [FIRST, *self.pieces(text)[: num_tokens - 2], LAST]

    def numbers(self, pieces: list[str]) -> list[int]:
        """The place of each piece in the vocabulary."""
        return [self.vocabulary[piece] for piece in pieces]


def _settings(content: Any, path: Path) -> dict[str, Any]:
    """What a `tokenizer.json` says."""
    parts = content if isinstance(content, dict) else {}
    model, normalizer = parts.get("model"), parts.get("normalizer") or {}
    if (
        not (isinstance(model, dict) and isinstance(vocabulary := model.get("vocab"), dict))
        or model.get("type", "WordPiece") != "WordPiece"
    ):
        raise ValueError(f"{path} is not a WordPiece tokenizer; pass that of a BERT encoder.")
    lowercase = bool(normalizer.get("lowercase", True))
    accents = normalizer.get("strip_accents")
    return {
        "vocabulary": vocabulary,
        "lowercase": lowercase,
        "strip_accents": lowercase if accents is None else bool(accents),
        "prefix": model.get("continuing_subword_prefix", "##"),
        "longest_word": model.get("max_input_chars_per_word", 100),
    }


def _cleaned(character: str) -> str:
    """A space for white space, nothing for what cannot be seen."""
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if character == "\ufffd" or category in ("Cc", "Cf", "Cn", "Co", "Cs"):
        return ""
    return " " if category == "Zs" else character


def _stands_alone(character: str) -> bool:
    """Whether a character is a word of its own: punctuation, and the ideographs of Chinese."""
    if character in SEPARATE_ASCII or unicodedata.category(character).startswith("P"):
        return True
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)
