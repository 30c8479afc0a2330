"""What plan promises, certify confirms: the whole way by the command line, and the file between."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.cli.main import main
from manyheads.estimator.promise import PlanFile, Settings
from manyheads.estimator.sharp import Sharp

RNG = np.random.default_rng(0)
PLAN = PlanFile(
    "mixture",
    40,
    3,
    "first_phase",
    "full",
    "logistic",
    0.5,
    0.5,
    "2-0",
    Settings(1e6 + 2, 0.1 / 3, 300, 0.4999),
    None,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    labels = RNG.choice(["no", "yes"], 40)
    tokens = (
        0.3 * RNG.standard_normal((40, 4, 3)) + np.where(labels == "yes", 1.0, -1.0)[:, None, None]
    )
    np.savez(folder / "own.npz", tokens=tokens, labels=labels)
    return folder


def run(folder, *arguments):
    return main([*map(str, arguments), "--quiet"])


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [
        ("mixture", "--examples", 40, "--target-loss", 0.5),
        ("own.npz", "--target-loss", 0.4),
        ("own.npz", "--target-loss", 0.4, "--positive", "no"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_plan_promises_certify_confirms(folder, arguments, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    plan, kept = folder / f"{arguments[0]}.json", folder / f"{arguments[0]}.run.npz"
    assert run(folder, "plan", *arguments, "--no-trials", "--out", plan) == 0
    promise = PlanFile.load(plan).promise
    assert run(folder, "train", "--plan", plan, "--out", kept) == 0
    capsys.readouterr()
    assert run(folder, "certify", kept, "--plan", plan) == 0
    said = capsys.readouterr().out
    assert "HOLDS" in said and "SILENT" not in said and "VIOLATED" not in said
    trajectory = mh.Trajectory.load(kept)
    assert "--positive" not in arguments or trajectory.settings["label_names"] == ["yes", "no"]
    assert (
        trajectory.settings["step_size"] == promise.step_size
        and trajectory.last_step == promise.num_steps
    )
    assert trajectory.train_loss[-1] <= promise.loss


@pytest.mark.full
@pytest.mark.parametrize("task", ["digits", "ones.npz", "wine.npz"])
def test_where_theorem_1_is_silent_the_forecast_promises_and_certify_confirms(
    folder, task, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    if task == "ones.npz":
        ones = mh.digits(1, 7)
        np.savez(folder / task, tokens=ones.tokens, labels=ones.labels)
    elif task == "wine.npz":
        datasets = pytest.importorskip("sklearn.datasets")
        rows, kinds = datasets.load_wine(return_X_y=True)
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        tokens = np.pad(rows, ((0, 0), (0, 2))).reshape(len(rows), 5, 3)
        np.savez(folder / task, tokens=tokens[kinds < 2], labels=kinds[kinds < 2])
    plan, kept = folder / f"{task}.json", folder / f"{task}.run.npz"
    assert (
        run(folder, "plan", task, "--start", "zero", "--planning-share", 0.25, "--out", plan) == 0
    )
    said = capsys.readouterr().out
    assert (
        said.count("Recommendation: ")
        == said.count("Promised: 8 heads, a sharp Gaussian start")
        == 1
    )
    found = PlanFile.load(plan)
    assert found.statement == "forecast" and found.promise.loss <= found.target_loss == 0.1
    assert run(folder, "train", "--plan", plan, "--dtype", "float64", "--out", kept) == 0
    capsys.readouterr()
    assert run(folder, "certify", kept, "--plan", plan) == 0
    said = capsys.readouterr().out
    assert (
        "HOLDS     manyheads2026.forecast" in said and f"from step {found.sharp.from_step}" in said
    )
    assert mh.Trajectory.load(kept).train_loss.min() <= found.promise.loss


@pytest.mark.full
def test_the_trial_of_a_plan_reaches_its_target_where_nothing_is_promised(folder, monkeypatch):
    monkeypatch.chdir(folder)
    tokens = RNG.standard_normal((80, 4, 3))
    labels = np.where(tokens[:, 0, 0] + 0.3 * tokens[:, 1, 1] > 0, "yes", "no")
    labels[::9] = np.where(labels[::9] == "yes", "no", "yes")  # not separable
    np.savez(folder / "noisy.npz", tokens=tokens, labels=labels)
    data, key = mh.Dataset.load(folder / "noisy.npz"), jax.random.split(jax.random.key(0), 5)[4]
    found = mh.plan(data, start="zero", target_loss=0.65, key=key)
    made = dict(
        data="noisy.npz", seed=0, key=key, planning_share=0.5, decoder="full", loss="logistic"
    )
    PlanFile.of(found, data, **made).save(folder / "trial.json")
    stored = PlanFile.load(folder / "trial.json")
    assert (
        stored.promise is None and stored.settings == stored.trial and stored.statement == "descent"
    )
    kept = folder / "trial.run.npz"
    assert (
        run(folder, "train", "--plan", folder / "trial.json", "--dtype", "float64", "--out", kept)
        == 0
    )
    assert mh.Trajectory.load(kept).train_loss[-1] <= stored.target_loss


def test_a_plan_is_read_back_to_the_last_digit(tmp_path):
    sharp = replace(PLAN, sharp=Sharp(5, from_step=34))
    for one in (sharp, PLAN):
        one.save(tmp_path / "plan.json")
        assert PlanFile.load(tmp_path / "plan.json") == one
    assert sharp.statement == "forecast" and PLAN.statement == "thm1.sharp"
    assert json.loads((tmp_path / "plan.json").read_text())["promise"]["step_size"] == 0.1 / 3


def test_a_plan_without_settings_and_other_data_are_refused(tmp_path, capsys):
    data = mh.Dataset.from_arrays(RNG.standard_normal((40, 4, 3)), [0, 1] * 20)
    with pytest.raises(ValueError, match="the data are not those that were planned on, mixture"):
        PLAN.parts(data, jax.random.key(0))
    PLAN.save(tmp_path / "plan.json")
    assert main(["train", "digits", "--plan", str(tmp_path / "plan.json")]) == 2
    assert "'digits' is not a file, and " in capsys.readouterr().err
    empty = replace(PLAN, promise=None)
    with pytest.raises(
        ValueError, match="this plan names no settings: the theory is silent and no trial"
    ):
        _ = empty.settings


def test_what_is_no_plan_is_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    for path, words in (
        (tmp_path / "x.json", "cannot be read"),
        (tmp_path / "none", "does not exist"),
    ):
        assert main(["train", "--plan", str(path)]) == 2
        assert words in capsys.readouterr().err
