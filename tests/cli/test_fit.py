import json

import numpy as np
import pandas as pd
import pytest

import manyheads as mh
from manyheads.cli.main import main

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 4, 3))
LABELS = np.where(X[:, 1, 0] > 0, "up", "down")
QUICK = ["--heads", "2", "--positions", "yes", "--no-report", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    np.savez(folder / "data.npz", tokens=X, labels=LABELS)
    np.savez(folder / "new.npz", tokens=X[:5])
    np.savez(folder / "wide.npz", tokens=np.zeros((6, 4, 8)), labels=[0, 1] * 3)
    np.savez(folder / "numbers.npz", tokens=X, labels=X[:, 0, 0])
    np.savez(folder / "other.npz", tokens=X, labels=LABELS == "up")
    np.savez(folder / "three.npz", tokens=X, labels=np.digitize(X[:, 1, 0], [-0.5, 0.5]))
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", LABELS)
    rows = [(i, LABELS[i], *token) for i in range(60) for token in X[i]]
    table = pd.DataFrame(rows, columns=["sequence", "label", "a", "b", "c"])
    table.to_csv(folder / "data.csv", index=False)
    words = ["-o", str(folder / "probe.safetensors"), *QUICK]
    assert main(["fit", str(folder / "data.npz"), *words]) == 0
    return folder


def test_the_same_data_give_the_same_probe_whatever_the_file(folder, capsys):
    for name in ("data.csv", "X.npy,y.npy"):
        place = folder / "again.safetensors"
        data = ",".join(str(folder / part) for part in name.split(","))
        assert main(["fit", data, "-o", str(place), *QUICK]) == 0
        assert "2 heads" in capsys.readouterr().out
        one, other = (mh.AttentionProbe.load(f) for f in (place, folder / "probe.safetensors"))
        assert np.allclose(one.decision_function(X), other.decision_function(X), atol=1e-9)


def test_fit_says_who_wins_and_draws_the_curve(folder, capsys):
    words = ["--heads", "2", "--positions", "yes", "--plot", str(folder / "heads.svg")]
    assert main(["fit", str(folder / "data.npz"), *words]) == 0
    said = capsys.readouterr()
    assert "attention probe" in said.out.splitlines()[0]
    assert "Held-out errors by number of heads" in said.out
    assert "estimating the error, part 5 of 5" in said.err
    assert (folder / "heads.svg").read_text().startswith("<?xml")


def test_predict_gives_one_label_per_sequence(folder, capsys):
    probe = mh.AttentionProbe.load(folder / "probe.safetensors")
    assert main(["predict", str(folder / "probe.safetensors"), str(folder / "data.npz")]) == 0
    said = capsys.readouterr()
    wrong = int(np.sum(probe.predict(X) != LABELS))
    assert said.out.split() == probe.predict(X).tolist()
    assert said.err == f"wrong on {wrong} of 60 sequences ({wrong / 60:.1%})\n"
    words = ["predict", str(folder / "probe.safetensors"), str(folder / "new.npz"), "--json"]
    assert main(words) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == probe.predict(X[:5]).tolist()
    assert np.allclose([row["probability"] for row in rows], probe.predict_proba(X[:5]).max(axis=1))


def test_look_draws_the_heads(folder, capsys):
    words = ["predict", str(folder / "probe.safetensors"), str(folder / "new.npz"), "--look", "2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count("sequence ") == 2 and said.count("head ") >= 4
    assert "most attention on token 1" in said  # the label is the sign of a feature of that token


def test_labels_with_other_names_are_not_counted_as_wrong(folder, capsys):
    assert main(["predict", str(folder / "probe.safetensors"), str(folder / "other.npz")]) == 0
    assert "not compared: the data have other labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("is not a readable safetensors file", ["predict", "data.npz", "data.npz"]),
        (
            "wide.npz has tokens of dimension 8, and probe.safetensors was fitted to dimension 3",
            ["predict", "probe.safetensors", "wide.npz"],
        ),
        (
            "they look like numbers to be predicted, a continuous target, and this is a classifier",
            ["fit", "numbers.npz", *QUICK],
        ),
        (
            "two are allowed. Choose one class against the rest with",
            ["train", "three.npz"],
        ),
        ("new.npz has no labels", ["fit", "new.npz", *QUICK]),
        ("--heads 0 must be a whole number >= 1", ["fit", "data.npz", "--heads", "0"]),
        ("the folder does not exist", ["fit", "data.npz", "-o", "no/such/folder/model"]),
    ],
)
def test_mistakes_are_one_line(words, arguments, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert words in said[-1] and said[-1].startswith("error: ")


def test_train_takes_one_class_against_the_rest(folder, capsys):
    run = folder / "run.npz"
    words = ["--start", "zero", "--heads", "1", "--steps", "5", "--test-examples", "0", "--quiet"]
    assert (
        main(["train", str(folder / "three.npz"), "--positive", "2", *words, "--out", str(run)])
        == 0
    )
    assert mh.Trajectory.load(run).settings["label_names"] == ["not 2", "2"]
    words = ["--data", str(folder / "three.npz"), "--statement", "descent", "--quiet"]
    assert main(["certify", str(run), *words]) in (0, 3)


@pytest.mark.parametrize("verb", ["fit", "predict", "plan", "train", "certify", "forecast"])
def test_help_speaks_of_things_and_not_of_types(verb, capsys):
    assert main([verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert "{None}" not in said and "STR" not in said.replace("STRing", "") and " PATH" not in said
    assert "(default: True)" not in said and "one_hot" not in said
