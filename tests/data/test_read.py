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


def test_two_npy_files_are_data(tmp_path):
    tokens, labels = RNG.standard_normal((4, 3, 2)), np.array(LABELS)
    np.save(tmp_path / "X.npy", tokens)
    np.save(tmp_path / "y.npy", labels)
    back = mh.Dataset.load(tmp_path / "X.npy", tmp_path / "y.npy", positive="no")
    assert (
        np.array_equal(back.tokens, tokens)
        and back.names.tolist() == LABELS
        and back.label_names == ("yes", "no")
    )
    with pytest.raises(
        ValueError, match="X.npy holds no labels. .* an .npy file of tokens a second one"
    ):
        mh.Dataset.load(tmp_path / "X.npy")
    with pytest.raises(
        ValueError, match="go with an .npy file of tokens; .*mine.csv holds its own"
    ):
        mh.Dataset.load(tmp_path / "mine.csv", tmp_path / "y.npy")


def test_lists_in_a_csv_file_are_data(tmp_path):
    pd.DataFrame({"tokens": [one.tolist() for one in LISTS], "label": LABELS}).to_csv(
        tmp_path / "mine.csv"
    )
    same(mh.Dataset.load(tmp_path / "mine.csv"), DATA)
    (tmp_path / "bad.csv").write_text("tokens,label\n1 2,a\n")
    with pytest.raises(
        ValueError,
        match=r"tokens='1 2' is no list; write \[\[1, 2\], \[3, 4\]\], one list per token",
    ):
        mh.Dataset.load(tmp_path / "bad.csv")


def test_parquet_files_of_both_kinds_are_data(tmp_path):
    pytest.importorskip("pyarrow")
    table().to_parquet(tmp_path / "rows.parquet")
    same(mh.Dataset.load(tmp_path / "rows.parquet"), DATA)
    pd.DataFrame({"tokens": [one.tolist() for one in LISTS], "label": LABELS}).to_parquet(
        tmp_path / "lists.parquet"
    )
    same(mh.Dataset.load(tmp_path / "lists.parquet"), DATA)
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(
        ValueError,
        match="bad.parquet is not a readable Parquet file: it is damaged, or of another format. Data are read from",
    ):
        mh.Dataset.load(tmp_path / "bad.parquet")


def test_one_label_can_stand_against_all_others():
    tokens = RNG.standard_normal((6, 3, 2))
    data = mh.Dataset.from_arrays(tokens, list("abcabc"), positive="b")
    assert data.label_names == ("not b", "b") and data.labels.tolist() == [-1, 1, -1, -1, 1, -1]
    assert mh.Dataset.from_arrays(tokens[:3], list("cba"), like=data).labels.tolist() == [-1, 1, -1]


def test_a_saved_dataset_keeps_which_label_is_positive(tmp_path):
    mh.Dataset.from_lists(LISTS, LABELS, positive="no").save(tmp_path / "mine.npz")
    assert mh.Dataset.load(tmp_path / "mine.npz").label_names == ("yes", "no")
    assert mh.Dataset.load(tmp_path / "mine.npz", positive="yes").label_names == ("no", "yes")
    assert mh.Dataset.load(tmp_path / "mine.npz", like=DATA).label_names == DATA.label_names


def test_numbers_as_labels_stay_numbers_in_a_csv(tmp_path):
    table(labels=[0, 1, 1, 0]).to_csv(tmp_path / "mine.csv", index=False)
    assert mh.Dataset.load(tmp_path / "mine.csv").label_names == ("0", "1")


