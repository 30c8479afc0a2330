"""The whole ledger runs, nothing corrected is violated, every erratum is reproduced; and checks can fail."""

import json
import re
from dataclasses import replace

import pytest

from manyheads.theory import verify as module
from manyheads.theory.finding import Finding, Tally, erratum
from manyheads.theory.ledger import entry, errata_entries, ledger, statements
from manyheads.theory.verdict import Verdict
from manyheads.theory.verify import Verification, verify


@pytest.fixture(scope="module")
def quick():
    return verify(quick=True)


def test_every_statement_and_erratum_is_covered(quick):
    assert [f.statement for f in quick.findings] == list(ledger())
    assert all(f.trials >= 1 for f in quick.findings)


def test_no_corrected_statement_is_violated(quick):
    assert [
        f
        for f in quick.findings
        if f.statement in {s.id for s in statements()} and f.verdict is not Verdict.HOLDS
    ] == []


def test_every_erratum_is_reproduced(quick):
    assert [
        f
        for f in quick.findings
        if f.statement in {e.id for e in errata_entries()} and f.verdict is not Verdict.HOLDS
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
    assert "63 of 63 statements hold as corrected, 26 of 26 errata reproduced" in text
    assert text.count("REPRODUCED") == 26
    stored = json.loads(quick.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert len(stored["findings"]) == 89 and stored["violated"] == []


@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1])
def test_the_ledger_at_full_depth(seed):
    result = verify(seed=seed)
    assert result.violated == ()
    depth = {f.statement: f.trials for f in result.findings if not entry(f.statement).is_erratum}
    assert {name: trials for name, trials in depth.items() if trials < 200} == {}


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
    with pytest.raises(AssertionError, match="made no trial"):
        Tally().finding()


def test_an_erratum_that_does_not_show_is_violated():
    assert erratum(False, "nothing").verdict is Verdict.VIOLATED


def test_summary_of_a_part():
    part = Verification((Finding("E1", 3, None, None, Verdict.HOLDS),), (1.0,), True, 0)
    assert part.summary() == "1 of 1 errata reproduced; 3 trials in 1 s"
