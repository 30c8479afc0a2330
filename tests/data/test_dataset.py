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
    assert mh.Dataset.from_arrays(arrays[0], [0, 7, 0, 0, 7, 7]).labels.tolist() == [
        -1,
        1,
        -1,
        -1,
        1,
        1,
    ]


def test_saves_and_loads_equal(arrays, tmp_path):
    mask = np.ones((6, 4), bool)
    mask[2, 1:] = False
    data = mh.Dataset.from_arrays(*arrays, mask=mask, relevant=~mask, name="pets")
    data.save(tmp_path / "pets.npz")
    back = mh.Dataset.load(tmp_path / "pets.npz")
    for name in ("tokens", "labels", "mask", "relevant", "label_names", "name"):
        assert np.array_equal(getattr(back, name), getattr(data, name)), name


def test_a_known_bound_on_the_norms_stays_with_the_data(arrays, tmp_path):
    tokens, labels = arrays[0], arrays[1]
    largest = float(np.linalg.norm(tokens, axis=-1).max())
    data = mh.Dataset.from_arrays(tokens, labels, norm_bound=2 * largest)
    data.save(tmp_path / "data.npz")
    for kept in (data, data.without(0), mh.Dataset.load(tmp_path / "data.npz")):
        assert kept.norm_bound == 2 * largest
    assert mh.Dataset.from_arrays(tokens, labels).norm_bound is None
    with pytest.raises(ValueError, match="norm_bound=.* is below the largest token norm"):
        mh.Dataset.from_arrays(tokens, labels, norm_bound=largest / 2)


def test_bounded_sources_say_so_and_gaussian_ones_do_not():
    key = jax.random.key(0)
    mixture = mh.TokenizedMixture(key=key)
    assert mixture.sample(20, key=key).norm_bound == mixture.token_radius
    assert mh.data.RandomLabels(token_norm=3.0).sample(20, key=key).norm_bound == 3.0
    assert mh.data.Planted(key=key).sample(20, key=key).norm_bound is None


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
    assert mh.Dataset.from_arrays(tokens, arrays[1], mask=mask).token_radius == pytest.approx(
        50 * 3**0.5
    )
    mask[0, 3] = False
    assert mh.Dataset.from_arrays(tokens, arrays[1], mask=mask).token_radius == 1.0


