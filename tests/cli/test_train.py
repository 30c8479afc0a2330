import json
import signal
from dataclasses import replace

import numpy as np
import pytest

import manyheads as mh
from manyheads.cli import main as cli
from manyheads.cli import train as command
from manyheads.cli.data import split
from manyheads.data import mapped
from manyheads.training import loop

SMALL = (
    "--steps",
    "6",
    "--examples",
    "10",
    "--first-phase-examples",
    "20",
    "--test-examples",
    "10",
    "--quiet",
)


def train(*arguments):
    return cli.main(["train", *map(str, arguments)])


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "own.npz"
    tokens = np.random.default_rng(0).standard_normal((40, 4, 3))
    np.savez(path, tokens=tokens, labels=np.where(tokens.sum((1, 2)) > 0, "dog", "cat"))
    return path


def test_a_trillion_heads_are_trained_saved_and_resumed(tmp_path, capsys):
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    assert train(*SMALL, "--heads", "10^12", "--out", one) == 0
    table = capsys.readouterr()
    assert (
        table.err == ""
        and "MultiHead: 1000000000000 heads in 2 classes" in table.out
        and "at step 6 of 6" in table.out
    )
    assert (
        train(*SMALL, "--heads", "1e12", "--steps", 9, "--out", two, "--resume", one, "--json") == 0
    )
    head, *rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert (head["heads"], head["classes"], head["status"], head["dtype"]) == (
        "1e12",
        2,
        "finished",
        "float64",
    )
    begun, run = mh.Trajectory.load(one), mh.Trajectory.load(two)
    assert [row["step"] for row in rows] == run.steps.tolist() and run.last_step == head[
        "last_step"
    ] == 9
    for name in (
        "train_loss",
        "test_loss",
        "margin",
        "gradient_norm",
        "distance",
    ):
        assert np.array_equal([row[name] for row in rows], getattr(run, name)), name
        assert np.array_equal(getattr(run, name)[:7], getattr(begun, name)), name
    assert [row["attention_mass_1"] for row in rows] == run.attention_mass[:, 1].tolist()
    assert sorted(tmp_path.iterdir()) == [one, two]


def test_own_data_are_split_and_the_mapping_of_labels_is_told_and_kept(own, tmp_path, capsys):
    assert train(own, "--steps", 4, "--heads", 3, "--seed", 0, "--out", tmp_path / "run.npz") == 0
    kept = mh.Trajectory.load(tmp_path / "run.npz")
    assert kept.settings["label_names"] == ["cat", "dog"] and kept.origins["data"].seed == 0
    captured = capsys.readouterr()
    assert (
        "training: own: 20 sequences of 4 tokens in dimension 3" in captured.err
        and "labeled dog (+1)" in captured.err
    )
    assert "first phase: own: 10 seq" in captured.err and "test: own: 10 seq" in captured.err
    assert "test loss" in captured.out
    assert train(own, "--steps", 4, "--start", "zero", "--test-examples", 0) == 0
    captured = capsys.readouterr()  # nothing is set aside that is not used
    assert (
        "own: 40 sequences" in captured.err
        and "test: " not in captured.err
        and "test loss" not in captured.out
    )


def test_digits_are_a_data_source_like_any_other(capsys):
    assert train("digits", "--steps", 3, "--heads", 3, "--start", "first_phase") == 0
    captured = capsys.readouterr()
    assert (
        "digits 3 and 8: " in captured.err and "test: digits 3 and 8: 89 sequences" in captured.err
    )
    assert train("digits", "--examples", 5, "--quiet") == 2
    assert "--examples 5 is for generated tasks" in capsys.readouterr().err


def test_a_run_that_is_not_finite_says_so(tmp_path, capsys):
    np.savez(
        tmp_path / "huge.npz",
        tokens=1e25 * np.random.default_rng(0).standard_normal((40, 4, 3)),
        labels=[0, 1] * 20,
    )
    assert (
        train(
            tmp_path / "huge.npz",
            "--steps",
            4,
            "--start",
            "gaussian",
            "--test-examples",
            0,
            "--json",
        )
        == 1
    )
    captured = capsys.readouterr()
    assert json.loads(captured.out)["status"] == "diverged"
    assert captured.err.splitlines()[-1].startswith("error: the loss is not finite at the start")


def test_a_run_whose_loss_rose_is_no_success(own, capsys):
    assert (
        train(
            own,
            "--step-size",
            "1e4",
            "--steps",
            3,
            "--start",
            "gaussian",
            "--test-examples",
            0,
            "--quiet",
        )
        == 1
    )
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: the train loss rose from ") and said.endswith(
        "; try --step-size 1000"
    )


