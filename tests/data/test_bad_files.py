"""Bad files and what else comes through the door: one line each, and never another library's advice to load unsafely."""

import pickle
import re
import zipfile

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

import manyheads as mh

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 4, 3)), np.array([0, 1] * 3)
DATA = mh.Dataset.from_arrays(X, Y)
UNSAFE = re.compile(r"pickle|weights_only|unsafe|trust_remote|dangerous", re.IGNORECASE)
ROWS = "sequence,label,x\n0,a,1\n0,a,2\n1,b,3\n"


def text(name, content):
    """A file of that text, loaded as data."""

    def load(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return mh.Dataset.load(folder / name)

    return load


def npz(**arrays):
    def load(folder):
        np.savez(folder / "data.npz", **arrays)
        return mh.Dataset.load(folder / "data.npz")

    return load


def npy(tokens, labels):
    """A pair of .npy files; no second one for None."""

    def load(folder):
        for name, array in (("X.npy", tokens), ("y.npy", labels)):
            if array is not None:
                np.save(folder / name, array, allow_pickle=array.dtype == object)
        return mh.Dataset.load(folder / "X.npy", None if labels is None else folder / "y.npy")

    return load


def cut(folder):
    np.save(folder / "X.npy", X)
    (folder / "X.npy").write_bytes((folder / "X.npy").read_bytes()[:200])
    return mh.Dataset.load(folder / "X.npy", folder / "X.npy")


def checkpoint(folder):
    """A file as PyTorch writes it: an archive with a program in it."""
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"weight": [1.0]}))
    return mh.Dataset.load(folder / "model.pt")


def tensors(reader, **arrays):
    def load(folder):
        save_file(arrays, folder / "layer.safetensors")
        return reader(folder / "layer.safetensors")

    return load


def stored(reader, content):
    def load(folder):
        (folder / "file").write_text(content)
        return reader(folder / "file")

    return load


