"""Formulas of the mixture against measurements that share no algebra with them."""

import math

import jax
import numpy as np
import pytest
import scipy.optimize

from manyheads.data.mixture import TokenizedMixture
from manyheads.theory.deora2023 import expressivity
from manyheads.theory.deora2023 import mixture as section
from manyheads.theory.deora2023.expressivity import (
    attention_margin,
    logit_gap,
    sharpness,
    softmax_logits,
)
from manyheads.theory.deora2023.mixture import (
    first_phase_bounds,
    first_phase_error,
    first_phase_margin,
    linear_margin,
    measured_first_phase_error,
    printed_first_phase_error,
    printed_margin,
)
from manyheads.theory.finding import Effort
from manyheads.theory.targets import mixture_direction, tangent_margins
from manyheads.theory.verdict import Verdict
from manyheads.training.start import first_phase, population_first_phase


def mixture(**changes):
    plain = {
        "num_tokens": 8,
        "dim": 10,
        "num_patterns": 4,
        "sparsity": 0.25,
        "signal": 1.5,
        "key": jax.random.key(3),
    }
    return TokenizedMixture(**{**plain, **changes})


NOISE = {"noise_mu": 0.1, "noise_nu": 0.1, "noise_norm": 0.5}


def margin_by_autodiff(m, start, data):
    """y⟨∇Φ̃, θ_*⟩ by automatic differentiation of the plain formula, head by head."""
    signs = np.where(np.einsum("gtd,td->g", start.readout, m.U_opt) >= 0, 1.0, -1.0)

    def along(s, X):
        moved = start.replace_heads(
            start.heads._replace(
                readout=start.readout + s * m.U_opt[None] / math.sqrt(start.num_heads),
                key_query=start.key_query
                + s * signs[:, None, None] * m.W_opt[None] / math.sqrt(start.num_heads),
            )
        )
        return moved(X)

    return data.labels * np.asarray(
        jax.jit(jax.vmap(lambda X: jax.grad(along)(0.0, X)))(data.tokens)
    )


def test_without_noise_the_margin_is_exact():
    m = mixture()
    data = m.sample(20, key=jax.random.key(0))
    start = population_first_phase(m, 2)
    measured = margin_by_autodiff(m, start, data)
    np.testing.assert_allclose(measured, first_phase_margin(m), rtol=1e-12)
    np.testing.assert_allclose(measured, printed_margin(m), rtol=1e-12)
    np.testing.assert_allclose(
        tangent_margins(mixture_direction(start, m), start, data), measured, rtol=1e-12
    )


@pytest.mark.parametrize("noise", ["uniform", "vertex"])
def test_ours_lies_between_the_print_and_the_measured_margin(noise):
    m = mixture(**NOISE, noise=noise)
    data, fresh = m.sample(60, key=jax.random.key(0)), m.sample(2000, key=jax.random.key(1))
    start = first_phase(fresh, 6, signs="rademacher", key=jax.random.key(2))
    error = measured_first_phase_error(m, fresh.tokens, fresh.labels)
    measured = margin_by_autodiff(m, start, data).min()
    assert printed_margin(m, error) < first_phase_margin(m, error) <= measured


def test_first_phase_error_is_the_residual_of_the_start():
    m = mixture(**NOISE)
    fresh = m.sample(300, key=jax.random.key(1))
    start = first_phase(fresh, 1)
    residual = start.readout[0, 0] - m.sparsity / 4 * m.u_star
    assert (
        abs(np.linalg.norm(residual) - measured_first_phase_error(m, fresh.tokens, fresh.labels))
        < 1e-14
    )
    for failure in (0.5, 1e-3):
        assert (
            np.linalg.norm(residual)
            <= first_phase_error(m, 300, failure)
            <= printed_first_phase_error(m, 10, 300, failure)
        )


def test_first_phase_bounds_cover_every_sign_pattern():
    m = mixture(**NOISE)
    data, fresh = m.sample(40, key=jax.random.key(0)), m.sample(100, key=jax.random.key(1))
    error = measured_first_phase_error(m, fresh.tokens, fresh.labels)
    bounds = first_phase_bounds(m, error, num_examples=40, failure=0.05)
    outside = 0
    for k in range(200):
        start = first_phase(fresh, 8, signs="rademacher", key=jax.random.key(k))
        assert (
            np.linalg.norm(start.readout.reshape(start.num_classes, -1), axis=1).max()
            <= bounds.parameter_bound
        )
        outside += np.abs(start.scores(data)).max() > bounds.model_bound
    assert outside <= 0.05 * 200


