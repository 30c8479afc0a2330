"""Datasets whose tokens stay in a file: the same numbers, read block by block."""

import numpy as np
import pytest

import manyheads as mh
from manyheads.data import mapped
from manyheads.data.mapped import Mapped
from manyheads.training.resume import fingerprint


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 3, 5)).astype(np.float32), np.array(["no", "yes"] * 20)


@pytest.fixture
def files(tmp_path, arrays):
    for name, array in zip(("x.npy", "y.npy"), arrays, strict=True):
        np.save(tmp_path / name, array)
    return tmp_path / "x.npy", tmp_path / "y.npy"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of seven sequences, and a subset of more than ten stays in the file."""
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 7 * 3 * 5 * 4)
    monkeypatch.setattr(mapped, "SMALL_BYTES", 10 * 3 * 5 * 8)


def assert_same(data, other):
    assert np.array_equal(np.asarray(data.tokens), np.asarray(other.tokens))
    for name in ("labels", "mask", "relevant"):
        assert np.array_equal(getattr(data, name), getattr(other, name)), name
    assert data.label_names == other.label_names and data.norm_bound == other.norm_bound
    assert fingerprint(data) == fingerprint(other)
    assert data.token_radius == pytest.approx(other.token_radius, rel=1e-15)


def test_two_npy_files_hold_what_load_reads(files):
    data = mh.Dataset.open(*files)
    assert data.in_place and data.tokens.dtype == np.float32
    assert_same(data, mh.Dataset.load(*files))
    assert f"read block by block from {files[0]}" in str(data)


@pytest.mark.parametrize("sealed", [True, False])
def test_an_npz_file_is_mapped(tmp_path, arrays, sealed):
    rng = np.random.default_rng(1)
    mask = rng.random((40, 3)) < 0.7
    mask[:, 0] = True
    whole = mh.Dataset.from_arrays(
        *arrays, mask=mask, relevant=mask, name="mine", norm_bound=100.0, positive="no"
    )
    path = tmp_path / "data.npz"
    if sealed:
        whole.save(path)
    else:
        np.savez(path, tokens=arrays[0], labels=arrays[1], mask=mask, relevant=mask)
    data = mh.Dataset.open(path)
    assert isinstance(data.tokens.array, np.memmap)
    assert_same(data, mh.Dataset.load(path))


def test_an_array_is_not_copied(arrays):
    data = mh.Dataset.open(*arrays)
    assert np.shares_memory(data.tokens.array, arrays[0])
    assert_same(data, mh.Dataset.from_arrays(*arrays))


def test_masked_tokens_may_hold_anything(tmp_path, arrays):
    X, mask = arrays[0].copy(), np.ones((40, 3), bool)
    X[9, 1], mask[9, 1] = np.nan, False
    np.save(tmp_path / "x.npy", X)
    data = mh.Dataset.open(tmp_path / "x.npy", arrays[1], mask=mask)
    assert_same(data, mh.Dataset.from_arrays(X, arrays[1], mask=mask))
    assert not data.tokens[9][1].any()


def test_subsets_are_read_or_stay(files):
    data, whole = mh.Dataset.open(*files), mh.Dataset.load(*files)
    few, many = [5, 3, 39], np.random.default_rng(2).permutation(40)[:30]
    assert (
        isinstance(data.subset(few).tokens, np.ndarray)
        and data.subset(few).tokens.dtype == np.float64
    )
    assert isinstance(data.subset(many).tokens, Mapped)
    for part in (few, many):
        assert_same(data.subset(part), whole.subset(part))
    assert_same(data.subset(many).subset(np.arange(29)), whole.subset(many[:29]))
    for ours, theirs in zip(data.split(0.5, key=0), whole.split(0.5, key=0), strict=True):
        assert_same(ours, theirs)
    again = data.subset(many)
    assert_same(again.subset(again.tokens.file_order), whole.subset(np.sort(many)))


def test_operations_on_all_tokens_are_those_of_float64(files):
    tokens, whole = mh.Dataset.open(*files).tokens, mh.Dataset.load(*files).tokens
    assert np.array_equal(tokens * 2.0 + 1.0, whole * 2.0 + 1.0)
    assert np.array_equal(np.linalg.norm(tokens, axis=-1), np.linalg.norm(whole, axis=-1))
    assert tokens.mean() == whole.mean()


def test_what_does_not_fit_in_memory_is_refused(files, monkeypatch):
    data = mh.Dataset.open(*files)
    monkeypatch.setenv("MANYHEADS_MEMORY", "0.000001")
    with pytest.raises(
        ValueError, match="reading all 40 sequences into memory needs about .* dataset.subset"
    ):
        np.asarray(data.tokens)


def test_bad_tokens_are_named_wherever_they_are(tmp_path, arrays):
    X = arrays[0].copy()
    X[31, 2, 4] = np.inf
    with pytest.raises(ValueError, match=r"tokens\[31, 2\] holds NaN"):
        mh.Dataset.open(X, arrays[1])
    with pytest.raises(ValueError, match="the largest entry of tokens is 1e-41"):
        mh.Dataset.open(np.full((4, 1, 1), 1e-41), [0, 1, 0, 1])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p, X, y: np.save(p / "x.npy", X[0]), "tokens has shape"),
        (lambda p, X, y: np.save(p / "x.npy", X.astype(str)), "it must hold numbers"),
        (lambda p, X, y: (p / "x.npy").write_bytes(b"no array"), "not a readable .npy file"),
        (lambda p, X, y: np.save(p / "x.npy", np.zeros((0, 2, 2))), "not a readable .npy file"),
        (
            lambda p, X, y: np.save(p / "x.npy", np.array([{}], object), allow_pickle=True),
            "not a readable .npy file",
        ),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, arrays, make, said):
    make(tmp_path, *arrays)
    with pytest.raises(ValueError, match=said) as error:
        mh.Dataset.open(tmp_path / "x.npy", arrays[1])
    assert "\n" not in str(error.value)


def test_a_compressed_file_says_what_to_do(tmp_path, arrays):
    np.savez_compressed(tmp_path / "data.npz", tokens=arrays[0], labels=arrays[1])
    with pytest.raises(ValueError, match=r"compressed; np\.savez writes it"):
        mh.Dataset.open(tmp_path / "data.npz")


def test_a_damaged_array_is_found_before_it_is_used(tmp_path, arrays):
    path = tmp_path / "data.npz"
    np.savez(path, tokens=arrays[0], labels=arrays[1])
    raw = bytearray(path.read_bytes())
    raw[1000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="not a readable .npz file"):
        mh.Dataset.open(path)


def test_labels_are_needed(files, tmp_path):
    with pytest.raises(ValueError, match="holds no labels"):
        mh.Dataset.open(files[0])
    (tmp_path / "t.csv").write_text("sequence,label,a\n0,1,2\n")
    with pytest.raises(ValueError, match="cannot be read block by block"):
        mh.Dataset.open(tmp_path / "t.csv")
