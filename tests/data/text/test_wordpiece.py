import json

import pytest

from manyheads.data.text import WordPiece

PIECES = "[PAD] [UNK] [CLS] [SEP] hello world resume don t ' , ! un ##believ ##able a ##b ##c — 中 国 fine caf ##e".split()


@pytest.fixture
def tokenizer():
    return WordPiece({piece: place for place, piece in enumerate(PIECES)})


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Hello, WORLD!", ["hello", ",", "world", "!"]),
        ("don't", ["don", "'", "t"]),
        (
            "Résumé cafe\u0301",
            ["resume", "caf", "##e"],
        ),  # one letter with its accent, or two characters
        ("unbelievable", ["un", "##believ", "##able"]),
        ("abc abd", ["a", "##b", "##c", "[UNK]"]),  # no way to end the second word
        ("xyz", ["[UNK]"]),
        ("a" + "b" * 99, ["a"] + ["##b"] * 99),
        ("a" + "b" * 100, ["[UNK]"]),  # longer than any word
        ("hello—world", ["hello", "—", "world"]),  # punctuation of Unicode
        ("中国", ["中", "国"]),
        (
            "he\u200bllo\twor\x00ld\u00a0fine\ufffd",
            ["hello", "world", "fine"],
        ),  # what cannot be seen
        ("[SEP]", ["[UNK]", "[UNK]", "[UNK]"]),  # text, not the special token
        ("", []),
    ],
)
def test_pieces_of_a_text(tokenizer, text, pieces):
    assert tokenizer.pieces(text) == pieces


def test_a_sentence_is_framed_and_its_beginning_kept(tokenizer):
    framed = tokenizer.framed("hello world hello world", 4)
    assert framed == ["[CLS]", "hello", "world", "[SEP]"]
    assert tokenizer.numbers(framed) == [2, 4, 5, 3]
    assert tokenizer.framed("", 4) == ["[CLS]", "[SEP]"]


def test_a_cased_vocabulary_keeps_case_and_accents():
    known = {piece: place for place, piece in enumerate([*PIECES, "Hello", "é"])}
    assert WordPiece(known, lowercase=False, strip_accents=False).pieces("Hello é hello") == [
        "Hello",
        "é",
        "hello",
    ]


def test_both_kinds_of_file_are_read_alike(tmp_path, tokenizer):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    model = {"type": "WordPiece", "vocab": tokenizer.vocabulary, "max_input_chars_per_word": 100}
    content = {"normalizer": {"lowercase": True, "strip_accents": None}, "model": model}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert (
        WordPiece.load(tmp_path / "vocab.txt")
        == WordPiece.load(tmp_path / "tokenizer.json")
        == tokenizer
    )
    content["normalizer"]["lowercase"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    cased = WordPiece.load(tmp_path / "tokenizer.json")
    assert not cased.lowercase and not cased.strip_accents


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "vocab.txt",
            "hello\nworld\n",
            r"the vocabulary has no \[UNK\], \[CLS\], \[SEP\], \[PAD\]",
        ),
        ("tokenizer.json", "{", "tokenizer.json cannot be read"),
        (
            "tokenizer.json",
            '{"model": {"type": "BPE", "vocab": {}}}',
            "is not a WordPiece tokenizer",
        ),
        ("tokenizer.json", "[]", "is not a WordPiece tokenizer"),
    ],
)
def test_a_file_that_is_none_says_so(tmp_path, name, content, words):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words):
        WordPiece.load(tmp_path / name)
    with pytest.raises(
        FileNotFoundError, match="nowhere.json does not exist; pass a tokenizer.json"
    ):
        WordPiece.load(tmp_path / "nowhere.json")