def test_logits_and_their_gap():
    m = mixture(**NOISE, noise="vertex")
    data = m.sample(30, key=jax.random.key(0))
    for X, relevant, y in zip(data.tokens, data.relevant, data.labels, strict=True):
        direct = np.array([[x @ m.W_star @ z for z in X] for x in X])
        np.testing.assert_allclose(softmax_logits(m, X, relevant, y), direct, atol=1e-12)
        assert (direct[:, relevant].min(1) - direct[:, ~relevant].max(1)).min() >= logit_gap(
            m
        ) - 1e-12


@pytest.mark.parametrize("mass", [0.4, 0.01, 1e-6])
def test_sharp_attention_leaves_at_most_the_mass(mass):
    m = mixture(**NOISE, noise="vertex")
    data = m.sample(30, key=jax.random.key(0))
    from manyheads.model.attention import MultiHead

    model = MultiHead.create(sharpness(m, mass) * m.W_opt[None], m.U_opt[None])
    for X, relevant in zip(data.tokens, data.relevant, strict=True):
        assert np.asarray(model.attention(X))[0][:, ~relevant].sum(1).max() <= mass * (1 + 1e-9)
    assert (data.labels * model.scores(data)).min() >= attention_margin(m, mass)
    assert sharpness(m, mass) < sharpness(m, mass, printed=True)


def test_sharpness_is_never_negative():
    assert sharpness(mixture(sparsity=0.75), 0.9) == 0.0
    assert sharpness(mixture(sparsity=0.75), 0.9, printed=True) < 0


def test_limits_of_the_formulas_are_refused():
    loud = mixture(noise_mu=0.7, noise_nu=0.7, noise_norm=1.0)
    with pytest.raises(ValueError, match="above 1/4"):
        first_phase_margin(loud)
    with pytest.raises(ValueError, match="above 1/8"):
        sharpness(loud, 0.1)
    with pytest.raises(ValueError, match="above 1/2"):
        logit_gap(mixture(noise_mu=1.2, noise_nu=1.2, noise_norm=2.0))


def test_golden_values():
    """Margins of Section 5.1 for three noise-free mixtures, to five digits."""
    values = [
        first_phase_margin(mixture(signal=1.5, sparsity=0.25)),
        linear_margin(mixture(signal=2.0, sparsity=0.25)),
        attention_margin(mixture(signal=3.0)),
    ]
    np.testing.assert_allclose(values, [0.9000846, 1.0, 6.0], rtol=1e-6)


def test_the_logit_gap_breaks_when_raised_by_one_percent(monkeypatch):
    honest = expressivity.logit_gap
    monkeypatch.setattr(expressivity, "logit_gap", lambda mixture: 1.01 * honest(mixture))
    assert expressivity.check_logits(Effort()).verdict is Verdict.VIOLATED


def test_the_margin_formula_breaks_when_raised_by_one_percent(monkeypatch):
    honest = section.first_phase_margin
    monkeypatch.setattr(section, "first_phase_margin", lambda *a: 1.01 * honest(*a))
    assert section.check_proposition_2(Effort()).verdict is Verdict.VIOLATED


def test_the_linear_program_of_section_53_is_feasible_without_saturation(monkeypatch):
    """The impossibility comes from saturation: without it exponents exist, so the check is not empty."""
    honest = scipy.optimize.linprog
    assert not expressivity._feasible(True, 0.5)

    def without(c, A_ub, b_ub, bounds):
        return honest(c, A_ub=np.delete(A_ub, 1, 0), b_ub=np.delete(b_ub, 1), bounds=bounds)

    monkeypatch.setattr(scipy.optimize, "linprog", without)
    assert expressivity._feasible(True, 0.5)


def test_the_formula_says_something_from_about_20_000_first_phase_sequences_on():
    """What docs/theory/mixture.md says of the default mixture; before, P3 holds in fact and the formula is negative."""
    m = TokenizedMixture(key=jax.random.key(0))
    signs = [
        first_phase_margin(m, first_phase_error(m, n, 0.05)) > 0 for n in (200, 19_000, 21_000)
    ]
    assert signs == [False, False, True]
    assert printed_margin(m, first_phase_error(m, 10**6, 0.05)) < 0
    start, data = (
        first_phase(m.sample(200, key=jax.random.key(1)), 8),
        m.sample(100, key=jax.random.key(2)),
    )
    assert tangent_margins(mixture_direction(start, m), start, data).min() > 1.4
