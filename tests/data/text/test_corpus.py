import numpy as np
import pytest
from data.text import encoders

from manyheads.data.text import Corpus, Encoder, prepare
from manyheads.data.text import corpus as corpus_module
from manyheads.data.text.corpus import FOLDER, cache_path, distinct, encoded, principal

WORDS = encoders.PIECES[4:11]
SENTENCES = [f"{a} {b}" for a in WORDS for b in WORDS if a != b]
LABELS = ["good" if "good" in text else "bad" for text in SENTENCES]
OPTIONS = {"layers": (0, 2), "dim": 5, "num_tokens": 8}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Encoder.load(encoders.write(tmp_path_factory.mktemp("encoder")))


@pytest.fixture
def corpus(encoder, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return prepare(SENTENCES, LABELS, encoder=encoder, **OPTIONS)


def test_duplicates_go_before_the_split_and_contradictions_altogether():
    texts = ["a film", "A  film", "good", "bad", "Bad", "new"]
    assert distinct(texts, np.array([0, 0, 1, 0, 1, 1])).tolist() == [0, 2, 5]


def test_components_are_those_of_an_svd_of_the_tokens(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((52, 6)) * np.arange(1, 7)
    monkeypatch.setattr(corpus_module, "CHUNK", 20)
    center, components = principal(rows, 2)
    np.testing.assert_allclose(center, rows.mean(axis=0), rtol=1e-6)
    expected = np.linalg.svd(rows - rows.mean(axis=0))[2][:2].T
    np.testing.assert_allclose(np.abs(np.sum(components * expected, axis=0)), 1, rtol=1e-6)


def test_test_sentences_do_not_touch_what_is_learned_from_the_others(
    corpus, encoder, monkeypatch, tmp_path
):
    """Other test sentences give the same tokens to the rest: mean, components and unit are those of the rest."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "other"))
    texts = [
        text if not held else text + " cold warm new old"
        for text, held in zip(*_in_order(corpus), strict=True)
    ]
    other = encoded(encoder, texts, corpus.labels, corpus.is_test, (2,), 5, 8, "other")
    own = ~corpus.is_test
    np.testing.assert_array_equal(
        other.dataset(2, np.flatnonzero(own)).tokens, corpus.dataset(2, np.flatnonzero(own)).tokens
    )
    assert not np.array_equal(
        other.dataset(2, np.flatnonzero(~own)).tokens,
        corpus.dataset(2, np.flatnonzero(~own)).tokens,
    )


def _in_order(corpus):
    return [" ".join(one[1:-1]) for one in corpus.pieces], corpus.is_test


def test_tokens_are_projected_hidden_states_in_units_of_their_size(corpus, encoder):
    data = corpus.dataset(2)
    assert data.tokens.shape == (len(SENTENCES), 8, 5) and data.label_names == ("bad", "good")
    own = corpus.dataset(2, np.flatnonzero(~corpus.is_test))
    np.testing.assert_allclose(
        (own.tokens[own.mask] ** 2).sum(axis=1).mean(), 1, rtol=1e-3
    )  # half precision
    states, mask = encoder.hidden_states(_in_order(corpus)[0], layer=2, num_tokens=8)
    distances = np.linalg.norm(states[mask][:, None] - states[mask][None], axis=2)
    found = np.linalg.norm(data.tokens[data.mask][:, None] - data.tokens[data.mask][None], axis=2)
    # A projection brings nothing farther apart; half precision rounds entries below 4 by at most 0.002.
    assert np.all(found <= _unit(corpus, states, mask) * distances + 2 * np.sqrt(5) * 0.002)
    assert corpus.means[2].shape == (len(SENTENCES), encoders.DIM)


def _unit(corpus, states, mask):
    """What hidden states were divided by, from the means at full width."""
    sums = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    apart = np.linalg.norm(sums[0] - sums[1])
    return np.linalg.norm(corpus.means[2][0].astype(float) - corpus.means[2][1]) / apart


def test_parts_are_disjoint_and_the_test_data_the_same_for_every_seed(corpus):
    first, second = corpus.places(0.25, 0), corpus.places(0.25, 1)
    for parts in (first, second):
        assert sorted(np.concatenate(parts)) == list(range(len(SENTENCES)))
    np.testing.assert_array_equal(first[2], second[2])
    assert set(first[1]) != set(second[1])
    train, validation, test = corpus.split(0, validation=0.25, seed=1)
    assert [len(part) for part in (train, validation, test)] == [len(places) for places in second]
    np.testing.assert_array_equal(validation.names, corpus.labels[second[1]])


def test_a_corpus_is_kept_under_a_hash_of_all_it_depends_on(corpus, encoder, tmp_path, monkeypatch):
    (path,) = tmp_path.glob("*.npz")
    read = Corpus.load(path)
    assert read.pieces == corpus.pieces and str(read) == str(corpus)
    for layer in corpus.layers:
        np.testing.assert_array_equal(read.tokens[layer], corpus.tokens[layer])
    monkeypatch.setattr(Encoder, "states", None)  # nothing is encoded again
    prepare(SENTENCES, LABELS, encoder=encoder, **OPTIONS)
    for changed in ({"dim": 4}, {"seed": 1}, {"num_tokens": 6}, {"layers": (0,)}):
        with pytest.raises(TypeError):
            prepare(SENTENCES, LABELS, encoder=encoder, **{**OPTIONS, **changed})
    with pytest.raises(TypeError):
        prepare(SENTENCES, LABELS[::-1], encoder=encoder, **OPTIONS)
    monkeypatch.undo()
    monkeypatch.setenv(FOLDER, str(tmp_path))
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])  # a damaged file is made anew
    prepare(SENTENCES, LABELS, encoder=encoder, **OPTIONS)
    assert path.read_bytes() == whole


def test_the_cache_is_the_users_unless_told(monkeypatch, tmp_path):
    key = {"name": "some reviews", "dim": 3}
    monkeypatch.delenv(FOLDER, raising=False)
    assert "manyheads" in str(cache_path(key)) and cache_path(key).name.startswith("some-reviews-")
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert cache_path(key).parent == tmp_path


def test_bad_input_is_one_line(encoder, tmp_path, monkeypatch, corpus):
    with pytest.raises(ValueError, match=r"labels has shape \(1,\); it must be \(42,\)"):
        prepare(SENTENCES, ["good"], encoder=encoder, **OPTIONS)
    with pytest.raises(ValueError, match="dim=13 must be at most 12, the width of the encoder"):
        prepare(SENTENCES, LABELS, encoder=encoder, **{**OPTIONS, "dim": 13})
    with pytest.raises(ValueError, match="layer=3 must be 0"):
        prepare(SENTENCES, LABELS, encoder=encoder, **{**OPTIONS, "layers": [3]})
    with pytest.raises(ValueError, match="layer=1 is not prepared; these are: 0, 2"):
        corpus.dataset(1)
    np.savez(tmp_path / "other.npz", tokens=np.zeros(3))
    with pytest.raises(ValueError, match="holds no prepared sentences"):
        Corpus.load(tmp_path / "other.npz")
