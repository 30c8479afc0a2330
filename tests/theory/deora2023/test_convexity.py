"""Quasi-convexity and the one-step inequality: coefficients against arithmetic with 40 digits; wrong ones are caught."""

import math

import mpmath
import pytest

from manyheads.theory.deora2023 import convexity
from manyheads.theory.deora2023.convexity import glqc_factor, step_coefficients
from manyheads.theory.finding import Effort
from manyheads.theory.verdict import Verdict

mpmath.mp.dps = 40


def test_step_coefficients_have_their_limits():
    for kappa in (0.0, 1e-14, 1e-9, 1e-8, 1.01e-8, 1e-4, 0.9, 5.0, 9.0):
        root = mpmath.sqrt(mpmath.mpf(kappa))
        A = root / mpmath.sin(root) if kappa else 1
        B = root * mpmath.cot(root) if kappa else 1
        got = step_coefficients(kappa)
        assert abs(got[0] - float(A)) < 1e-14 * abs(float(A))
        assert abs(got[1] - float(B)) < 1e-14 * max(1, abs(float(B)))


@pytest.mark.parametrize("kappa", [math.pi**2, 12.0, -0.1, math.nan])
def test_outside_the_range_nothing_is_claimed(kappa):
    assert step_coefficients(kappa) == (math.inf, -math.inf)
    assert glqc_factor(kappa) == math.inf


def test_glqc_against_the_printed_factor():
    assert round(glqc_factor(0.5), 3) == 1.066
    assert glqc_factor(2.0) < 4 / 3 < glqc_factor(2.1)
    assert glqc_factor(2.088) <= 4 / 3 * (1 + 1e-4)


def test_glqc_breaks_with_a_wrong_factor(monkeypatch):
    honest = convexity.glqc_factor
    monkeypatch.setattr(
        convexity, "glqc_factor", lambda kappa: 1 + 0.9 * (honest(kappa) - 1) - 0.05
    )
    assert convexity.check_quasi_convexity(Effort()).verdict is Verdict.VIOLATED


def test_one_step_breaks_with_a_wrong_coefficient(monkeypatch):
    honest = convexity.step_coefficients
    monkeypatch.setattr(
        convexity, "step_coefficients", lambda kappa: (0.95 * honest(kappa)[0], honest(kappa)[1])
    )
    assert convexity.check_one_step(Effort()).verdict is Verdict.VIOLATED
