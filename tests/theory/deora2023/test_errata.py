"""Errata: a check fails where the print is right."""

import numpy as np

from manyheads.theory.deora2023 import errata, errata_mixture
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.finding import Effort
from manyheads.theory.verdict import Verdict


def test_every_erratum_has_its_number_its_proof_and_its_check():
    found = [getattr(module, f"e{k}") for module, k in [(errata, k) for k in range(1, 14)]]
    found += [getattr(errata_mixture, f"e{k}") for k in range(14, 27)]
    assert [e.id for e in found] == [f"E{k}" for k in range(1, 27)]
    assert [e.proof for e in found] == [f"docs/theory/errata.md#e{k}" for k in range(1, 27)]
    assert all(e.weight and e.printed and e.corrected and e.remark and e.used_by for e in found)


def test_e1_would_fail_if_the_printed_jacobian_were_right(monkeypatch):
    monkeypatch.setattr(
        errata, "softmax_jacobian", lambda v: np.diag(np.exp(v) / np.exp(v).sum()) - np.outer(v, v)
    )
    assert errata.e1.check(Effort()).verdict is Verdict.VIOLATED


def test_e4_would_fail_if_the_printed_beta3_were_what_proposition_1_gives(monkeypatch):
    monkeypatch.setattr(Shape, "beta3", Shape.beta3_from_prop1)
    assert errata.e4.check(Effort()).verdict is Verdict.VIOLATED


def test_e9_breaks_the_constant_as_printed_and_not_ours_only(monkeypatch):
    """The share of the print is taken with β3(0) = 2√T d R³; a constant that covers the segment is not exceeded."""
    found = errata.e9.check(Effort())
    assert found.verdict is Verdict.HOLDS and found.printed > 2
    gap = found.ours * Shape(3, 1, 1.0).b3(1000.0)
    assert abs(found.printed - gap / (2 * np.sqrt(3))) < 1e-9
    monkeypatch.setattr(Shape, "beta3", lambda self, x: 2 * np.sqrt(3) * 1000)
    assert errata.e9.check(Effort()).verdict is Verdict.VIOLATED


def test_e16_would_fail_if_a_negative_sharpness_were_harmless(monkeypatch):
    monkeypatch.setattr(
        errata_mixture, "sharpness", lambda mixture, mass, printed=False: -5.0 if printed else 5.0
    )
    monkeypatch.setattr(errata_mixture, "irrelevant_mass", lambda data, weights: 0.4)
    assert errata_mixture.e16.check(Effort()).verdict is Verdict.VIOLATED
