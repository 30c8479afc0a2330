import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import optimize

from manyheads.model.loss import LOSSES, Loss, get_loss

MARGINS = jnp.concatenate([jnp.linspace(-60, 60, 4001), jnp.array([-1e4, 1e4, 0.0])])


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_slope_and_curvature_are_derivatives(loss):
    slope = jax.vmap(jax.grad(loss.value))(MARGINS)
    curvature = jax.vmap(jax.grad(jax.grad(loss.value)))(MARGINS)
    assert np.allclose(loss.slope(MARGINS), slope, rtol=1e-9, atol=1e-14)
    assert np.allclose(loss.curvature(MARGINS), curvature, rtol=1e-7, atol=1e-13)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_constants_hold_everywhere(loss):
    value, slope, curvature = loss.value(MARGINS), loss.slope(MARGINS), loss.curvature(MARGINS)
    assert (value > 0).all() or loss.name == "logistic" and (value[MARGINS < 700] > 0).all()
    assert (slope <= 0).all() and (curvature >= 0).all()
    assert (jnp.abs(slope) <= loss.lipschitz).all()
    assert (curvature <= loss.smoothness * (1 + 1e-15)).all()
    assert (jnp.abs(slope) <= loss.self_bound * value * (1 + 1e-12)).all()


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_constants_are_the_best_ones(loss):
    def largest(ratio):
        ranges = ((-600, -1), (-2, 2), (1, 600))
        results = [
            optimize.minimize_scalar(lambda m: -float(ratio(m)), bounds=b, method="bounded")
            for b in ranges
        ]
        return -min(result.fun for result in results)

    assert largest(lambda m: -loss.slope(m)) >= 0.99 * loss.lipschitz
    assert largest(loss.curvature) >= 0.999 * loss.smoothness
    assert largest(lambda m: -loss.slope(m) / loss.value(m)) >= 0.99 * loss.self_bound


def test_large_margins_keep_their_digits():
    m = np.array([20.0, 100.0, 1e6])
    assert np.allclose(get_loss("logistic").value(m), np.exp(-m), rtol=1e-8)
    assert np.allclose(get_loss("hyperbolic").value(m), 1 / (2 * m), rtol=1e-3)


def test_a_loss_of_ones_own_is_found_by_its_name(monkeypatch):
    squared = Loss(
        "squared hinge",
        lambda m: jnp.maximum(1 - m, 0) ** 2,
        jnp.asarray,
        jnp.asarray,
        1.0,
        2.0,
        1.0,
    )
    monkeypatch.setitem(LOSSES, squared.name, squared)
    assert get_loss("squared hinge") is squared
    monkeypatch.undo()
    with pytest.raises(
        ValueError,
        match="loss='squared hinge' must be 'logistic', 'hyperbolic' or a Loss",
    ):
        get_loss("squared hinge")


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_logarithms_are_exact_where_the_loss_underflows(loss):
    margins = [-50.0, -3.0, -0.54, 0.0, 1.0, 14.999, 15.001, 36.0, 50.0, 700.0, 760.0, 1e4]
    with mpmath.workdps(6000), jax.enable_x64(True):
        for m in map(mpmath.mpf, margins):
            root = mpmath.sqrt(1 + m * m)
            value = mpmath.log(1 + mpmath.exp(-m)) if loss.name == "logistic" else root - m
            slope = 1 / (1 + mpmath.exp(m)) if loss.name == "logistic" else (root - m) / root
            for found, exact in ((loss.log_value, value), (loss.log_slope, slope)):
                want = mpmath.log(exact)
                assert abs(float(found(jnp.asarray(float(m)))) - want) <= 4e-16 * max(
                    1, abs(want)
                ), float(m)
