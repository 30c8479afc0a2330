"""Certificates of a run: verdicts of each kind, honest scope, and the data that belong to the run."""

import json
from dataclasses import replace

import numpy as np
import pytest
from paper_settings import setting

from manyheads.certificates import examination as module
from manyheads.certificates.certify import STATEMENTS, certify
from manyheads.certificates.ledger import entry
from manyheads.certificates.verdict import Verdict
from manyheads.training.descent import train
from manyheads.training.start import first_phase


@pytest.fixture(scope="module")
def run():
    s = setting("A")
    return s, train(first_phase(s.fresh, 16), s.dataset, step_size=0.2, num_steps=60, dtype="float64")


@pytest.fixture(scope="module")
def everything(run):
    s, trajectory = run
    return certify(trajectory, s.dataset, mixture=s.mixture, test=s.fresh, independent=True)


def test_all_statements_about_a_run_are_answered(everything):
    answered = {c.statement for c in everything}
    assert answered == set(STATEMENTS) - {"lemma3", "loo"}
    assert all(entry(name) for name in STATEMENTS)


def test_unconditional_statements_hold_and_conditional_ones_are_silent(everything):
    for name in ("def1.p1", "def1.p2", "def1.p3", "cor1.1", "cor1.2", "cor1.3", "identity"):
        assert {c.verdict for c in everything.about(name)} == {Verdict.HOLDS}, name
    for name in ("thm1", "iterates", "thm2", "cor2", "prop7"):  # 16 heads are not enough
        assert {c.verdict for c in everything.about(name)} == {Verdict.SILENT}, name
        assert all("heads" in c.reason or "sqrt(H)" in c.reason for c in everything.about(name))
    assert everything.verdict is Verdict.HOLDS


def test_a_smaller_step_makes_the_descent_lemma_speak(run):
    s, _ = run
    calm = train(first_phase(s.fresh, 16), s.dataset, step_size=0.1, num_steps=60, dtype="float64")
    (found,) = certify(calm, s.dataset, ["descent"])
    assert found.verdict is Verdict.HOLDS


def test_text_and_json(everything):
    json.loads(everything.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert "R assumed, largest seen" in str(everything)
    assert len(everything.brief().splitlines()) == len(everything) + 3
    assert "off by a factor" in everything.brief()


def test_a_planted_constant_is_violated(run, monkeypatch):
    s, trajectory = run
    monkeypatch.setattr(module.Shape, "b1", lambda self, x: 0.1 * np.ones_like(x))
    (found,) = certify(trajectory, s.dataset, ["cor1.1"])
    assert found.verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"optimizer": "adam"}, "plain gradient descent"),
        ({"loss": "hyperbolic"}, "logistic loss"),
    ],
)
def test_settings_that_were_not_examined_are_silent(run, changes, text):
    s, trajectory = run
    other = replace(trajectory, settings=trajectory.settings | changes)
    found = certify(other, s.dataset, ["thm1", "identity"])
    assert {c.verdict for c in found} == {Verdict.SILENT}
    assert all(text in c.reason for c in found)


def test_pooled_readouts_are_silent():
    s = setting("A")
    pooled = train(first_phase(s.fresh, 4, decoder="pooled"), s.dataset, step_size=0.2, num_steps=5)
    (found,) = certify(pooled, s.dataset, ["cor1.1"])
    assert found.verdict is Verdict.SILENT and "full readout" in found.reason


def test_a_run_on_other_data_is_refused(run):
    s, trajectory = run
    with pytest.raises(ValueError, match="trained on"):
        certify(trajectory, s.dataset.without(0), ["identity"])


def test_statements_that_are_not_about_a_run_are_refused(run):
    s, trajectory = run
    with pytest.raises(ValueError, match="manyheads verify E7"):
        certify(trajectory, s.dataset, ["E7"])
    with pytest.raises(ValueError, match="unknown statement"):
        certify(trajectory, s.dataset, ["theorem 9"])


def test_single_precision_runs_are_repeated_in_double(run):
    s, _ = run
    single = train(first_phase(s.fresh, 16), s.dataset, step_size=0.2, num_steps=60, dtype="float32")
    found = certify(single, s.dataset, ["identity"])
    assert abs(found.items[0].details["residual"]) < 1e-12


def test_leave_one_out_statements_run_their_twins(run):
    s, trajectory = run
    short = train(first_phase(s.fresh, 16), s.dataset, step_size=0.2, num_steps=10, dtype="float64")
    said = []
    found = certify(short, s.dataset, ["loo"], test=s.fresh, independent=True, progress=said.append)
    assert found.verdict is Verdict.SILENT and "several data sets" in found.items[0].reason
    assert found.items[0].measured > 0 and "40 leave-one-out runs" in said
