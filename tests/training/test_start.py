import jax
import numpy as np
import pytest

import manyheads as mh

MIX = dict(
    num_tokens=8,
    dim=10,
    num_patterns=4,
    sparsity=0.25,
    signal=1.5,
    noise_mu=0.1,
    noise_nu=0.1,
    noise_norm=0.4,
)


def mixture():
    return mh.TokenizedMixture(**MIX, key=jax.random.key(0))


def test_first_phase_is_the_formula_of_lemma_2():
    data = mixture().sample(50, key=jax.random.key(1))
    model = mh.first_phase(data, 5, signs="uniform", interval=(-2, 3), key=jax.random.key(2))
    mean = (data.labels[:, None] * data.tokens.mean(1)).mean(0)
    alphas = model.readout[:, 0, 0] / (0.5 * mean[0])
    assert model.num_classes == 5 and (alphas > -2).all() and (alphas < 3).all()
    want = 0.5 * alphas[:, None, None] * np.tile(mean, (8, 1))
    assert np.abs(model.readout - want).max() <= 1e-14 and np.abs(model.key_query).max() <= 1e-14


def test_a_head_of_either_sign_has_half_the_mean_of_y_times_the_mean_token():
    data = mixture().sample(50, key=jax.random.key(1))
    model = mh.first_phase(data, 6)
    by_hand = np.zeros(10)
    for tokens, label in zip(data.tokens, data.labels, strict=True):
        by_hand += label * tokens.mean(0) / 50
    assert model.multiplicity.tolist() == [3, 3] and not model.key_query.any()
    for alpha, readout in zip((1, -1), model.readout, strict=True):
        assert np.abs(readout - alpha / 2 * np.tile(by_hand, (8, 1))).max() <= 1e-14


def test_population_start_has_the_coefficient_zeta_over_4_not_zeta_over_2():
    mix = mixture()
    model = mh.training.population_first_phase(mix, 2)
    assert np.array_equal(model.readout[0], 0.25 / 4 * mix.U_star) and not model.key_query.any()
    assert np.array_equal(model.readout[1], -model.readout[0])


def test_sampled_start_approaches_the_population_as_one_over_root_n1():
    mix = mixture()
    target = mh.training.population_first_phase(mix, 1).readout[0, 0]
    sizes, errors = (100, 1_600, 25_600), []
    for n1 in sizes:
        starts = [
            mh.first_phase(mix.sample(n1, key=jax.random.key(i)), 1).readout[0, 0] for i in range(6)
        ]
        errors.append(np.sqrt(np.mean([np.sum((u - target) ** 2) for u in starts])))
        # E|p|^2 of math: at most (S + (1 - zeta) Z)^2 / (4 n1); the printed zeta/2 would leave |zeta/4 u_*| = .13
        assert errors[-1] <= (1.5 + 0.75 * 0.4) / (2 * np.sqrt(n1)) * 1.5
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.65 < slope < -0.35


@pytest.mark.parametrize(
    ("heads", "counts"),
    [(1, [1]), (2, [1, 1]), (7, [4, 3]), (1e12, [5e11, 5e11]), (9e15, [45e14, 45e14])],
)
def test_balanced_signs(heads, counts):
    assert mh.training.population_first_phase(mixture(), heads).multiplicity.tolist() == counts


def test_rademacher_signs_are_a_fair_binomial():
    draws = [
        mh.training.population_first_phase(
            mixture(), 10**6, signs="rademacher", key=jax.random.key(i)
        )
        for i in range(40)
    ]
    plus = np.array([model.multiplicity[0] for model in draws])
    assert all(model.num_heads == 10**6 for model in draws)
    assert abs(plus.mean() - 5e5) <= 4 * 500 / np.sqrt(40) and 300 < plus.std() < 750


def test_gaussian_scales_are_root_mean_square_norms():
    sizes = dict(num_tokens=5, dim=6, key=jax.random.key(0), key_query_scale=2.0, readout_scale=3.0)
    for model in (mh.gaussian_start(4000, **sizes), mh.gaussian_start(4000, rank=2, **sizes)):
        W = (
            model.key_query
            if not isinstance(model.key_query, tuple)
            else np.einsum("hdr,her->hde", *model.key_query)
        )
        assert np.isclose(np.mean(np.sum(W**2, (1, 2))), 4, rtol=0.06)
        assert np.isclose(np.mean(np.sum(model.readout**2, (1, 2))), 9, rtol=0.03)


@pytest.mark.parametrize("decoder", ["full", "pooled", "last"])
def test_first_phase_is_one_gradient_step_for_every_decoder(decoder):
    data = mixture().sample(20, key=jax.random.key(4))
    zero = mh.zero_start(1, num_tokens=8, dim=10, decoder=decoder)
    step = mh.train(zero, data, rule=mh.GD(1.0), num_steps=1, dtype="float64").final
    start = mh.first_phase(data, 2, decoder=decoder)
    assert np.allclose(start.readout[0], step.readout[0], atol=1e-15)
    assert np.allclose(start.readout[1], -step.readout[0], atol=1e-15)


def test_more_heads_than_a_number_can_be_are_refused_in_words():
    with pytest.raises(ValueError, match="must be a whole number from 1 to"):
        mh.zero_start(10**400, num_tokens=2, dim=3)
