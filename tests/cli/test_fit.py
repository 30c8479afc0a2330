import json

import numpy as np
import pandas as pd
import pytest
from manyheads.estimator.fitted import Fitted

import manyheads as mh
from manyheads.cli.main import main

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
    np.savez(folder / "half.npz", tokens=X[:30], labels=LABELS[:30])
    np.savez(folder / "wide.npz", tokens=np.zeros((6, 4, 8)), labels=[0, 1] * 3)
    np.savez(folder / "zero.npz", tokens=0 * X, labels=LABELS)
    np.savez(folder / "numbers.npz", tokens=X, labels=X[:, 0, 0])
    np.savez(folder / "other.npz", tokens=X, labels=LABELS == "up")
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", LABELS)
    np.savez(folder / "three.npz", tokens=X, labels=np.digitize(X[:, 1, 0], [-0.5, 0.5]))
    rows = [(i, LABELS[i], *token) for i in range(60) for token in X[i]]
    pd.DataFrame(rows, columns=["sequence", "label", "a", "b", "c"]).to_csv(
        folder / "data.csv", index=False
    )
    assert (
        main(
            [
                "fit",
                str(folder / "data.npz"),
                "-o",
                str(folder / "model.safetensors"),
                *QUICK,
                "--quiet",
            ]
        )
        == 0
    )
    return folder


def test_fit_ends_with_one_recommendation_and_the_model_is_saved(folder, capsys):
    assert (
        main(
            [
                "fit",
                str(folder / "data.csv"),
                "-o",
                str(folder / "csv.safetensors"),
                *QUICK,
                "--quiet",
            ]
        )
        == 0
    )
    said = capsys.readouterr().out
    assert (
        said.startswith("Recommendation: 1 head, zero start, step size 1, ")
        and said.count("Recommendation") == 1
    )
    assert "Error on held-out data" in said and "Logistic regression on the same split" in said
    one, other = Fitted.load(folder / "csv.safetensors"), Fitted.load(folder / "model.safetensors")
    assert np.allclose(one.scores(X), other.scores(X), atol=1e-6) and one.facts["data"] == "data"


