"""verify, certify, plan and explain at the command line: exit codes, plain pipes, JSON, one-line errors."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from manyheads.cli.main import main
from manyheads.data.mixture import TokenizedMixture
from manyheads.theory import verify as verify_module
from manyheads.theory.finding import Finding
from manyheads.theory.ledger import entry
from manyheads.theory.verdict import Verdict


@pytest.fixture(scope="module")
def data_file(tmp_path_factory):
    mixture = TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.0,
        noise_mu=0.05,
        noise_nu=0.05,
        noise_norm=0.3,
        key=jax.random.key(0),
    )
    path = tmp_path_factory.mktemp("data") / "data.npz"
    mixture.sample(80, key=jax.random.key(1)).save(path)
    return path


def test_verify_prints_a_table_and_exits_zero(capsys):
    assert main(["verify", "lemmaC", "E7", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert "lemmaC" in out and "HOLDS" in out and "REPRODUCED" in out and "\x1b" not in out
    assert "2/2" in err


def test_verify_exits_one_when_a_statement_is_violated(capsys, monkeypatch):
    broken = Finding("eq1", 3, None, 2.0, Verdict.VIOLATED, "planted")
    monkeypatch.setattr(
        verify_module, "entry", lambda name: replace(entry(name), check=lambda effort: broken)
    )
    assert main(["verify", "eq1", "--quick", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert "VIOLATED" in out and err == ""


def test_verify_json(capsys):
    assert main(["verify", "E4", "--quick", "--json", "--quiet"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["findings"][0]["statement"] == "E4" and stored["violated"] == []


def test_verdicts_are_colored_on_a_terminal(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["verify", "E4", "--quick", "--quiet"]) == 0
    assert "\x1b[32mREPRODUCED\x1b[0m" in capsys.readouterr().out


def test_explain_one_and_all(capsys):
    assert main(["explain", "eq4"]) == 0
    one = capsys.readouterr().out
    assert one.startswith("thm1") and "docs/theory/training.md" in one
    assert main(["explain"]) == 0
    everything = capsys.readouterr().out
    assert "prop1.gradient" in everything and "E26" in everything and "[real]" in everything
    assert main(["explain", "E12", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weight"] == "real"


@pytest.mark.parametrize("verb", ["explain", "verify"])
def test_unknown_statements_get_one_line_and_exit_two(verb, capsys):
    assert main([verb, "thm11"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error:") and "did you mean" in err and err.count("\n") == 1


def test_certify_data(data_file, capsys):
    options = [
        "--steps",
        "20",
        "--heads",
        "10^6",
        "--step-size",
        "0.1",
        "--statement",
        "def1.p3",
        "identity",
        "thm1",
        "--quiet",
    ]
    assert main(["certify", str(data_file), *options]) == 0
    out = capsys.readouterr().out
    assert "1000000 heads" in out and "HOLDS     def1.p3" in out and "identity" in out


def test_certify_is_silent_with_exit_three_and_json(data_file, capsys):
    assert (
        main(
            [
                "certify",
                str(data_file),
                "--steps",
                "5",
                "--heads",
                "2",
                "--statement",
                "thm2",
                "--json",
                "--quiet",
            ]
        )
        == 3
    )
    stored = json.loads(capsys.readouterr().out)
    assert stored["verdict"] == "SILENT"
    hypotheses = stored["certificates"][0]["bounds"][-1]["hypotheses"]
    assert any(not h["holds"] and h["remedy"] for h in hypotheses)


def test_certify_a_saved_run(data_file, tmp_path, capsys):
    run = tmp_path / "run.npz"
    assert (
        main(
            ["train", str(data_file), "--heads", "4", "--steps", "20", "--out", str(run), "--quiet"]
        )
        == 0
    )
    capsys.readouterr()
    assert (
        main(
            [
                "certify",
                str(run),
                "--data",
                str(data_file),
                "--statement",
                "identity",
                "cor1.3",
                "--full",
                "--quiet",
            ]
        )
        == 0
    )
    assert "explained from the proximal target" in capsys.readouterr().out
    assert main(["certify", str(run), "--quiet"]) == 2
    assert "pass --data" in capsys.readouterr().err
    assert main(["certify", str(data_file), "--data", str(data_file), "--quiet"]) == 2
    assert (
        main(
            [
                "certify",
                str(run),
                "--data",
                str(data_file),
                "--seed",
                "9",
                "--statement",
                "identity",
                "--quiet",
            ]
        )
        == 2
    )
    assert "trained on" in capsys.readouterr().err


@pytest.mark.parametrize("start", ["zero", "gaussian"])
def test_runs_from_other_starts_are_certified_with_the_same_options(
    data_file, tmp_path, capsys, start
):
    """Such a run sets nothing aside for a first phase, and certify must find the same training data."""
    run = tmp_path / "run.npz"
    options = [
        str(data_file),
        "--start",
        start,
        "--heads",
        "2",
        "--steps",
        "20",
        "--out",
        str(run),
        "--quiet",
    ]
    assert main(["train", *options]) == 0
    assert (
        main(["certify", str(run), "--data", str(data_file), "--statement", "identity", "--quiet"])
        == 0
    )
    out = capsys.readouterr().out
    assert "HOLDS     identity" in out and "60 sequences" in out.split("R assumed")[0]


def test_a_first_phase_without_data_is_refused(data_file, capsys):
    assert main(["certify", str(data_file), "--first-phase-examples", "0", "--quiet"]) == 2
    assert "--first-phase-examples 0 leaves the first phase without data" in capsys.readouterr().err


def test_json_is_not_colored_on_a_terminal(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for words in (["verify", "E7", "--quick", "--quiet"], ["explain"]):
        assert main([*words, "--json"]) == 0
        json.loads(capsys.readouterr().out)


def test_a_silent_line_says_what_would_help(data_file, capsys):
    assert (
        main(
            [
                "certify",
                str(data_file),
                "--steps",
                "5",
                "--heads",
                "2",
                "--statement",
                "thm1",
                "--quiet",
            ]
        )
        == 3
    )
    assert "heads or more, or a target nearer to the start" in capsys.readouterr().out


def test_certify_bad_files(tmp_path, capsys):
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"nonsense")
    assert main(["certify", str(bad), "--quiet"]) == 2
    assert "not a readable .npz" in capsys.readouterr().err
    assert main(["certify", str(tmp_path / "none.npz"), "--quiet"]) == 2


def test_plan(data_file, capsys):
    assert (
        main(["plan", str(data_file), "--target-loss", "0.3", "--no-trials", "--json", "--quiet"])
        == 0
    )
    assert len(json.loads(capsys.readouterr().out)["demands"]) == 4
    assert main(["plan", str(data_file), "--target-loss", "3"]) == 2


def test_plan_is_silent_with_exit_three(tmp_path, capsys):
    rng = np.random.default_rng(0)
    tokens = np.repeat(rng.standard_normal((10, 3, 2)), 4, axis=0)
    path = tmp_path / "coins.npz"
    np.savez(path, tokens=tokens, labels=np.tile([0, 1, 0, 1], 10))
    assert main(["plan", str(path), "--target-loss", "0.3", "--no-trials", "--quiet"]) == 3
    assert "silent" in capsys.readouterr().out


@pytest.mark.parametrize("share", ["inf", "nan", "0", "1.5"])
def test_a_share_to_plan_on_is_between_0_and_1(share, capsys):
    assert (
        main(
            [
                "plan",
                "random_labels",
                "--examples",
                "24",
                "--no-trials",
                f"--planning-share={share}",
            ]
        )
        == 2
    )
    assert "must be a finite number strictly between 0 and 1" in capsys.readouterr().err
