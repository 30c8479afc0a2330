"""The whole ledger runs, nothing corrected is violated, every erratum is reproduced; and checks can fail."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from manyheads.certificates import check_errata, check_mixture
from manyheads.certificates import verify as module
from manyheads.certificates.finding import Effort, Finding, Tally, erratum
from manyheads.certificates.ledger import entry, errata_entries, ledger, statements
from manyheads.certificates.verdict import Verdict
from manyheads.certificates.verify import Verification, verify
from manyheads.papers.deora2023.derivatives import Shape


@pytest.fixture(scope="module")
def quick():
    return verify(quick=True)


def test_every_statement_and_erratum_is_covered(quick):
    assert [f.statement for f in quick.findings] == list(ledger())
    assert all(f.trials >= 1 for f in quick.findings)


def test_no_corrected_statement_is_violated(quick):
    assert [
        f for f in quick.findings if f.statement in {s.id for s in statements()} and f.verdict is not Verdict.HOLDS
    ] == []


def test_every_erratum_is_reproduced(quick):
    assert [
        f for f in quick.findings if f.statement in {e.id for e in errata_entries()} and f.verdict is not Verdict.HOLDS
    ] == []


def test_the_stated_tightness_is_reached(quick):
    for finding in quick.findings:
        stated = entry(finding.statement).tightness
        if stated is not None:
            assert 0.98 * stated <= finding.ours <= 1 + 1e-9, finding


@pytest.mark.parametrize("name, least", [("glqc", 0.85), ("onestep", 0.5), ("descent", 0.5)])
def test_tightness_where_it_is_not_automatic(quick, name, least):
    """For small κ, or a small gradient, both sides agree whatever the inequality is worth."""
    (finding,) = (f for f in quick.findings if f.statement == name)
    share = float(re.search(r"0\.\d{3}", finding.detail)[0])
    assert least <= share <= 1


def test_printed_versions_that_are_errata_fail(quick):
    by_name = {f.statement: f for f in quick.findings}
    for name in ("E8", "E9", "E10", "E11", "E15", "E16", "E23"):
        assert by_name[name].printed > 1


def test_table_and_json(quick):
    text = str(quick)
    assert "45 of 45 statements hold as corrected, 26 of 26 errata reproduced" in text
    assert text.count("REPRODUCED") == 26
    stored = json.loads(quick.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert len(stored["findings"]) == 71 and stored["violated"] == []


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1])
def test_the_ledger_at_full_depth(seed):
    result = verify(seed=seed)
    assert result.violated == ()


def test_a_violation_is_reported_and_counted(monkeypatch):
    broken = Finding("eq1", 1, None, 1.5, Verdict.VIOLATED, "planted")
    planted = replace(entry("eq1"), check=lambda effort: replace(broken, statement=""))
    monkeypatch.setattr(module, "entry", lambda name: planted)
    result = verify(["eq1"], quick=True)
    assert result.violated == (broken,)
    assert "VIOLATED" in str(result) and "0 of 1 statements" in result.summary()


def test_a_tally_counts_breaches_and_nan():
    tally = Tally()
    tally.add(1.0, 2.0)
    tally.add(float("nan"), 2.0)
    assert tally.finding().verdict is Verdict.VIOLATED
    with pytest.raises(AssertionError, match="tried nothing"):
        Tally().finding()


def test_an_erratum_that_does_not_show_is_violated():
    assert erratum(False, "nothing").verdict is Verdict.VIOLATED


def test_e1_would_fail_if_the_printed_jacobian_were_right(monkeypatch):
    monkeypatch.setattr(
        check_errata, "softmax_jacobian", lambda v: np.diag(np.exp(v) / np.exp(v).sum()) - np.outer(v, v)
    )
    assert check_errata.e1(Effort()).verdict is Verdict.VIOLATED


def test_e4_would_fail_if_the_printed_beta3_were_what_proposition_1_gives(monkeypatch):
    monkeypatch.setattr(check_errata.Shape, "beta3", check_errata.Shape.beta3_from_prop1)
    assert check_errata.e4(Effort()).verdict is Verdict.VIOLATED


def test_e9_breaks_the_constant_as_printed_and_not_ours_only(monkeypatch):
    """The share of the print is taken with β3(0) = 2√T d R³; a constant that covers the segment is not exceeded."""
    found = check_errata.e9(Effort())
    assert found.verdict is Verdict.HOLDS and found.printed > 2
    gap = found.ours * Shape(3, 1, 1.0).b3(1000.0)
    assert abs(found.printed - gap / (2 * np.sqrt(3))) < 1e-9
    monkeypatch.setattr(check_errata.Shape, "beta3", lambda self, x: 2 * np.sqrt(3) * 1000)
    assert check_errata.e9(Effort()).verdict is Verdict.VIOLATED


def test_the_logit_gap_breaks_when_raised_by_one_percent(monkeypatch):
    honest = check_mixture.logit_gap
    monkeypatch.setattr(check_mixture, "logit_gap", lambda mixture: 1.01 * honest(mixture))
    assert check_mixture.logits_under_oracle(Effort()).verdict is Verdict.VIOLATED


def test_the_margin_formula_breaks_when_raised_by_one_percent(monkeypatch):
    honest = check_mixture.first_phase_margin
    monkeypatch.setattr(check_mixture, "first_phase_margin", lambda *a: 1.01 * honest(*a))
    assert check_mixture.margin_after_first_phase(Effort()).verdict is Verdict.VIOLATED


def test_the_linear_program_of_section_53_is_feasible_without_saturation(monkeypatch):
    """The impossibility comes from saturation: without it exponents exist, so the check is not empty."""
    honest = scipy.optimize.linprog
    assert not check_mixture._feasible(True, 0.5)

    def without(c, A_ub, b_ub, bounds):
        return honest(c, A_ub=np.delete(A_ub, 1, 0), b_ub=np.delete(b_ub, 1), bounds=bounds)

    monkeypatch.setattr(scipy.optimize, "linprog", without)
    assert check_mixture._feasible(True, 0.5)


def test_summary_of_a_part():
    part = Verification((Finding("E1", 3, None, None, Verdict.HOLDS),), (1.0,), True, 0)
    assert part.summary() == "1 of 1 errata reproduced; 3 trials in 1 s"