def test_predict_gives_one_label_per_sequence(folder, capsys):
    fitted = Fitted.load(folder / "model.safetensors")
    assert main(["predict", str(folder / "model.safetensors"), str(folder / "data.npz")]) == 0
    said = capsys.readouterr()
    wrong = int(np.sum(fitted.predict(X) != LABELS))
    assert said.out.split() == fitted.predict(X).tolist()
    assert (
        said.err
        == f"wrong on {wrong} of 60 sequences ({wrong / 60:.1%}); 48 of them were trained on\n"
    )
    assert main(["predict", str(folder / "model.safetensors"), str(folder / "half.npz")]) == 0
    assert capsys.readouterr().err.endswith("%)\n")  # not known which of these were trained on
    assert (
        main(["predict", str(folder / "model.safetensors"), str(folder / "new.npz"), "--json"]) == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == fitted.predict(X[:5]).tolist()
    assert np.allclose([row["score"] for row in rows], fitted.scores(X[:5]))
    assert np.allclose(
        [row["probability"] for row in rows], fitted.probabilities(X[:5]).max(axis=1)
    )


def test_two_npy_files_are_one_argument(folder, capsys):
    files = [str(folder / "X.npy"), str(folder / "y.npy")]
    assert main(["fit", *files, "-o", str(folder / "npy.safetensors"), *QUICK, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["predict", str(folder / "npy.safetensors"), *files]) == 0
    said = capsys.readouterr()
    assert "of 60 sequences" in said.err and said.err.startswith("wrong on ")
    assert main(["predict", str(folder / "npy.safetensors"), files[0]]) == 0  # without labels
    again = capsys.readouterr()
    assert again.out == said.out and again.err == ""


def test_more_than_two_classes_are_fitted_one_against_the_rest(folder, capsys):
    theory = [word for word in QUICK if word != "--no-theory"]
    assert (
        main(["fit", str(folder / "three.npz"), "-o", str(folder / "three.safetensors"), *theory])
        == 0
    )
    said = capsys.readouterr()
    assert (
        "three: 60 sequences of 3 classes" in said.err
        and "The theory is about two classes" in said.out
    )
    fitted = Fitted.load(folder / "three.safetensors")
    assert fitted.label_names == ("0", "1", "2") and len(fitted.models) == 3
    assert (
        fitted.facts["held_out"]["error"] < fitted.facts["chance"]
        and fitted.facts["pooled"]["error"] <= 1
    )
    assert main(["predict", str(folder / "three.safetensors"), str(folder / "three.npz")]) == 0
    said = capsys.readouterr()
    assert set(said.out.split()) == {"0", "1", "2"} and "of 60 sequences" in said.err


def test_positive_says_which_label_is_plus_one(folder, capsys):
    model = folder / "turned.safetensors"
    assert (
        main(
            [
                "fit",
                str(folder / "data.npz"),
                "--positive",
                "down",
                "-o",
                str(model),
                *QUICK,
                "--quiet",
            ]
        )
        == 0
    )
    assert Fitted.load(model).label_names == ("up", "down")
    assert (
        main(
            [
                "fit",
                str(folder / "three.npz"),
                "--positive",
                "2",
                "-o",
                str(model),
                *QUICK,
                "--quiet",
            ]
        )
        == 0
    )
    assert Fitted.load(model).label_names == ("not 2", "2")
    assert main(["fit", str(folder / "data.npz"), "--positive", "left", *QUICK, "--quiet"]) == 2
    assert "--positive 'left' is not among the labels, down, up" in capsys.readouterr().err


def test_labels_with_other_names_are_not_counted_as_wrong(folder, capsys):
    assert main(["predict", str(folder / "model.safetensors"), str(folder / "other.npz")]) == 0
    assert (
        "not compared: the data have the labels False, True, the model has down, up"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("is not a readable safetensors file", ["predict", "data.npz", "data.npz"]),
        (
            "wide.npz has tokens of dimension 8, and model.safetensors was fitted to dimension 3; pass data with the same",
            ["predict", "model.safetensors", "wide.npz"],
        ),
        (
            "all 60 sequences are zero: nothing can be learned from them",
            ["fit", "zero.npz", *QUICK],
        ),
        (
            "they look like numbers to be predicted, and this is a classifier",
            ["fit", "numbers.npz", *QUICK],
        ),
        (
            "two are allowed. Choose one class against the rest with --positive.",
            ["train", "three.npz"],
        ),
        (
            "unknown statement 'thm99'",
            ["certify", "run.npz", "--statement", "thm99"],
        ),
        (
            "--step-size -1.0 must be a finite number > 0 or 'auto'",
            ["fit", "data.npz", "--step-size", "-1"],
        ),
        ("'many' is not a number of heads", ["fit", "data.npz", "--heads", "many"]),
        ("--held-out 1.5 must be", ["fit", "data.npz", "--held-out", "1.5"]),
        ("the folder does not exist", ["fit", "data.npz", "-o", "no/such/folder/model"]),
    ],
)
def test_mistakes_are_one_line(words, arguments, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(arguments) == 2
    said = capsys.readouterr().err.splitlines()
    assert words in said[-1] and said[-1].startswith("error: ")


def test_a_run_that_diverges_recommends_nothing(folder, capsys):
    words = [word for word in QUICK if word not in ("--step-size", "1", "--heads")]
    model = folder / "diverged.safetensors"
    assert (
        main(
            [
                "fit",
                str(folder / "data.npz"),
                *words,
                "--step-size",
                "1e30",
                "-o",
                str(model),
                "--quiet",
            ]
        )
        == 1
    )
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(
        "error: training diverged: with step size 1e+30 the train loss went from"
    )
    assert (
        said.err.endswith("pass a smaller --step-size, or leave it out.\n")
        and said.err.count("\n") == 1
    )
    assert not model.exists()


def test_numbers_are_the_same_labels_however_they_are_written(folder, capsys):
    model = folder / "numbers.safetensors"
    np.savez(folder / "whole.npz", tokens=X, labels=(LABELS == "up").astype(int))
    np.savez(folder / "decimal.npz", tokens=X[:20], labels=(LABELS[:20] == "up").astype(float))
    assert main(["fit", str(folder / "whole.npz"), "-o", str(model), *QUICK, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["predict", str(model), str(folder / "decimal.npz"), "--json"]) == 0
    said = capsys.readouterr()
    assert "of 20 sequences" in said.err
    assert {json.loads(line)["label"] for line in said.out.splitlines()} <= {0, 1}


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
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    said = capsys.readouterr().out
    assert "{None}" not in said and "STR" not in said.replace("STRing", "") and " PATH" not in said
    assert "(default: True)" not in said and "one_hot" not in said
