import json

import numpy as np
import pandas as pd
import pytest

from manyheads.cli.main import main
from manyheads.estimator.fitted import Fitted

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4, 3))
LABELS = np.where(X[:, 1, 0] > 0, "up", "down")
QUICK = [
    "--heads",
    "1",
    "--start",
    "zero",
    "--step-size",
    "1",
    "--steps",
    "40",
    "--positions",
    "one-hot",
    "--no-theory",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    np.savez(folder / "data.npz", tokens=X, labels=LABELS)
    np.savez(folder / "new.npz", tokens=X[:5])
    np.savez(folder / "other.npz", tokens=X, labels=LABELS == "up")
    rows = [(i, LABELS[i], *token) for i in range(60) for token in X[i]]
    pd.DataFrame(rows, columns=["sequence", "label", "a", "b", "c"]).to_csv(folder / "data.csv", index=False)
    assert main(["fit", str(folder / "data.npz"), "-o", str(folder / "model.safetensors"), *QUICK, "--quiet"]) == 0
    return folder


def test_fit_ends_with_one_recommendation_and_the_model_is_saved(folder, capsys):
    assert main(["fit", str(folder / "data.csv"), "-o", str(folder / "csv.safetensors"), *QUICK, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Recommendation: 1 head, zero start, step size 1, ") and said.count("Recommendation") == 1
    assert "Error on held-out data" in said and "Logistic regression on the same split" in said
    one, other = Fitted.load(folder / "csv.safetensors"), Fitted.load(folder / "model.safetensors")
    assert np.allclose(one.scores(X), other.scores(X), atol=1e-6) and one.facts["data"] == "data"


def test_predict_gives_one_label_per_sequence(folder, capsys):
    fitted = Fitted.load(folder / "model.safetensors")
    assert main(["predict", str(folder / "model.safetensors"), str(folder / "data.npz")]) == 0
    said = capsys.readouterr()
    assert said.out.split() == fitted.predict(X).tolist() and said.err.endswith("of 60 sequences\n")
    assert main(["predict", str(folder / "model.safetensors"), str(folder / "new.npz"), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == fitted.predict(X[:5]).tolist()
    assert np.allclose([row["score"] for row in rows], fitted.scores(X[:5]))


def test_labels_with_other_names_are_not_counted_as_wrong(folder, capsys):
    assert main(["predict", str(folder / "model.safetensors"), str(folder / "other.npz")]) == 0
    assert "no error is known: the data have the labels False, True, the model down, up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("is not a readable safetensors file", ["predict", "data.npz", "data.npz"]),
        ("step_size=-1.0 must be a finite number > 0 or 'auto'", ["fit", "data.npz", "--step-size", "-1"]),
        ("'many' is not a number of heads", ["fit", "data.npz", "--heads", "many"]),
        ("held_out=1.5 must be", ["fit", "data.npz", "--held-out", "1.5"]),
        ("the folder does not exist", ["fit", "data.npz", "-o", "no/such/folder/model"]),
    ],
)
def test_mistakes_are_one_line(words, arguments, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert words in said[-1] and said[-1].startswith("error: ")
