import numpy as np
import pytest

from manyheads.estimator.sequences import Layout, as_sequences

RNG = np.random.default_rng(0)
X = 3 * RNG.standard_normal((20, 5, 3)) + 1
EVEN = np.ones(20)


def layout(
    scale="rms", positions="none", intercept=False, any_length=False, weight=EVEN, mask=None
):
    return Layout.measured(
        X,
        mask,
        weight,
        scale=scale,
        positions=positions,
        intercept=intercept,
        any_length=any_length,
    )


def test_scales():
    rms = layout().dataset(X, None).tokens
    assert np.isclose((rms**2).sum(-1).mean(), 1) and np.allclose(
        rms / rms[0, 0, 0], X / X[0, 0, 0]
    )
    standard = layout("standard").dataset(X, None).tokens
    assert np.allclose(standard.mean((0, 1)), 0) and np.allclose(standard.var((0, 1)), 1 / 3)
    assert np.array_equal(layout("none").dataset(X, None).tokens, X)


def test_scales_look_at_real_tokens_of_their_weight_only():
    mask = np.ones((20, 5), bool)
    mask[:, 3:] = False
    weight = np.where(np.arange(20) < 8, 1.0, 0.0)
    expected = np.sqrt((X[:8, :3] ** 2).sum(-1).mean())
    assert np.allclose(layout(weight=weight, mask=mask).spread, expected)


def test_positions_and_the_constant_are_features_after_the_tokens():
    tokens = layout("none", "one-hot", intercept=True).dataset(X, None).tokens
    assert np.array_equal(tokens[:, :, 3], np.ones((20, 5)))
    assert np.array_equal(tokens[4, :, 4:], np.eye(5))
    waves = (
        layout("none", "sinusoidal", any_length=True)
        .dataset(np.zeros((2, 9, 3)), None)
        .tokens[0, :, 3:]
    )
    assert waves.shape == (9, 8) and np.allclose((waves**2).sum(1), 1)
    apart = np.linalg.norm(waves[:, None] - waves[None], axis=-1) + 9 * np.eye(9)
    assert apart.min() > 0.1  # places can be told apart


def test_shorter_sequences_are_padded_and_masked():
    data = layout(positions="one-hot").dataset(X[:2, :3], None)
    assert data.tokens.shape == (2, 5, 8) and data.mask.tolist() == [[True] * 3 + [False] * 2] * 2
    assert not data.tokens[:, 3:].any()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((2, 0, 3)), r"X has shape \(2, 0, 3\)"),
        (np.zeros((2, 2, 2, 2)), r"X has shape \(2, 2, 2, 2\); pass an array"),
        (["ab", "c"], "X must be real numbers"),
        ([np.zeros((2, 3)), np.zeros(3)], r"X\[1\] has shape \(3,\)"),
    ],
)
def test_what_is_no_sequence_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        as_sequences(given)


def test_a_table_is_sequences_of_one_token():
    tokens, mask = as_sequences(np.zeros((7, 3)))
    assert tokens.shape == (7, 1, 3) and mask is None
