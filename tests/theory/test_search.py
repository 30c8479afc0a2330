"""Tightness: how near to each bound adversarial and extremal inputs come, and that a smaller constant is caught."""

import math

import jax
import numpy as np
import pytest

from manyheads.theory.deora2023 import derivatives, formula, model
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.search import climb, evaluate, stored_points
from manyheads.theory.verdict import Verdict

# What adversarial search must reach of our bounds.
REACHED = {
    "prop1.gradient": 0.99,
    "prop1.hessian": 0.99,
    "cor1.1": 0.95,
    "cor1.2": 0.85,
    "cor1.3": 0.70,
}
SEARCHES = {
    search.name: search
    for search in (
        model.GRADIENT_SEARCH,
        model.HESSIAN_SEARCH,
        derivatives.GRADIENT_SEARCH,
        derivatives.SMOOTHNESS_SEARCH,
        derivatives.CONVEXITY_SEARCH,
    )
}


def stored(name):
    """Measured value, our bound and the printed bound at the first stored point."""
    return evaluate(SEARCHES[name], stored_points(SEARCHES[name])[:1])[0]


@pytest.mark.parametrize("name", REACHED)
def test_stored_points_reach_the_bound_and_do_not_exceed_it(name):
    measured, bound, printed = stored(name)
    assert REACHED[name] <= measured / bound <= 1 + 1e-9
    assert measured / printed <= 1 + 1e-9


@pytest.mark.parametrize("name", ["prop1.gradient", "prop1.hessian"])
def test_a_fresh_search_reaches_the_bound(name):
    _, best = climb(SEARCHES[name], seed=7, restarts=6, steps=1200)
    assert REACHED[name] <= best <= 1 + 1e-9


@pytest.mark.full
@pytest.mark.parametrize("name", REACHED)
@pytest.mark.parametrize("seed", [0, 1])
def test_fresh_searches_reach_every_bound(name, seed):
    _, best = climb(SEARCHES[name], seed=seed, restarts=16, steps=1500)
    assert REACHED[name] <= best <= 1 + 1e-9


@pytest.mark.parametrize("name", ["prop1.gradient", "prop1.hessian"])
def test_a_constant_lowered_by_one_percent_is_caught(name):
    """The same inputs, the bound times 0.99: the check must say VIOLATED."""
    honest, planted = Tally(), Tally()
    measured, bound, _ = stored(name)
    honest.add(measured, bound)
    planted.add(measured, 0.99 * bound)
    assert honest.finding().verdict is Verdict.HOLDS
    assert planted.finding().verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    "method, case",
    [
        ("b1", derivatives.many_aligned_heads),
        ("b2", derivatives.many_zero_heads),
        ("b3", derivatives.idle_heads),
    ],
)
def test_corollary_1_is_attained_in_the_limit_of_many_heads(method, case):
    shares = [case(heads)[0] / case(heads)[1] for heads in (1e2, 1e4, 1e8)]
    assert shares[0] < shares[1] < shares[2] <= 1 + 1e-9
    assert shares[2] > 0.999


def test_a_planted_wrong_constant_makes_verify_say_violated(monkeypatch):
    """b3 lowered by 1%: Corollary 1 (3) is reported as violated."""
    honest = Shape.b3
    monkeypatch.setattr(Shape, "b3", lambda self, x: 0.99 * honest(self, x))
    finding = derivatives.check_weak_convexity(Effort(quick=True))
    assert finding.verdict is Verdict.VIOLATED and "break it" in finding.detail


def test_extremal_points_attain_proposition_1():
    for name, point in (
        ("prop1.gradient", model.gradient_point()),
        ("prop1.hessian", model.hessian_point()),
    ):
        measured, bound, _ = evaluate(SEARCHES[name], [point])[0]
        assert abs(measured / bound - 1) < 1e-12


def test_class_spectrum_at_many_heads_against_explicit_heads():
    """The extremal case of Corollary 1 (3) with every head written out, by a dense Hessian."""
    T, heads = 2, 12
    tokens = np.array([[1.0], [-1.0]])
    size = derivatives.SCORE / math.sqrt(heads * T)
    U = np.stack([np.zeros((T, 1)), size / math.sqrt(T) * tokens])
    W = np.array([0.0, 40.0]).reshape(2, 1, 1)
    dense = np.linalg.eigvalsh(
        formula.explicit_hessian(U, W, (2, heads - 2), tokens[None], np.ones(1))
    ).min()
    with jax.enable_x64(True):
        loss, _ = formula.class_loss(U, W, np.array([2.0, heads - 2.0]), tokens[None], np.ones(1))
    measured, bound, _ = derivatives.idle_heads(heads, num_tokens=T)
    assert abs(-dense / float(loss) / measured - 1) < 1e-6
    assert measured <= bound


@pytest.mark.full
@pytest.mark.parametrize("name", REACHED)
def test_no_stored_point_exceeds_a_bound(name):
    for point in stored_points(SEARCHES[name]):
        measured, bound, printed = evaluate(SEARCHES[name], [point])[0]
        assert measured <= bound * (1 + 1e-9) and measured <= printed * (1 + 1e-9)
