"""A statement in one file and a paper in one folder, from outside the package, are seen everywhere."""

import json
import sys
from importlib import import_module
from pathlib import Path

import jax
import pytest

from manyheads.cli.main import main
from manyheads.data.mixture import TokenizedMixture
from manyheads.theory import ledger as module
from manyheads.theory.certify import certify
from manyheads.theory.ledger import entry, ledger, papers
from manyheads.theory.verdict import Verdict
from manyheads.theory.verify import verify
from manyheads.training.descent import train
from manyheads.training.rules import GD
from manyheads.training.start import zero_start

PLUGINS = Path(__file__).parent / "plugins"
NAMES = ("own_statement", "own_paper")


def forget():
    """Let the ledger be read anew."""
    for value in vars(module).values():
        if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "cache_clear"):
            value.cache_clear()


@pytest.fixture(autouse=True)
def plugins(monkeypatch):
    monkeypatch.syspath_prepend(str(PLUGINS))
    monkeypatch.setattr(module, "plugins", lambda: [import_module(name) for name in NAMES])
    forget()
    yield
    monkeypatch.undo()
    forget()
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def run():
    mixture = TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=1.0, frame="axis"
    )
    data = mixture.sample(6, key=jax.random.key(0))
    return train(
        zero_start(2, num_tokens=4, dim=6), data, rule=GD(0.1), num_steps=3, dtype="float64"
    ), data


def test_they_are_in_the_ledger_after_our_own():
    assert list(papers())[0] == "deora2023" and list(papers())[-2:] == ["own_statement", "own2026"]
    assert list(ledger())[-3:] == ["own_statement.fallen", "own2026.thm1", "own2026.misprint"]


def test_names():
    assert entry("fallen") is entry("own_statement.fallen")
    assert entry("thm1").paper == "deora2023" and entry("Deora2023.THM1") is entry("thm1")
    assert entry("own2026.thm1").title == "steps are counted"
    with pytest.raises(
        ValueError,
        match=r"several statements; write one of own_statement.fallen, own2026.thm1 in full",
    ):
        entry("down")


def test_explain_tells_them(capsys):
    assert main(["explain"]) == 0
    assert "own2026.misprint  " in capsys.readouterr().out
    assert main(["explain", "fallen"]) == 0
    out = capsys.readouterr().out
    assert "the loss falls" in out and "checker    own_statement.check" in out
    assert main(["explain", "own2026.thm1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["paper"] == "own2026"


def test_verify_checks_them(capsys):
    found = verify(["fallen", "own2026.thm1", "misprint"], quick=True)
    assert [(f.statement, f.trials) for f in found.findings] == [
        ("own_statement.fallen", 5),
        ("own2026.thm1", 3),
        ("own2026.misprint", 1),
    ]
    assert found.summary().startswith(
        "2 of 2 statements hold as corrected, 1 of 1 errata reproduced"
    )
    assert main(["verify", "own2026.thm1", "--quick", "--quiet"]) == 0
    assert "steps are counted" in capsys.readouterr().out


def test_certify_asks_them_about_a_run(run):
    found = certify(*run, ["fallen", "own2026.thm1"])
    assert [(c.statement, c.verdict) for c in found] == [
        ("own_statement.fallen", Verdict.HOLDS),
        ("own2026.thm1", Verdict.HOLDS),
    ]
    assert len(found.about("own2026.thm1")) == 1


def test_the_scope_of_the_paper_is_respected(run):
    trajectory, data = run
    even = train(trajectory.start, data, rule=GD(0.1), num_steps=2, dtype="float64")
    (found,) = certify(even, data, ["own2026.thm1"])
    assert found.verdict is Verdict.SILENT and "an odd number of steps" in found.reason


def test_two_statements_of_one_name_are_refused(monkeypatch):
    import own_statement

    monkeypatch.setattr(
        own_statement,
        "COPY",
        own_statement.Statement(
            id="fallen", place="x", title="x", proof="x", remark="x", check=own_statement.check
        ),
        raising=False,
    )
    with pytest.raises(ValueError, match="two statements called 'own_statement.fallen'"):
        ledger()
