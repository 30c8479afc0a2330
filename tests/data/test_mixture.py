import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manyheads as mh

ROUNDING = 1 + 1e-11  # float64 products of a rotated frame


def settings(seed):
    rng = np.random.default_rng(seed)
    M, T = int(rng.integers(1, 6)), int(rng.integers(2, 9))
    S, mu = rng.uniform(0.3, 3), rng.uniform(0, 1)
    nu = rng.uniform(0, 0.45) * M * S**2  # below M S²/2 the pattern of a noisy token can be told
    least = np.sqrt(2 * mu**2 / S**2 + nu**2 / (M * S**2))
    return dict(
        num_tokens=T,
        dim=M + 2 + int(rng.integers(0, 4)),
        num_patterns=M,
        sparsity=int(rng.integers(1, T)) / T,
        signal=S,
        noise_mu=mu,
        noise_nu=nu,
        noise_norm=least * rng.choice([1.0, 1.5]) + 1e-12,
        noise=str(rng.choice(["uniform", "vertex"])),
        positions=str(rng.choice(["random", "fixed"])),
        frame=str(rng.choice(["rotated", "axis"])),
        key=jax.random.key(seed),
    )


@given(st.integers(0, 10**6))
def test_every_almost_sure_bound_of_assumption_3_holds_for_every_sample(seed):
    mix = mh.TokenizedMixture(**settings(seed))
    data = mix.sample(40, key=jax.random.key(seed + 1))
    mu, nu = mix.patterns[:2], mix.patterns[2:]
    assert np.allclose(
        mix.patterns @ mix.patterns.T,
        mix.signal**2 * np.eye(len(mix.patterns)),
        atol=1e-12 * mix.signal**2,
    )
    assert (data.relevant.sum(1) == mix.num_relevant).all()
    signal = np.where(data.labels[:, None] > 0, mu[0], mu[1])[:, None, :]
    assert np.array_equal(
        np.where(data.relevant[..., None], data.tokens - signal, 0), np.zeros_like(data.tokens)
    )
    irrelevant = data.tokens[~data.relevant]
    z = irrelevant - nu[np.argmax(irrelevant @ nu.T, axis=1)]
    assert np.abs(z @ mu.T).max() <= mix.noise_mu * ROUNDING + 1e-12
    assert np.abs(z @ nu.T).max() <= mix.noise_nu / mix.num_patterns * ROUNDING + 1e-12
    assert np.linalg.norm(z, axis=1).max() <= mix.noise_norm * ROUNDING + 1e-12
    assert np.linalg.norm(data.tokens, axis=-1).max() <= mix.token_radius * ROUNDING


def test_vertex_noise_attains_every_bound():
    mix = mh.TokenizedMixture(
        num_tokens=4,
        dim=9,
        num_patterns=3,
        sparsity=0.5,
        signal=1.5,
        noise_mu=0.2,
        noise_nu=0.3,
        noise_norm=0.7,
        noise="vertex",
        key=jax.random.key(0),
    )
    data = mix.sample(60, key=jax.random.key(1))
    x = data.tokens[~data.relevant]
    z = x - mix.patterns[2:][np.argmax(x @ mix.patterns[2:].T, axis=1)]
    assert np.allclose(np.abs(z @ mix.patterns[:2].T), 0.2) and np.allclose(
        np.abs(z @ mix.patterns[2:].T), 0.1
    )
    assert np.allclose(np.linalg.norm(z, axis=1), 0.7)


def test_noise_has_mean_zero_and_labels_are_fair():
    mix = mh.TokenizedMixture(noise_mu=0.1, noise_nu=0.1, noise_norm=0.5, frame="axis")
    data = mix.sample(20_000, key=jax.random.key(0))
    z = data.tokens[~data.relevant] - mix.patterns[2:].mean(0)
    error = 4 * z.std(0) / np.sqrt(len(z)) + 1e-12  # four standard errors
    assert (np.abs(z.mean(0)) <= error).all()
    assert abs(data.labels.mean()) <= 4 / np.sqrt(20_000)
    assert np.abs(data.relevant.mean(0) - 0.25).max() <= 4 * np.sqrt(0.25 * 0.75 / 20_000)


def test_oracle_objects_are_the_papers():
    mix = mh.TokenizedMixture(
        num_tokens=6, dim=9, num_patterns=3, sparsity=1 / 3, signal=1.3, key=jax.random.key(3)
    )
    assert np.isclose(np.linalg.norm(mix.U_star), 1.3 * np.sqrt(12))
    assert np.isclose(np.linalg.norm(mix.W_star), 1.3**2 * np.sqrt(8))
    assert np.isclose(np.linalg.norm(mix.U_opt), 1) and np.isclose(np.linalg.norm(mix.W_opt), 1)
    plus, minus, *nus = mix.patterns
    assert np.allclose(mix.W_star.T @ plus, 1.3**2 * plus) and np.allclose(
        mix.W_star.T @ nus[0], 1.3**2 * (plus + minus)
    )


def test_the_same_key_gives_the_same_data_in_either_precision():
    mix = mh.TokenizedMixture(noise_mu=0.1, noise_nu=0.1, noise_norm=0.5, key=jax.random.key(7))
    first = mix.sample(5, key=jax.random.key(1)).tokens
    with jax.enable_x64(False):
        assert np.array_equal(mix.sample(5, key=jax.random.key(1)).tokens, first)
    assert not np.array_equal(mix.sample(5, key=jax.random.key(2)).tokens, first)


@pytest.mark.parametrize("positions", ["random", "fixed"])
def test_positions(positions):
    data = mh.TokenizedMixture(frame="axis", positions=positions).sample(50, key=jax.random.key(0))
    assert (len({row.tobytes() for row in data.relevant}) == 1) == (positions == "fixed")


@pytest.mark.parametrize(
    "wrong",
    [
        dict(signal=1.0, noise_mu=1.0, noise_norm=0.5),
        dict(signal=1.3, noise_mu=0.7, noise_nu=0.9, noise_norm=0.1),
        dict(num_tokens=7, sparsity=1.0),
        dict(num_tokens=7, sparsity=0.3),
        dict(dim=2),
        dict(dim=4),
    ],
)
def test_the_value_that_an_error_suggests_will_do(wrong):
    given = (
        dict(
            num_tokens=8,
            dim=10,
            num_patterns=4,
            sparsity=0.25,
            signal=1.5,
            noise_norm=0.0,
            frame="axis",
        )
        | wrong
    )
    with pytest.raises(ValueError) as refused:
        mh.TokenizedMixture(**given)
    suggested = re.findall(
        r"(noise_norm|sparsity|dim|num_patterns)=([0-9.e+-]*[0-9])", str(refused.value)
    )
    told = [pair for pair in suggested if float(pair[1]) != given[pair[0]]]
    assert told
    for name, value in told:
        mh.TokenizedMixture(**{**given, name: type(given[name])(value)})
