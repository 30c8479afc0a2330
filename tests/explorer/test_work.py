"""Questions to the library, asked without a server: files of users, and the answer's form."""

import io
import json

import numpy as np
import pytest

from manyheads.explorer import work

TOKENS = np.arange(24.0).reshape(4, 3, 2)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_an_npz_comes_back_as_lists_with_its_labels_as_text():
    told = work.upload(npz(tokens=TOKENS, labels=["<b>", "ham", "<b>", "ham"]), "mine.npz")
    assert told["data"]["tokens"] == TOKENS.tolist() and told["data"]["labels"] == [-1, 1, -1, 1]
    assert told["data"]["labelNames"] == ["<b>", "ham"] and told["data"]["name"] == "mine"
    json.dumps(told, allow_nan=False)


def test_a_csv_has_a_row_for_each_token():
    text = "sequence,label,relevant,x,y\na,no,1,1,2\na,no,0,3,4\nb,yes,0,5,6\n"
    data = work.read_csv(text.encode(), "mine.csv")
    assert data.tokens.tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
    assert data.mask.tolist() == [[True, True], [True, False]] and data.relevant.tolist() == [
        [True, False],
        [False, False],
    ]
    assert data.label_names == ("no", "yes") and data.labels.tolist() == [-1, 1]


@pytest.mark.parametrize(
    "name, body, words",
    [
        ("x.npz", b"nonsense", "x.npz is not a readable .npz file; write it with numpy.savez."),
        (
            "x.npz",
            npz(tokens=TOKENS),
            "x.npz holds no labels. Save an .npz with np.savez(path, tokens=..., labels=...)",
        ),
        (
            "x.npz",
            npz(tokens=TOKENS, labels=[1, 1, 1, 1]),
            "a classifier needs sequences of both classes",
        ),
        (
            "x.npz",
            npz(tokens=np.full((4, 3, 2), np.nan), labels=[0, 1, 0, 1]),
            "holds NaN or an infinite value",
        ),
        (
            "x.npz",
            npz(tokens=np.zeros((2, 1000, 300)), labels=[0, 1]),
            "600,000 numbers; the page takes up to 500,000",
        ),
        ("x.txt", b"", "x.txt is neither an .npz nor a .csv file"),
        ("x.csv", b"\xff\xfe\x00", "is not a readable .csv file"),
        ("x.csv", b"", "starts with nothing; it needs a first line"),
        (
            "x.csv",
            b"a,b\n1,2\n",
            "starts with a, b; it needs a first line with the columns sequence, label",
        ),
        ("x.csv", b"sequence,label,x\n", "has a header line but no tokens"),
        ("x.csv", b"sequence,label,x\n1,a,hello\n", "line 2 of x.csv has 3 cells"),
        ("x.csv", b"sequence,label,x\n1,a,1\n1,b,2\n", "sequence 1 of x.csv has several labels"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(name, body, words):
    with pytest.raises(ValueError) as caught:
        work.upload(body, name)
    assert (
        words in str(caught.value)
        and "\n" not in str(caught.value)
        and "/" not in str(caught.value)
    )


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(work, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="unpacks to"):
        work.upload(npz(tokens=np.zeros((4, 30, 20)), labels=[0, 1, 0, 1]), "bomb.npz")
