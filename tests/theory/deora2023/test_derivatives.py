"""The constants, against arithmetic with 40 digits; and the numbers that the proofs rest on."""

import math

import mpmath
import numpy as np
import pytest

from manyheads.theory.deora2023.constants import (
    DRIFT,
    HEADS_GENERALIZATION,
    HEADS_TRAINING,
    Shape,
    log_one_plus_exp,
)

mpmath.mp.dps = 40


def test_the_arithmetic_of_theorem_1():
    kappa = 4 / mpmath.mpf(HEADS_TRAINING)  # kappa_k <= 4 D^2 b3/sqrt(H)
    assert abs(kappa - mpmath.mpf("0.9")) < 1e-15
    root = mpmath.sqrt(kappa)
    A, B = root / mpmath.sin(root), root * mpmath.cot(root)
    assert (A + 1.5) / B <= DRIFT  # drift of the readouts
    assert 1 + 2 * A + 2 * (1 - B) <= 4  # iterates stay within 2D
    assert A / B <= 2 and 1.5 / B - 1 <= 1.25  # (4)
    assert DRIFT * 9 / 40 < 0.89  # M = |U_0| + 1 suffices, since sqrt(T) R <= b3
    # a constant of 4.3 instead of 40/9 would break the radius 2D
    root = mpmath.sqrt(4 / mpmath.mpf("4.3"))
    assert 1 + 2 * root / mpmath.sin(root) + 2 * (1 - root * mpmath.cot(root)) > 4


def test_the_arithmetic_of_theorem_2():
    kappa = 4 / mpmath.mpf(HEADS_GENERALIZATION)
    root = mpmath.sqrt(kappa)
    A, B = root / mpmath.sin(root), root * mpmath.cot(root)
    radius = 1 + 2 * A + 2 * (1 - B)
    between = 4 * radius / HEADS_GENERALIZATION
    total = 2 * (A / B + 1.5 / B - 1) / HEADS_GENERALIZATION / mpmath.cos(mpmath.sqrt(between) / 2)
    assert radius <= 4 and total <= mpmath.log(2)


def test_the_arithmetic_of_the_explicit_route():
    # kappa <= 1/2, so the gap term is at most (1/3) max(L(theta), L_k); iterates stay within sqrt(13/3) D
    assert abs(0.5 * 0.5 * 4 / 3 - 1 / 3) < 1e-15
    assert math.sqrt(1 + 8 / 3 + 2 / 3) < 3


@pytest.mark.parametrize("x", [0.0, 0.3, 10.0])
@pytest.mark.parametrize("R", [1.0, 2.5])
def test_ours_is_never_above_the_printed_constant(x, R):
    shape = Shape(5, 7, R)
    assert shape.b1(x) <= shape.beta1(x) and shape.b3(x) <= shape.beta3_from_prop1(
        x
    ) <= shape.beta3(x)
    assert shape.b2(x, 9.0) <= shape.beta2(x, 9.0)
    assert shape.b1(x) <= shape.b3(x)


def test_values_by_hand():
    shape = Shape(4, 9, 2.0)  # q = 4 x
    assert shape.b1(0.75) == 4 * math.sqrt(10)
    assert abs(shape.b3(0.75) - 16 * (3 + math.sqrt(13)) / 2) < 1e-12
    assert shape.beta1(0.75) == 4 * 7
    assert shape.beta3(0.75) == 2 * 2 * 9 * 8 * (9 * 3 + 1)
    assert shape.heads_printed(2.0, 3.0) == 9 * 2 * 32 * 2 * 27
    assert abs(shape.radius(1.0, 0.5, 2.0, 100.0) - (1 + 3.93 * 4 * 4 / 10)) < 1e-12
    assert shape.radius(1.0, 50.0, 2.0, 100.0) == 50.0


def test_large_readouts_show_the_gain_over_the_print():
    d = 25
    assert abs(Shape(3, d, 1.0).beta3(1e8) / Shape(3, d, 1.0).b3(1e8) / (6 * d**1.5) - 1) < 1e-6
    assert abs(Shape(3, d, 1.0).beta3(0.0) / Shape(3, d, 1.0).b3(0.0) / (2 * d) - 1) < 1e-12


def test_radius_below_one_is_refused():
    with pytest.raises(ValueError, match="R >= 1"):
        Shape(4, 4, 0.9)
    with pytest.raises(ValueError, match="R >= 1"):
        Shape(4, 4, math.nan)


def test_log_one_plus_exp_does_not_overflow():
    for value in (-800.0, -1.0, 0.0, 1.0, 800.0):
        assert abs(log_one_plus_exp(value) - np.logaddexp(0.0, value)) < 1e-15 * max(1, abs(value))