def test_a_wrong_format_says_which_there_are(tmp_path):
    table().to_csv(tmp_path / "mine.npz", index=False)
    with pytest.raises(
        ValueError, match="are read from .npz, .npy, .csv and .parquet files"
    ) as caught:
        mh.Dataset.load(tmp_path / "mine.npz")
    assert "pickle" not in str(caught.value)
    np.save(tmp_path / "objects.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    for path in (tmp_path / "objects.npy", tmp_path / "renamed.npy"):
        (tmp_path / "renamed.npy").write_text("1, 2")
        with pytest.raises(
            ValueError, match="is not a readable .npy file .* are read from .npz, .npy"
        ) as caught:
            mh.Dataset.load(path, path)
        assert "pickle" not in str(caught.value)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="empty.csv is not a readable CSV file"):
        mh.Dataset.load(tmp_path / "empty.csv")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.drop(columns=["x", "y"]),
            "has no feature columns besides 'sequence' and 'label'",
        ),
        (
            lambda t: t.assign(x="a"),
            "column 'x' holds no numbers; leave it out, or name the feature columns",
        ),
        (
            lambda t: t.assign(label=["no", "yes"] * 4 + ["no"]),
            "sequence 's0' has rows with different labels",
        ),
        (lambda t: t.assign(label=None), "label 0 is missing"),
        (
            lambda t: t.iloc[:0],
            "the table is empty: it has the columns sequence, label, x, y and no rows",
        ),
        (
            lambda t: t.assign(x=[1, 2, "abc", *range(6)]),
            "row 3, column 'x' holds 'abc', which is no number",
        ),
        (
            lambda t: t.assign(sequence=["a", None, *"bcdefgh"]),
            "row 2 has an empty cell in column 'sequence'",
        ),
        (
            lambda t: t.rename(columns={"x": ""}),
            r"column 3 of the table has no name \(''\); .* index=False",
        ),
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
        assert np.array_equal(
            mh.Dataset.from_arrays(Tensor(tokens, kind), [0, 1, 0, 1]).tokens, plain.tokens
        )
    brief = jnp.asarray(tokens, jnp.bfloat16)
    assert np.allclose(mh.Dataset.from_arrays(brief, [0, 1, 0, 1]).tokens, tokens, rtol=2**-7)


def test_tensors_of_pytorch_are_arrays():
    torch = pytest.importorskip("torch")
    tokens = torch.from_numpy(RNG.standard_normal((4, 3, 2))).requires_grad_()
    for labels in (torch.tensor([0, 1, 0, 1]), torch.tensor([0.0, 1, 0, 1], requires_grad=True)):
        assert np.array_equal(
            mh.Dataset.from_arrays(tokens, labels).tokens, tokens.detach().numpy()
        )
    brief = mh.Dataset.from_arrays(
        tokens.to(torch.bfloat16), torch.tensor([0, 1, 0, 1], dtype=torch.bfloat16)
    )
    assert np.allclose(
        brief.tokens, tokens.detach().numpy(), rtol=2**-7
    ) and brief.labels.tolist() == [-1, 1, -1, 1]
    ragged = mh.Dataset.from_lists([tokens[0], tokens[1, :2]], ["a", "b"])
    assert ragged.mask.sum(axis=1).tolist() == [3, 2]


def test_columns_of_strings_are_labels():
    tokens = np.zeros((2, 1, 1))
    for column in (pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype=object)):
        assert mh.Dataset.from_arrays(tokens, column).label_names == ("a", "b")


def test_the_index_that_pandas_writes_is_no_feature(tmp_path):
    table().to_csv(tmp_path / "mine.csv")
    with pytest.raises(
        ValueError,
        match=r"column 1 of the table has no name .* save .* with to_csv\(path, index=False\)",
    ):
        mh.Dataset.load(tmp_path / "mine.csv")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "sequence;label;x\n1;a;2\n", "has one column; its cells look separated by ';'"),
        ("b.csv", "sequence\tlabel\tx\n1\ta\t2\n", "its cells look separated by tabs"),
        (
            "c.csv",
            "sequence,label\n1,a,b,c\n1,2,3,4,5,6\n",
            "its rows have different numbers of cells",
        ),
        ("d.csv", "", "it is empty. Data are read from .npz, .npy, .csv and .parquet"),
        ("e.txt", "1 2", "e.txt ends in .txt, which is no format of data. Data are read from .npz"),
        ("f.pkl", "1 2", "f.pkl ends in .pkl, which is no format of data. Data are read from .npz"),
        ("g.tsv", "1 2", "g.tsv ends in .tsv, which is no format of data. Data are read from .npz"),
        (
            "",
            None,
            "is a folder; pass a file in it. Data are read from .npz, .npy, .csv and .parquet",
        ),
    ],
)
def test_a_file_that_is_none_says_why_and_which_formats_there_are(name, content, words, tmp_path):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words):
        mh.Dataset.load(tmp_path / name)
