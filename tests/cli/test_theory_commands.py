"""verify, certify, plan and explain at the command line: exit codes, plain pipes, JSON, one-line errors."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from manyheads.cli import statements
from manyheads.cli.main import main
from manyheads.data.mixture import TokenizedMixture
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
        statements, "entry", lambda name: replace(entry(name), check=lambda effort: broken)
    )
    assert main(["verify", "eq1", "--quick", "--quiet"]) == 1
    out, err = capsys.readouterr()
    assert "VIOLATED" in out and err == ""


def test_verify_json(capsys):
    assert main(["verify", "E4", "--quick", "--json", "--quiet"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["findings"][0]["statement"] == "E4" and stored["violated"] == []


def test_results_are_colored_on_a_terminal(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["verify", "E4", "--quick", "--quiet"]) == 0
    assert "\x1b[" in capsys.readouterr().out


LEMMA = """
import jax.numpy as jnp
import manyheads as mh

lemma = mh.Statement(
    "the sum is at most {share} of the norm's bound",
    inputs=mh.inputs(x=mh.real(4)),
    measured=lambda p: jnp.sum(p.x),
    bound=lambda p: {share} * 2 * jnp.linalg.norm(p.x),
)
"""


@pytest.mark.parametrize(("share", "code"), [(1, 0), (0.9, 1)])
def test_verify_and_explain_a_file_with_statements(share, code, tmp_path, capsys):
    file = tmp_path / "my_lemma.py"
    file.write_text(LEMMA.format(share=share))
    assert main(["verify", str(file), "--quick", "--quiet"]) == code
    assert ("VIOLATED" if code else "HOLDS") in capsys.readouterr().out
    assert main(["explain", str(file)]) == 0
    assert "the sum is at most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "holds no statement; assign one to a name"),
        ("x = 1 / 0", "cannot be run: ZeroDiv"),
    ],
)
@pytest.mark.parametrize("verb", ["explain", "verify"])
def test_a_file_without_statements_is_refused_in_one_line(verb, text, words, tmp_path, capsys):
    (tmp_path / "x.py").write_text(text)
    assert main([verb, str(tmp_path / "x.py")]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert main([verb, str(tmp_path / "none.py")]) == 2


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


@pytest.fixture(scope="module")
def small_run(data_file, tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.npz"
    options = ["--heads", "2", "--steps", "5", "--out", str(path), "--quiet"]
    assert main(["train", str(data_file), *options]) == 0
    return str(path)


def test_certify_is_silent_with_exit_three_and_json(small_run, capsys):
    assert main(["certify", small_run, "--statement", "thm2", "--json", "--quiet"]) == 3
    stored = json.loads(capsys.readouterr().out)
    assert stored["verdict"] == "SILENT"
    hypotheses = stored["certificates"][0]["bounds"][-1]["hypotheses"]
    assert any(not h["holds"] and h["remedy"] for h in hypotheses)


def test_certify_in_full(small_run, capsys):
    words = ["--statement", "identity", "cor1.3", "--full", "--quiet"]
    assert main(["certify", small_run, *words]) == 0
    assert "explained from the proximal target" in capsys.readouterr().out


def test_a_silent_line_says_what_would_help(small_run, capsys):
    assert main(["certify", small_run, "--statement", "thm1", "--quiet"]) == 3
    assert "heads or more, or a target nearer to the start" in capsys.readouterr().out


def test_certify_needs_a_run(data_file, capsys):
    assert main(["certify", str(data_file), "--quiet"]) == 2
    assert "does not hold a trajectory" in capsys.readouterr().err
    assert main(["certify", "mixture", "--quiet"]) == 2
    assert "make a run with `manyheads train DATA --out" in capsys.readouterr().err


def test_json_is_not_colored_on_a_terminal(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for words in (["verify", "E7", "--quick", "--quiet"], ["explain"]):
        assert main([*words, "--json"]) == 0
        json.loads(capsys.readouterr().out)


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
