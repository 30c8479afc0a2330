import jax
import numpy as np
import pytest

import manyheads as mh


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return rng.standard_normal((6, 4, 3)), np.array(["cat", "dog", "cat", "cat", "dog", "dog"])


def test_of_two_label_values_the_larger_is_plus_one_and_the_mapping_is_kept(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    assert data.labels.tolist() == [-1, 1, -1, -1, 1, 1] and data.label_names == ("cat", "dog")
    assert "3 labeled dog (+1), 3 labeled cat (-1)" in str(data)
    assert mh.Dataset.from_arrays(arrays[0], [0, 7, 0, 0, 7, 7]).labels.tolist() == [-1, 1, -1, -1, 1, 1]


def test_saves_and_loads_equal(arrays, tmp_path):
    mask = np.ones((6, 4), bool)
    mask[2, 1:] = False
    data = mh.Dataset.from_arrays(*arrays, mask=mask, relevant=~mask, name="pets")
    data.save(tmp_path / "pets.npz")
    back = mh.Dataset.load(tmp_path / "pets.npz")
    for name in ("tokens", "labels", "mask", "relevant", "label_names", "name"):
        assert np.array_equal(getattr(back, name), getattr(data, name)), name


def test_loads_a_plain_npz_of_the_user(arrays, tmp_path):
    np.savez(tmp_path / "mine.npz", tokens=arrays[0].astype("float32"), labels=arrays[1])
    data = mh.Dataset.load(tmp_path / "mine.npz")
    assert data.num_examples == 6 and data.tokens.dtype == np.float64 and data.name == "mine"


def test_the_caller_may_change_his_arrays_afterwards(arrays):
    tokens, labels = arrays
    data = mh.Dataset.from_arrays(tokens, labels)
    tokens[0] = 99
    assert data.tokens.max() < 99


def test_radius_ignores_padding_and_is_at_least_one(arrays):
    tokens = 0.01 * arrays[0]
    tokens[0, 3] = 50
    mask = np.ones((6, 4), bool)
    assert mh.Dataset.from_arrays(tokens, arrays[1], mask=mask).token_radius == pytest.approx(50 * 3**0.5)
    mask[0, 3] = False
    assert mh.Dataset.from_arrays(tokens, arrays[1], mask=mask).token_radius == 1.0


def test_parts_are_disjoint_and_complete(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    first, second = data.split(2, key=jax.random.key(0))
    both = np.concatenate([first.tokens, second.tokens])
    assert len(first.tokens) == 2 and {row.tobytes() for row in both} == {row.tobytes() for row in data.tokens}
    rest = data.without(1)
    assert np.array_equal(rest.tokens, np.delete(data.tokens, 1, axis=0))