OBJECTS = np.array([{}, None], dtype=object)
CASES = {
    "no file": (
        lambda f: mh.Dataset.load(f / "none.npz"),
        "none.npz does not exist; check the path",
    ),
    "no table": (
        lambda f: mh.Dataset.load(f / "none.csv"),
        "none.csv does not exist or is not a file",
    ),
    "no array": (
        lambda f: mh.Dataset.load(f / "none.npy", f / "y.npy"),
        "none.npy does not exist; check the path",
    ),
    "a folder": (
        lambda f: mh.Dataset.load(f),
        "is a folder; pass a file in it. Data are read from",
    ),
    "a number": (lambda f: mh.Dataset.load(3), "path=3 must be a path"),
    "a table called .npz": (
        text("data.npz", ROWS),
        "is not a readable .npz file .* read from .npz, .npy, .csv and .parquet",
    ),
    "an empty file": (text("data.npz", ""), r"is not a readable .npz file \(it is empty\)"),
    "a serialized object": (
        text("data.pkl", pickle.dumps({"a": 1})),
        "ends in .pkl, which is no format of data. .* read from .npz, .npy",
    ),
    "a checkpoint of PyTorch": (checkpoint, "has no array tokens; it holds nothing"),
    "a spreadsheet": (
        text("data.xlsx", b"PK\3\4 no"),
        "ends in .xlsx, which is no format of data. .* read from .npz, .npy",
    ),
    "a JSON file": (
        text("data.json", "{}"),
        "ends in .json, which is no format of data. .* read from .npz, .npy",
    ),
    "other arrays": (npz(x=X, y=Y), "has no array tokens; it holds x, y. Save it with np.savez"),
    "no labels": (npz(tokens=X), "holds no labels. Save an .npz with np.savez"),
    "objects in an .npz": (
        npz(tokens=OBJECTS, labels=Y),
        "is not a readable .npz file .it holds objects, which are never loaded",
    ),
    "a NaN in a file": (
        npz(tokens=np.where(X > 1, np.nan, X), labels=Y),
        r"tokens\[\d, \d\] holds NaN",
    ),
    "texts for tokens": (npz(tokens=X.astype(str), labels=Y), "tokens must be real numbers"),
    "an .npy of objects": (
        npy(OBJECTS, Y),
        "X.npy is not a readable .npy file of numbers or texts .*; save the array with np.save",
    ),
    "labels that are objects": (
        npy(X, OBJECTS),
        "y.npy is not a readable .npy file of numbers or texts",
    ),
    "an .npy alone": (npy(X, None), "X.npy holds no labels.* an .npy file of tokens a second one"),
    "an .npy cut short": (cut, "X.npy is not a readable .npy file"),
    "labels of another length": (npy(X, Y[:4]), r"labels has shape \(4,\); it must be \(6,\)"),
    "one sequence": (
        npy(X[0], Y),
        r"tokens has shape \(4, 3\); it must be \(sequences, tokens, dim\)",
    ),
    "labels beside an .npz": (
        lambda f: mh.Dataset.load(f / "a.npz", f / "y.npy"),
        "go with an .npy file of tokens; .*a.npz holds its own",
    ),
    "three classes": (
        npy(X, np.array([0, 1, 2] * 2)),
        r"labels have 3 values \(0, 1, 2\); two are allowed. .* positive=",
    ),
    "one class": (
        npy(X, np.zeros(6)),
        "all 6 labels are 0.0; a classifier needs sequences of both classes",
    ),
    "an empty table": (text("data.csv", ""), "is not a readable CSV file"),
    "bytes in a table": (
        text("data.csv", b"\xff\xfe\0\1"),
        "is not a readable CSV file: it is no UTF-8 text. Data are read from",
    ),
    "a table without labels": (
        text("data.csv", "sequence,x\n0,1\n"),
        "data.csv holds no labels.* the column 'label'",
    ),
    "a table without sequences": (
        text("data.csv", "label,x\na,1\n"),
        "the table has no column 'sequence', only label, x",
    ),
    "words in a column": (
        text("data.csv", ROWS.replace("3", "three")),
        "row 3, column 'x' holds 'three', which is no number",
    ),
    "a missing label": (
        text("data.csv", ROWS.replace("1,b", "1,")),
        "label 1 is missing; every sequence needs a label",
    ),
    "two labels of one sequence": (
        text("data.csv", ROWS.replace("0,a,2", "0,b,2")),
        "sequence 0 has rows with different labels",
    ),
    "no list in a table": (
        text("data.csv", "tokens,label\n1 2,a\n"),
        "tokens='1 2' is no list; write",
    ),
    "something else in a table": (
        text("data.csv", 'tokens,label\n"{""a"": 1}",a\n'),
        r"tokens\[0\] must be real numbers|tokens\[0\] has shape",
    ),
    "lists of different dimension": (
        text("data.csv", 'tokens,label\n"[[1]]",a\n"[[1,2]]",b\n'),
        r"tokens\[1\] has tokens of dimension 2",
    ),
    "a Parquet file of words": (
        text("data.parquet", "no"),
        "needs pyarrow to be read|is not a readable Parquet file",
    ),
    "a list for a table": (lambda f: mh.Dataset.from_pandas([X]), "must be a pandas DataFrame"),
    "a table of no features": (
        lambda f: mh.Dataset.from_pandas(pd.DataFrame({"sequence": [0], "label": [1]})),
        "has no feature columns besides",
    ),
    "ragged arrays": (
        lambda f: mh.Dataset.from_arrays([X[0], X[1, :2]], [0, 1]),
        "Pad sequences of different length and pass mask=",
    ),
    "a label that is not there": (
        lambda f: mh.Dataset.from_arrays(X, Y, positive="up"),
        "positive='up' is not among the labels, 0, 1",
    ),
    "labels of other data": (
        lambda f: mh.Dataset.from_arrays(X, Y + 5, like=DATA),
        "label '5' is none of data's",
    ),
    "words for a probe": (
        stored(mh.AttentionProbe.load, "no"),
        "is not a readable safetensors file; use another copy",
    ),
    "somebody's weights for a probe": (
        tensors(mh.AttentionProbe.load, a=X),
        "holds no probe of manyheads; pass one written by",
    ),
    "data for a run": (
        lambda f: DATA.save(f / "d.npz") or mh.Trajectory.load(f / "d.npz"),
        "does not hold a trajectory; pass a file written by",
    ),
    "words for a layer": (
        stored(lambda p: mh.model.from_safetensors(p, X[0, 0]), "no"),
        "is not a readable safetensors file",
    ),
    "weights without a layer": (
        tensors(lambda p: mh.model.from_safetensors(p, X[0, 0]), a=X),
        "holds no attention layer that is known",
    ),
    "an array for a layer": (
        lambda f: mh.model.from_torch(X, X[0, 0]),
        "must be a torch.nn.MultiheadAttention",
    ),
}


def test_there_are_forty():
    assert len(CASES) >= 40


@pytest.mark.parametrize("case", CASES)
def test_a_bad_file_gets_one_line_that_helps(case, tmp_path):
    call, words = CASES[case]
    with pytest.raises((ValueError, FileNotFoundError), match=words) as caught:
        call(tmp_path)
    message = str(caught.value).replace(str(tmp_path), "")
    assert "\n" not in message and len(message) < 400 and not UNSAFE.search(message)