def test_a_record_that_is_not_finite_is_null_in_json(own, capsys):
    run = mh.train(
        mh.zero_start(1, num_tokens=4, dim=3), mh.Dataset.load(own), rule=mh.GD(0.1), num_steps=1
    )
    run = replace(run, margin=np.array([1.0, np.inf]))
    command._print_json(run)
    *_, last = capsys.readouterr().out.splitlines()
    assert json.loads(last, parse_constant=pytest.fail)["margin"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing-here",), "'nothing-here' is neither a file nor a data source"),
        (("--steps", -1), "--steps -1 must be a whole number"),
        (("--step-size", "nan"), "--step-size nan must be a finite number > 0"),
        (("--examples", 1), "--examples 1 must be a whole number >= 2"),
        (("--test-examples", -1), "--test-examples -1 must be 0 or more"),
        (
            ("--first-phase-examples", 0),
            "--first-phase-examples 0 must be 2 or more",
        ),
        (("--start", "gaussian", "--heads", "1e12"), "too many for a Gaussian start"),
        (("--scale", 2), "--scale 2 is for --start gaussian only"),
        (("--resume", "none.npz"), "none.npz does not exist"),
        (
            ("--out", "run.txt"),
            "--out run.txt must end in .npz, the format of a trajectory; pass run.npz",
        ),
        (("--positive", "up"), "--positive up is for data of your own; leave it out for mixture"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train("--quiet", "--out", "run.npz", *arguments) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("error: ")
    )
    assert words in captured.err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("--heads", "0"), ("--seed", "-1"), ("--seed", str(2**64)), ("--start", "x")],
)
def test_options_that_cannot_be_read_exit_2(option, value, capsys):
    assert train(option, value) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and option in captured.err and captured.err.count("\n") == 1


def test_files_that_cannot_be_are_refused_before_the_work(own, tmp_path, capsys):
    before = own.read_bytes()
    for out, words in (
        (tmp_path, "is a folder; pass a file in it"),
        (tmp_path / "no" / "run.npz", "the folder does not exist; make it first"),
        (own, "would overwrite the data"),
    ):
        assert train(own, "--quiet", "--steps", 10**9, "--out", out) == 2
        assert words in capsys.readouterr().err
    assert own.read_bytes() == before and list(tmp_path.iterdir()) == []


def test_data_of_one_class_after_the_split_are_refused(tmp_path):
    labels = np.arange(12) == 3
    np.savez(tmp_path / "few.npz", tokens=np.zeros((12, 2, 2)), labels=labels)
    refused = 0
    for seed in range(6):
        try:
            aside = {"first phase": 2, "test": 2}
            kept = split(str(tmp_path / "few.npz"), seed, aside)["training"]
            assert set(kept.labels) == {-1, 1}
        except ValueError as error:
            assert "the 8 sequences of" in str(
                error
            ) and "left for training are of one class" in str(error)
            refused += 1
    assert 0 < refused < 6


def test_ctrl_c_keeps_what_was_done_and_exits_130(own, tmp_path, capsys, monkeypatch):
    calls, advance = [], loop.advance

    def with_a_key_press(*arguments):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return advance(*arguments)

    monkeypatch.setattr(loop, "advance", with_a_key_press)
    out = tmp_path / "run.npz"
    assert (
        train(own, "--start", "zero", "--test-examples", 0, "--steps", 10**5, "--out", out) == 130
    )
    assert f"interrupted; continue with --resume {out}" in capsys.readouterr().err
    run = mh.Trajectory.load(out)
    assert run.status == "interrupted" and 0 < run.last_step < 10**5


def test_a_small_file_of_which_nothing_is_set_aside_is_fine(tmp_path, capsys):
    tokens = np.random.default_rng(0).standard_normal((6, 4, 3))
    np.savez(tmp_path / "six.npz", tokens=tokens, labels=[1, -1, 1, -1, 1, -1])
    small = (str(tmp_path / "six.npz"), "--start", "zero", "--steps", "5", "--quiet")
    assert train(*small, "--test-examples", "0") == 0
    capsys.readouterr()
    assert (
        train(*small) == 2 and "at least 8 are needed to set some aside" in capsys.readouterr().err
    )


def test_a_run_ends_where_the_rest_is_proved(tmp_path, capsys):
    out = tmp_path / "run.npz"
    options = [*SMALL, "--steps", 60, "--step-size", 1, "--heads", 64, "--dtype", "float64"]
    assert train(*options, "--until", "certified", "--forecast", "--json", "--out", out) == 0
    head, *rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert head["status"] == "stopped" and "is proved to halve within" in head["reason"]
    assert (
        rows[-1]["step"] == head["last_step"] < 60
        and rows[-1]["steps_to_half"] > 0
        and rows[-1]["indicator"] > 0
    )
    assert mh.Trajectory.load(out).reason == head["reason"]
    assert train(*SMALL, "--until", "certain") == 2
    assert "invalid choice 'certain'" in capsys.readouterr().err


def test_a_large_file_is_streamed_and_says_so(tmp_path, capsys, monkeypatch):
    tokens = np.random.default_rng(0).standard_normal((40, 4, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", tokens)
    np.save(tmp_path / "y.npy", np.where(tokens.sum((1, 2)) > 0, "dog", "cat"))
    files, plain, streamed = (
        f"{tmp_path}/x.npy,{tmp_path}/y.npy",
        tmp_path / "plain.npz",
        tmp_path / "streamed.npz",
    )
    options = ("--start", "zero", "--heads", 1, "--steps", 5, "--test-examples", 5)
    assert train(files, *options, "--out", plain) == 0
    assert "block by block" not in capsys.readouterr().err
    monkeypatch.setattr(mapped, "LARGE_BYTES", 1)
    monkeypatch.setattr(mapped, "SMALL_BYTES", 1000)
    assert train(files, *options, "--out", streamed) == 0
    assert f"read block by block from {tmp_path}/x.npy" in capsys.readouterr().err
    runs = [
        mh.Trajectory.load(path) for path in (plain, streamed)
    ]  # in another order: the sums round differently
    np.testing.assert_allclose(runs[0].train_loss, runs[1].train_loss, rtol=1e-5)
    np.testing.assert_allclose(runs[0].test_loss, runs[1].test_loss, rtol=1e-5)
