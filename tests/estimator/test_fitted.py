import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from manyheads.estimator.fitted import Fitted, fit
from manyheads.estimator.search import Wishes
from manyheads.estimator.sequences import as_sequences

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4, 3))
CODES = (X[:, 1, 0] > 0).astype(int)
WISHES = Wishes(1, "zero", 1.0, 40, early_stopping=False)


@pytest.fixture(scope="module")
def fitted():
    return fit(X, None, CODES, ("cold", "warm"), WISHES, positions="one-hot", seed=7)


def test_a_file_gives_back_the_same_classifier(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    back = Fitted.load(tmp_path / "model.safetensors")
    assert np.array_equal(back.scores(X), fitted.scores(X)) and set(back.predict(X)) == {
        "cold",
        "warm",
    }
    for name in ("label_names", "seed", "choice", "layout", "facts"):
        assert getattr(back, name) == getattr(fitted, name), name
    assert back.seed == 7 and str(back) == str(fitted)


def test_anybody_can_read_the_header(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    raw = (tmp_path / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    ours = json.loads(header["__metadata__"]["manyheads"])
    assert ours["label_names"] == ["cold", "warm"] and ours["seed"] == 7
    assert header["0.key_query"]["shape"] == [1, 8, 8]


def test_other_files_are_refused_in_one_line(fitted, tmp_path):
    other, damaged, cut = (tmp_path / f"{name}.safetensors" for name in ("other", "damaged", "cut"))
    save_file({"x": np.zeros(2)}, other)
    damaged.write_bytes(b"hello, this is no such file")
    fitted.save(cut)
    cut.write_bytes(cut.read_bytes()[:-10])
    cases = {
        other: "holds no classifier of manyheads",
        damaged: "is not a readable safetensors file",
        cut: "is not a readable safetensors file",
        tmp_path / "missing": "does not exist or is not a file",
    }
    for path, words in cases.items():
        with pytest.raises((ValueError, FileNotFoundError), match=words) as caught:
            Fitted.load(path)
        assert "\n" not in str(caught.value)


def test_scores_of_a_batch_are_those_of_its_parts(fitted):
    assert np.allclose(fitted.scores(X[:7]), fitted.scores(X)[:7], rtol=1e-12)


def test_padding_changes_nothing(fitted):
    short = [x[:2] for x in X[:5]]
    tokens, mask = as_sequences([*short, X[5]])
    assert mask.sum(axis=1).tolist() == [2, 2, 2, 2, 2, 4]
    assert np.allclose(fitted.scores([*short, X[5]])[:5], fitted.scores(short), rtol=1e-12)


def test_a_flipped_bit_of_a_classifier_is_found(fitted, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    whole = path.read_bytes()
    for place in np.random.default_rng(0).choice(len(whole), 60, replace=False):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(place) % 8
        path.write_bytes(bytes(changed))
        with pytest.raises(ValueError):
            Fitted.load(path)


def test_an_earlier_file_without_a_checksum_is_read(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("manyheads.estimator.fitted.FORMAT_VERSION", 1)
    monkeypatch.setattr("manyheads.estimator.fitted._seal", lambda tensors, header: None)
    fitted.save(tmp_path / "old.safetensors")
    monkeypatch.undo()
    assert np.array_equal(Fitted.load(tmp_path / "old.safetensors").scores(X), fitted.scores(X))
