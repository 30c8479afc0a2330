"""The whole spectrum of small models, and its density by random probes."""

import jax
import mpmath
import numpy as np
import pytest
from measures.test_curvature import dense
from model.cases import random_case

import manyheads as mh


def test_multiplicities_count_every_eigenvalue_of_the_expanded_model():
    model, data = random_case(1, counts=(1, 3, 2), shape=(5, 3, 3))
    spectrum = mh.measures.loss_spectrum(model, data)
    written_out = mh.measures.loss_spectrum(mh.expand(model), data)
    assert spectrum.multiplicities.sum() == len(written_out.eigenvalues) == 6 * 18
    repeated = np.repeat(spectrum.eigenvalues, spectrum.multiplicities.astype(int))
    assert (
        np.abs(repeated - written_out.eigenvalues).max() <= spectrum.accuracy + written_out.accuracy
    )
    exact = np.linalg.eigvalsh(dense(model, data))  # by autodiff of the plain formula
    assert np.abs(repeated - exact).max() <= spectrum.accuracy
    many = mh.measures.loss_spectrum(
        mh.MultiHead(model.key_query, model.readout, np.array([3e11, 3e11, 4e11])), data
    )
    assert many.multiplicities.sum() == 18e12
    assert "18000000000000 eigenvalues" in str(many)


def linear_case(heads, seed):
    """One token of one number: the Hessian has one eigenvalue that is not zero, which 60 digits know."""
    rng = np.random.default_rng(seed)
    X, y, a = rng.uniform(0.5, 2, (3, 1, 1)), np.array([1.0, -1.0, 1.0]), 1 + rng.random()
    U = np.array(
        [a, -a * (1 + rng.uniform(0.1, 1) / np.sqrt(heads))]
    )  # two large parts of a score that cancel
    model = mh.MultiHead(np.zeros((2, 1, 1)), U.reshape(2, 1, 1), np.full(2, heads / 2))
    with mpmath.workdps(60):
        exact, number = mpmath.mpf(0), mpmath.mpf
        for x in map(number, X.ravel()):
            score = (
                x * (number(U[0]) + number(U[1])) * number(heads / 2) / mpmath.sqrt(number(heads))
            )
            exact += x**2 / (2 + mpmath.exp(score) + mpmath.exp(-score)) / 3
    return model, mh.Dataset(X, y), exact


@pytest.mark.parametrize("heads", [2, 4, 1e6, 1e12])
def test_the_accuracy_covers_the_rounding_of_the_scores(heads):
    for seed in range(8):
        model, data, exact = linear_case(heads, seed)
        spectrum, curvature = (
            mh.measures.loss_spectrum(model, data),
            mh.measures.loss_curvature(model, data),
        )
        assert abs(float(spectrum.eigenvalues[-1] - exact)) <= spectrum.accuracy
        assert abs(float(curvature.largest.value - exact)) <= curvature.largest.residual
        assert curvature.converged and spectrum.accuracy <= 4e-15 * max(heads, 1e3) ** 0.5


def mirrored_case(heads, seed):
    """Two classes that nearly cancel, on two tokens of one number; its largest eigenvalue by differences of 80 digits."""
    rng = np.random.default_rng(seed)
    w, u, near = rng.normal(), rng.normal(size=2) * 10.0 ** rng.integers(-2, 3), 1 / np.sqrt(heads)
    W, U = np.array([w, w + near * rng.normal()]), np.array([u, -u * (1 + near)])
    X, y = rng.normal(size=(3, 2)) * rng.choice([0.3, 1, 3]), (1, -1, 1)
    with mpmath.workdps(80):
        root, number = mpmath.sqrt(mpmath.mpf(heads) / 2), mpmath.mpf

        def loss(*moved):  # by how much each class as a whole is moved
            total = number(0)
            for row, label in zip(X, y, strict=True):
                x, score = [number(value) for value in row], number(0)
                for g in range(2):
                    move = [value / root for value in moved[3 * g : 3 * g + 3]]
                    for t in range(2):
                        first, second = (
                            mpmath.exp(x[t] * (number(W[g]) + move[0]) * value) for value in x
                        )
                        context = (first * x[0] + second * x[1]) / (first + second)
                        score += root / mpmath.sqrt(2) * (number(U[g, t]) + move[1 + t]) * context
                total += mpmath.log1p(mpmath.exp(-label * score)) / 3
            return total

        hessian = mpmath.matrix(6)
        for i in range(6):
            for j in range(i + 1):
                order = [int(k == i) + int(k == j) for k in range(6)]
                hessian[i, j] = hessian[j, i] = mpmath.diff(loss, [0] * 6, order)
        exact = float(max(mpmath.eigsy(hessian, eigvals_only=True)))
    model = mh.MultiHead(W.reshape(2, 1, 1), U.reshape(2, 2, 1), np.full(2, heads / 2))
    return model, mh.Dataset.from_arrays(X[:, :, None], y), exact


