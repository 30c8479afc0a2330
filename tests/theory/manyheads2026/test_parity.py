"""Theorems P and Q: the fewest heads for parity, and how small its margin is."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026 import parity
from manyheads.theory.manyheads2026.parity import (
    count_parity,
    count_value,
    heads_bound,
    parity_heads,
)


def test_a_head_splits_into_its_odd_and_its_even_part():
    """Equation (P), exactly, at rational preferences and counts."""

    def phi(c, rho, w):
        return (rho - Fraction(1, 2)) * (1 - 2 * (c - 1) / (w + c + 1 / c))

    def psi(c, w):
        return (1 + c) / (w + c + 1 / c)

    T = 7
    for c, other in [
        (Fraction(3, 7), Fraction(5)),
        (Fraction(9), Fraction(1, 4)),
        (Fraction(1), Fraction(2, 3)),
    ]:
        for r in range(1, T):
            rho, d = Fraction(r, T), 1 / other
            w = 1 / (rho * (1 - rho)) - 2
            parts = (phi(c, rho, w) + phi(d, rho, w) + psi(d, w) - psi(c, w)) / 2
            assert count_value(c, other, r, T) - Fraction(1, 2) == parts


@pytest.mark.parametrize("tokens", range(3, 13))
def test_half_as_many_heads_as_tokens_fit_parity_exactly(tokens):
    heads = parity_heads(tokens)
    assert len(heads.weights) == tokens // 2 == heads_bound(tokens)
    assert all(isinstance(value, Fraction) for value in heads.values())
    assert [value > 0 for value in heads.values()] == [
        (tokens - r) % 2 == 0 for r in range(tokens + 1)
    ]
    if tokens % 2:
        assert all(a > 0 for a in heads.weights) and all(
            c * d == 1 for c, d in zip(heads.first, heads.second, strict=True)
        )


@pytest.mark.full
@pytest.mark.parametrize("tokens", range(13, parity.LONGEST + 1))
def test_half_as_many_heads_as_tokens_fit_long_sequences_exactly(tokens):
    assert parity_heads(tokens).fits and len(parity_heads(tokens).weights) == tokens // 2


@pytest.mark.parametrize("tokens", [3, 4, 5, 6, 7])
def test_the_model_itself_fits_with_so_few_heads(tokens):
    heads, data = parity_heads(tokens), count_parity(tokens)
    scores = heads.model().scores(data)
    assert np.all(scores * data.labels > 0)
    count = (data.tokens[:, :, 0] > 0).sum(axis=1)
    wanted = np.array(heads.values(), float)[count]
    # float64: every head rounds its share of the score
    np.testing.assert_allclose(
        scores, wanted, rtol=0, atol=1e-13 * float(sum(map(abs, heads.weights)))
    )


def test_the_bound_says_two_heads_for_two_tokens_and_half_beyond():
    assert [heads_bound(t) for t in range(1, 10)] == [1, 2, 1, 2, 2, 3, 3, 4, 4]
    with pytest.raises(ValueError, match="num_tokens=2.*3"):
        parity_heads(2)


def best_margin(tokens, preferences):
    """The largest margin with these heads if the sum of their weights is 1; a linear program, offset free."""
    y = (-1.0) ** np.arange(tokens + 1)
    F = np.array(
        [[count_value(c, d, r, tokens) for c, d in preferences] for r in range(tokens + 1)]
    )
    rows = y[:, None] * np.concatenate([np.ones((tokens + 1, 1)), F, -F], axis=1)
    cost = np.r_[0.0, np.ones(2 * F.shape[1])]
    limits = [(None, None)] + [(0, None)] * (2 * F.shape[1])
    return (
        1 / linprog(cost, A_ub=-rows, b_ub=-np.ones(tokens + 1), bounds=limits, method="highs").fun
    )


# Logarithms of c and c' of the best heads that a search has found; for odd lengths c' = 1/c.
BEST = {
    3: [(30.0, -30.0)],
    4: [(0.83, -30.0), (30.0, -0.83)],
    5: [(30.0, -30.0), (-0.88, 0.88)],
    6: [(3.8, -9.12), (6.12, 5.12), (-0.85, 0.27)],
    7: [(0.52, -0.52), (-1.65, 1.65), (-3.66, 3.66)],
}


def test_the_margin_shrinks_exponentially_for_any_number_of_heads(capsys):
    """No more than Theorem Q allows, and by a factor of more than four per token."""
    ladder = [1e-12, *np.exp(np.linspace(-4, 4, 17)), 1e12]
    many = [(c, d) for c in ladder for d in ladder]
    most = {t: best_margin(t, many) for t in range(3, 8)}
    fewest = {t: best_margin(t, np.exp(BEST[t]).tolist()) for t in most}
    for t in most:
        assert len(BEST[t]) == heads_bound(t)
        assert (
            0 < float(parity_heads(t).margin) <= fewest[t] <= 1.1 * most[t]
        )  # the ladder of `many` is coarse
        assert max(fewest[t], most[t]) <= parity.alternating_bound(t) / 2.0**t
    rate = (most[3] / most[7]) ** (1 / 4)
    with capsys.disabled():
        print(
            f" [{rate:.2f} per token]",
            *(f"[{t}: {fewest[t]:.2g} {most[t]:.2g}]" for t in most),
            end=" ",
        )
    assert rate > 4


@pytest.mark.parametrize("tokens", [2, 4, 5, 6])
def test_one_head_attains_the_mean_score_of_theorem_q(tokens):
    far = Fraction(10) ** 30
    heads = parity.CountHeads(
        tokens, (far,), (1 / far if tokens % 2 else far,), (Fraction(-1),), Fraction(1, 2)
    )
    model, data = heads.model(), count_parity(tokens)
    mean = np.mean(data.labels * model.scores(data))
    bound = parity.score_bound(
        float(np.linalg.norm(model.readout - model.readout.mean(axis=2, keepdims=True))), tokens, 2
    )
    assert abs(mean) == pytest.approx(bound, rel=1e-12)
    exact = sum(math.comb(tokens, r) * (-1) ** r * value for r, value in enumerate(heads.values()))
    assert abs(mean) == pytest.approx(float(abs(exact)) / 2**tokens, rel=1e-12)


def test_a_smaller_bound_is_caught(monkeypatch):
    """One head fewer than the theorem says, or a count of zeros that is too small, breaks the check."""
    assert parity.check_heads(Effort(seed=1)).verdict.name == "HOLDS"
    whole = parity.parity_heads
    monkeypatch.setattr(parity, "parity_heads", lambda T: whole(max(T - 1, 3)))
    assert parity.check_heads(Effort(seed=1)).verdict.name == "VIOLATED"


def test_interpolating_heads_never_change_signs_too_often():
    rng = np.random.default_rng(3)
    changes = [parity.sign_changes(parity._interpolated(8, 2, rng)) for _ in range(60)]
    assert 2 <= min(changes) and max(changes) <= 5


def test_theorem_q_holds_along_a_run():
    tally = Tally()
    parity.add_run(tally, 4, 2, seed=5)
    assert tally.trials > 20 and tally.broken == 0
