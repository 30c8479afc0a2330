import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import manyheads as mh

RNG = np.random.default_rng(0)
LISTS = [RNG.standard_normal((length, 2)) for length in (3, 1, 2, 3)]
LABELS = ["no", "yes", "yes", "no"]
DATA = mh.Dataset.from_lists(LISTS, LABELS)


def table(lists=LISTS, labels=LABELS):
    rows = [
        {"sequence": f"s{i}", "label": label, "x": x, "y": y}
        for i, (one, label) in enumerate(zip(lists, labels, strict=True))
        for x, y in one
    ]
    return pd.DataFrame(rows)


def same(one, other):
    assert np.array_equal(one.tokens, other.tokens) and np.array_equal(one.mask, other.mask)
    assert np.array_equal(one.labels, other.labels) and one.label_names == other.label_names


def test_lists_are_padded_and_masked():
    assert DATA.tokens.shape == (4, 3, 2) and DATA.mask.sum(axis=1).tolist() == [3, 1, 2, 3]
    for (tokens, label), one, name in zip(DATA, LISTS, LABELS, strict=True):
        assert np.array_equal(tokens, one) and label == name
    assert mh.Dataset.from_lists([LISTS[0], LISTS[3]], [0, 1]).mask is None


def test_a_table_with_a_row_per_token_and_one_with_lists_are_the_same_data():
    same(mh.Dataset.from_pandas(table()), DATA)
    lists = pd.DataFrame({"tokens": [one.tolist() for one in LISTS], "label": LABELS})
    same(mh.Dataset.from_pandas(lists), DATA)
    renamed = table().rename(columns={"sequence": "id", "label": "class"})
    same(mh.Dataset.from_pandas(renamed, sequence="id", label="class"), DATA)
    assert mh.Dataset.from_pandas(table(), features=["y"]).dim == 1


def test_a_csv_file_is_data(tmp_path):
    table().to_csv(tmp_path / "mine.csv", index=False)
    back = mh.Dataset.load(tmp_path / "mine.csv")
    assert np.allclose(back.tokens, DATA.tokens, rtol=1e-15) and back.name == "mine"


def test_numbers_as_labels_stay_numbers_in_a_csv(tmp_path):
    table(labels=[0, 1, 1, 0]).to_csv(tmp_path / "mine.csv", index=False)
    assert mh.Dataset.load(tmp_path / "mine.csv").label_names == ("0", "1")


def test_a_wrong_format_says_which_there_are(tmp_path):
    table().to_csv(tmp_path / "mine.npz", index=False)
    with pytest.raises(ValueError, match="are read from .npz, .csv and .parquet files") as caught:
        mh.Dataset.load(tmp_path / "mine.npz")
    assert "pickle" not in str(caught.value)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="empty.csv is not a readable CSV file"):
        mh.Dataset.load(tmp_path / "empty.csv")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns=["x", "y"]), "has no feature columns besides 'sequence' and 'label'"),
        (lambda t: t.assign(x="a"), "column 'x' holds no numbers; name the feature columns"),
        (lambda t: t.assign(label=["no", "yes"] * 4 + ["no"]), "sequence 's0' has rows with different labels"),
        (lambda t: t.assign(label=None), "label 0 is missing"),
    ],
)
def test_a_bad_table_is_told_in_one_line(change, words):
    with pytest.raises(ValueError, match=words):
        mh.Dataset.from_pandas(change(table()))


class Tensor:
    """What PyTorch's tensors do: no array while a gradient is asked for, no array of bfloat16 at all."""

    def __init__(self, values, dtype="torch.float32", gradient=True):
        self.values, self.dtype, self.gradient = values, dtype, gradient

    def detach(self):
        return Tensor(self.values, self.dtype, False)

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.values, "torch.float32", self.gradient)

    def __array__(self, dtype=None, copy=None):
        if self.gradient or self.dtype == "torch.bfloat16":
            raise RuntimeError("Can't call numpy() on this tensor")
        return np.asarray(self.values, np.float32)


def test_tensors_with_gradients_and_bfloat16_are_arrays():
    tokens = RNG.standard_normal((4, 3, 2)).astype(np.float32)
    plain = mh.Dataset.from_arrays(tokens, [0, 1, 0, 1])
    for kind in ("torch.float32", "torch.bfloat16"):
        assert np.array_equal(mh.Dataset.from_arrays(Tensor(tokens, kind), [0, 1, 0, 1]).tokens, plain.tokens)
    brief = jnp.asarray(tokens, jnp.bfloat16)
    assert np.allclose(mh.Dataset.from_arrays(brief, [0, 1, 0, 1]).tokens, tokens, rtol=2**-7)


def test_columns_of_strings_are_labels():
    tokens = np.zeros((2, 1, 1))
    for column in (pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype=object)):
        assert mh.Dataset.from_arrays(tokens, column).label_names == ("a", "b")