@pytest.mark.parametrize(("heads", "seeds"), [(4, [0]), (8e15, [5, 6, 7])])
def test_the_accuracy_covers_two_classes_that_cancel(heads, seeds):
    for seed in seeds:
        model, data, exact = mirrored_case(heads, seed)
        spectrum, curvature = (
            mh.measures.loss_spectrum(model, data),
            mh.measures.loss_curvature(model, data),
        )
        assert abs(spectrum.eigenvalues[-1] - exact) <= spectrum.accuracy
        assert abs(curvature.largest.value - exact) <= curvature.largest.residual


def test_the_accuracy_of_a_hessian_of_zero():
    """Equal tokens have no covariance, and scores of 10^4 no curvature of the loss: what is left is rounding."""
    rng = np.random.default_rng(1)
    tokens, U = np.repeat(rng.normal(size=(4, 1, 2)), 3, axis=1), 1e4 * rng.normal(size=(2, 3, 2))
    model, data = (
        mh.MultiHead(1e4 * rng.normal(size=(2, 2, 2)), U, np.ones(2)),
        mh.Dataset.from_arrays(tokens, [1, -1, 1, -1]),
    )
    assert np.abs(model.scores(data)).min() > 50  # the truth is below 1e-20
    spectrum, curvature = (
        mh.measures.loss_spectrum(model, data),
        mh.measures.loss_curvature(model, data),
    )
    assert 0 < np.abs(spectrum.eigenvalues).max() <= spectrum.accuracy < 1e-13
    for end in (curvature.smallest, curvature.largest):
        assert abs(end.value) <= end.residual < 1e-13


def test_the_density_is_that_of_the_spectrum():
    model, data = random_case(2, counts=(1, 3, 2), shape=(5, 3, 3))
    spectrum = mh.measures.loss_spectrum(model, data)
    density = mh.measures.spectral_density(
        model, data, key=jax.random.key(0), num_probes=100, num_points=101
    )
    exact = np.exp(-0.5 * ((density.grid[:, None] - spectrum.eigenvalues) / density.width) ** 2)
    exact = (
        exact
        @ spectrum.multiplicities
        / spectrum.multiplicities.sum()
        / (density.width * np.sqrt(2 * np.pi))
    )
    assert np.trapezoid(density.density, density.grid) == pytest.approx(1, abs=1e-3)
    assert abs(density.trace - spectrum.trace) <= 4 * density.trace_error
    # 101 points with 4 standard errors each, and a floor where no probe sees anything
    assert np.all(
        np.abs(density.density - exact) <= 4.5 * density.standard_error + 1e-3 * exact.max()
    )
    assert density.standard_error.max() < 0.2 * density.density.max()
    assert "spectral density" in str(density)


def test_few_distinct_eigenvalues_end_the_lanczos_early():
    # at zero with one class the Hessian has very low rank: the Krylov space is exhausted before num_products
    model = mh.zero_start(4, num_tokens=3, dim=3)
    data = random_case(3, shape=(5, 3, 3))[1]
    density = mh.measures.spectral_density(model, data, key=jax.random.key(0), num_probes=50)
    assert np.isfinite(density.density).all()
    assert (
        abs(density.trace - mh.measures.loss_spectrum(model, data).trace)
        <= 4 * density.trace_error + 1e-9
    )


def test_a_block_of_zeros_is_a_peak_at_zero():
    # with one token attention is constant: members of a class that move against each other feel nothing at all
    model, data = random_case(4, counts=(3, 2), shape=(5, 1, 3))
    density = mh.measures.spectral_density(model, data, key=jax.random.key(0), num_probes=50)
    spectrum = mh.measures.loss_spectrum(model, data)
    assert np.isfinite(density.density).all() and np.isfinite(density.standard_error).all()
    assert np.trapezoid(density.density, density.grid) == pytest.approx(1, abs=1e-3)
    assert abs(density.trace - spectrum.trace) <= 4 * density.trace_error
    share = spectrum.multiplicities[np.abs(spectrum.eigenvalues) <= spectrum.accuracy].sum() / 60
    near = np.abs(density.grid) <= 4 * density.width
    assert np.trapezoid(density.density[near], density.grid[near]) == pytest.approx(share, abs=0.05)


def test_large_models_are_sent_elsewhere():
    data = random_case(3, shape=(5, 3, 70))[1]
    with pytest.raises(ValueError, match="use spectral_density"):
        mh.measures.loss_spectrum(mh.zero_start(1, num_tokens=3, dim=70), data)
    with pytest.raises(ValueError, match="num_probes=1 must be a whole number >= 2"):
        mh.measures.spectral_density(
            mh.zero_start(1, num_tokens=3, dim=70), data, key=jax.random.key(0), num_probes=1
        )
