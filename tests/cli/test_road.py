"""The road of the README: train on a file, then certify and forecast the run, which knows what it was trained on."""

import contextlib
import functools
import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.cli.main import main

README = (Path(__file__).parents[2] / "README.md").read_text()
TYPED = re.findall(r"^manyheads (train|certify|forecast) (.*)$", README, re.MULTILINE)
PROMISED = re.findall(r"^HOLDS     thm1.*$", README, re.MULTILINE)


@pytest.fixture(scope="module")
def road(tmp_path_factory):
    """A file, and a run on a part of it for which Theorem 1' holds."""
    folder = tmp_path_factory.mktemp("road")
    keys = jax.random.split(jax.random.key(0), 2)
    task = mh.TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=2.0, key=keys[0]
    )
    with contextlib.chdir(folder):
        task.sample(200, key=keys[1]).save("d.npz")
        options = "--seed 3 --heads 10^7 --step-size 0.02 --steps 40 --out run.npz --quiet"
        assert main(["train", "d.npz", *options.split()]) == 0
    return str(folder / "d.npz"), str(folder / "run.npz")


def test_the_commands_of_the_readme_work_as_typed(tmp_path, monkeypatch):
    monkeypatch.setattr(mh, "forecast", functools.partial(mh.forecast, most_pieces=30))  # quicker
    monkeypatch.chdir(tmp_path)
    printed = {}
    for verb, line in TYPED[:3]:
        words = shlex.split(line, comments=True)
        words += ["--statement", "thm1", "thm1.sharp"] if verb == "certify" else []  # quicker
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            assert main([verb, *words, "--quiet"]) == 0
        printed[verb] = text.getvalue()
    assert list(printed) == ["train", "certify", "forecast"] and len(PROMISED) == 2
    assert set(PROMISED) <= set(printed["certify"].splitlines())
    assert "SILENT" not in printed["certify"]
    assert "proved to halve the loss" in printed["forecast"]


def test_certify_and_forecast_take_the_whole_file(road, capsys):
    file, out = road
    assert main(["certify", out, "--data", file, "--statement", "thm1.sharp", "--quiet"]) == 0
    assert capsys.readouterr().out.count("HOLDS") == 5


def test_a_run_knows_its_sequences_and_its_test_sequences(road):
    file, out = road
    run, whole = mh.Trajectory.load(out), mh.Dataset.load(file)
    assert str(run.origins["data"]) == "the training part of d.npz with seed 3"
    data, test = (whole.subset(run.origins[name].rows) for name in ("data", "test"))
    assert len(data) == 100 and len(test) == 50
    found = mh.certify(run, whole, ["def1.p3", "cor2"])
    alone = mh.certify(run, data, ["def1.p3", "cor2"], test=test)
    assert found.to_dict() == alone.to_dict()


def test_the_whole_file_is_tried_first_and_other_data_are_refused(road, tmp_path, capsys):
    file, out = road
    run, whole = mh.Trajectory.load(out), mh.Dataset.load(file)
    data = whole.subset(run.origins["data"].rows)
    data.save(tmp_path / "part.npz")  # a file that holds these sequences and no others
    statement = ["--statement", "def1.p3", "--quiet"]
    assert main(["certify", out, "--data", str(tmp_path / "part.npz"), *statement]) == 0
    whole[::-1].save(tmp_path / "turned.npz")
    capsys.readouterr()
    assert main(["certify", out, "--data", str(tmp_path / "turned.npz"), *statement]) == 2
    error = capsys.readouterr().err
    assert "trained on the training part of" in error and error.count("\n") == 1


def test_the_split_of_a_library_user_is_found_again():
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((40, 4, 6))
    whole = mh.Dataset.from_arrays(tokens, np.sign(tokens[:, 0, 0]))
    chosen = whole[:30].split(20, key=1)[0].without(-0 + 3)
    run = mh.train(mh.zero_start(2, num_tokens=4, dim=6), chosen, rule=mh.GD(0.1), num_steps=3)
    assert mh.certify(run, whole, "def1.p1").verdict is mh.Verdict.HOLDS
    assert mh.forecast(run, whole).loss == mh.forecast(run, chosen).loss


@pytest.mark.parametrize("start", ["zero", "gaussian", "first_phase"])
def test_runs_on_a_data_source_are_drawn_again(tmp_path, capsys, start):
    out = str(tmp_path / "run.npz")
    options = f"--seed 5 --start {start} --heads 2 --steps 3 --examples 20 --out {out} --quiet"
    assert main(["train", "mixture", *options.split()]) == 0
    assert main(["certify", out, "--statement", "def1.p1", "--quiet"]) == 0
    assert main(["certify", out, "--data", "mixture", "--statement", "def1.p1", "--quiet"]) == 0
    assert "20 sequences" in capsys.readouterr().out
    assert main(["certify", out, "--data", "digits", "--statement", "def1.p1", "--quiet"]) == 2


def _edits(run):
    """What a stored run might claim to be."""
    half, settings = replace(run.start, multiplicity=run.start.multiplicity / 2), run.settings
    losses = run.train_loss.copy()
    losses[len(losses) // 2] *= 0.9
    last = run.train_loss.copy()
    last[-1] *= 0.9
    moved = jax.tree.map(lambda leaf: 1.1 * leaf, run.displacement)
    return {
        "step size": replace(run, settings=settings | {"step_size": 0.04}),
        "optimizer": replace(run, settings=settings | {"optimizer": "normalized"}),
        "loss function": replace(run, settings=settings | {"loss": "hyperbolic"}),
        "heads": replace(run, start=half),
        "a loss": replace(run, train_loss=losses),
        "the last loss": replace(run, train_loss=last),
        "the parameters": replace(run, displacement=moved),
        "a margin": replace(run, margin=1.1 * run.margin),
        "the test losses": replace(run, test_loss=1.1 * run.test_loss),
    }


@pytest.mark.parametrize(
    "statement", ["forecast", "sleep", "twins", "identity", "def1.p1", "tarzanagh2023.direction"]
)
def test_an_edited_run_is_refused_whatever_the_statement(road, statement):
    file, out = road
    run, whole = mh.Trajectory.load(out), mh.Dataset.load(file)
    unmarked = replace(whole, relevant=None)
    for data in (whole, unmarked):
        for what, edited in _edits(run).items():
            with pytest.raises(ValueError, match="differ from a repetition"):
                mh.certify(edited, data, statement)
                pytest.fail(f"{statement} accepts a run whose {what} was edited")


def test_a_forecast_refuses_edited_ends(road):
    file, out = road
    run, whole = mh.Trajectory.load(out), mh.Dataset.load(file)
    edits = _edits(run)
    for what in ("step size", "optimizer", "loss function", "heads", "the last loss"):
        with pytest.raises(ValueError, match="differ from a repetition"):
            mh.forecast(edits[what], whole)


def test_data_without_marks_of_relevance_do_not_skip_the_fingerprint(road):
    file, out = road
    run, whole = mh.Trajectory.load(out), mh.Dataset.load(file)
    data = replace(whole.subset(run.origins["data"].rows), relevant=None)
    mh.certify(run, data, "def1.p1")
    labels = data.labels.copy()
    labels[0] *= -1
    with pytest.raises(ValueError, match="fingerprint"):
        mh.certify(run, replace(data, labels=labels), "def1.p1")