def test_parts_are_disjoint_and_complete(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    first, second = data.split(2, key=jax.random.key(0))
    both = np.concatenate([first.tokens, second.tokens])
    assert len(first.tokens) == 2 and {row.tobytes() for row in both} == {
        row.tobytes() for row in data.tokens
    }
    rest = data.without(1)
    assert np.array_equal(rest.tokens, np.delete(data.tokens, 1, axis=0))


def test_what_is_masked_means_nothing(arrays):
    tokens, labels = arrays
    mask = np.ones((6, 4), bool)
    mask[1, 2] = mask[4, 0] = False
    clean = mh.Dataset.from_arrays(tokens, labels, mask=mask)
    for junk in (np.nan, np.inf, 1e99):
        dirty = tokens.copy()
        dirty[~mask] = junk
        assert np.array_equal(mh.Dataset.from_arrays(dirty, labels, mask=mask).tokens, clean.tokens)
    assert (clean.tokens[~mask] == 0).all() and np.array_equal(clean.tokens[mask], tokens[mask])


def test_numbers_of_any_kind_and_layout_are_taken(arrays):
    tokens, labels = arrays
    for given in (
        tokens[:, ::-1, ::-1],
        np.asfortranarray(tokens),
        (9 * tokens).astype(np.int8),
        tokens > 0,
        tokens.tolist(),
    ):
        data = mh.Dataset.from_arrays(given, labels)
        assert data.tokens.dtype == np.float64 and np.array_equal(
            data.tokens, np.asarray(given, float)
        )
    tokens.flags.writeable = False
    assert mh.Dataset.from_arrays(tokens, labels == "dog").label_names == ("False", "True")


def test_the_class_itself_takes_what_a_user_has(arrays):
    tokens, labels = arrays
    made, same = mh.Dataset(tokens.tolist(), labels), mh.Dataset.from_arrays(tokens, labels)
    assert made.label_names == same.label_names and np.array_equal(made.labels, same.labels)
    assert np.array_equal(made.tokens, same.tokens) and made.tokens.dtype == np.float64
    with pytest.raises(ValueError, match=r"tokens\[0, 0\] holds NaN"):
        mh.Dataset(np.where(tokens == tokens[0, 0, 0], np.nan, tokens), labels)
    with pytest.raises(ValueError, match="labels has shape"):
        mh.Dataset(tokens, labels[1:])


def test_a_dataset_prints_in_one_line(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    assert repr(data) == str(data) and "\n" not in repr(data)


def test_an_array_of_the_user_may_be_called_meta(arrays, tmp_path):
    np.savez(tmp_path / "mine.npz", tokens=arrays[0], labels=arrays[1], meta=np.arange(3))
    assert mh.Dataset.load(tmp_path / "mine.npz").num_examples == 6
    for header in ("[1]", '{"format_version": "x"}', "{"):
        np.savez(tmp_path / "odd.npz", tokens=arrays[0], labels=arrays[1], meta=np.array(header))
        with pytest.raises(ValueError, match="is not a readable .npz file"):
            mh.Dataset.load(tmp_path / "odd.npz")


def test_a_split_does_not_depend_on_the_precision(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    with jax.enable_x64(False):
        first = data.split(2, key=jax.random.key(0))[0].tokens
    assert np.array_equal(data.split(2, key=jax.random.key(0))[0].tokens, first)


def test_a_share_or_a_number_of_sequences_is_split_off_and_a_seed_is_a_key(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    assert [len(part) for part in data.split(0.5, key=0)] == [3, 3]
    assert [len(part) for part in data.split(1e-9, key=0)] == [1, 5]
    one, other = data.split(2, key=3)[0], data.split(2, key=jax.random.key(3))[0]
    assert np.array_equal(one.tokens, other.tokens)


def test_a_dataset_has_a_length_slices_and_iterates(arrays):
    mask = np.ones((6, 4), bool)
    mask[1, 2:] = False
    data = mh.Dataset.from_arrays(*arrays, mask=mask)
    assert (
        len(data) == 6
        and len(data[:4]) == 4
        and np.array_equal(data[::2].tokens, data.subset([0, 2, 4]).tokens)
    )
    assert np.array_equal(data[data.labels > 0].labels, np.ones(3))
    tokens, label = data[1]
    assert label == "dog" and np.array_equal(tokens, arrays[0][1, :2])
    assert [name for _, name in data] == arrays[1].tolist() and data.names.tolist() == arrays[
        1
    ].tolist()


def test_the_positive_label_can_be_named(arrays):
    data = mh.Dataset.from_arrays(*arrays, positive="cat")
    assert data.labels.tolist() == [1, -1, 1, 1, -1, -1] and data.label_names == ("dog", "cat")


def test_a_second_dataset_has_the_labels_of_the_first_and_may_be_of_one_class(arrays):
    data = mh.Dataset.from_arrays(*arrays, positive="cat")
    one = mh.Dataset.from_arrays(arrays[0][:2], ["dog", "dog"], like=data)
    assert one.labels.tolist() == [-1, -1] and one.label_names == data.label_names
    numbers = mh.Dataset.from_arrays(arrays[0], [0, 1, 0, 0, 1, 1])
    assert mh.Dataset.from_arrays(arrays[0][:1], [1.0], like=numbers).labels.tolist() == [1]


def test_risk_of_data_with_other_labels_is_refused(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    other = mh.Dataset.from_arrays(arrays[0], np.where(arrays[1] == "cat", "no", "yes"))
    with pytest.raises(ValueError, match="label 'no' is none of data's, which are 'cat' and 'dog'"):
        mh.measures.risk(mh.zero_start(1, num_tokens=4, dim=3), data, other)


def test_a_model_predicts_label_names(arrays):
    data = mh.Dataset.from_arrays(*arrays)
    model = mh.gaussian_start(1, num_tokens=4, dim=3, key=0)
    assert model.predict(data).tolist() == [
        "dog" if score > 0 else "cat" for score in model.scores(data)
    ]


def test_a_label_written_as_another_number_is_the_same_label():
    X = np.ones((2, 3, 4))
    whole, real, words = (
        mh.Dataset.from_arrays(X, labels) for labels in ([-1, 1], [-1.0, 1.0], ["no", "yes"])
    )
    start = mh.zero_start(2, num_tokens=3, dim=4)
    run = mh.train(start, whole, rule=mh.GD(0.1), num_steps=2, test=real)
    assert run.test_loss is not None
    with pytest.raises(ValueError, match="label 'no' is none of"):
        mh.train(start, whole, rule=mh.GD(0.1), num_steps=2, test=words)
