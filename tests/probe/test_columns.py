"""Closed forms against autodiff and finite differences, and columns against probes fitted alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyheads.data.dataset import Dataset
from manyheads.probe import columns
from manyheads.probe.lbfgs import minimize
from manyheads.probe.problem import Kind, Problem

RNG = np.random.default_rng(0)
MASK = np.ones((7, 4), bool)
MASK[2, 3:], MASK[4, 1:] = False, False
FEATURES = RNG.normal(size=(7, 4, 3)) * MASK[:, :, None]
FEATURES[:, :, -1] = 0.5 * MASK


def problem(decoder, labels, width=2):
    codes = np.arange(7) % labels
    return Problem.of(Kind(decoder, 2, 1.0, False), FEATURES, MASK, codes, labels, width), codes


def value(made, theta, weight, penalty):
    if made.kind.decoder == "query":
        return columns.evaluate(theta, made.shape, made.pieces, weight, penalty)
    return made.pieces.evaluate(theta, weight, penalty)


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("decoder", ["query", "pooled", "full", "last"])
def test_loss_and_gradient_are_those_of_the_model(decoder, labels):
    made, codes = problem(decoder, labels)
    weight, penalty = RNG.random((2, 7)), np.array([0.01, 0.1])
    theta = 0.5 * RNG.normal(size=(2, len(made.start())))
    found, gradient = value(made, theta, weight, penalty)
    data = Dataset(FEATURES, np.where(codes > 0, 1.0, -1.0), MASK)
    for k in range(2):
        scores = made.model(theta[k]).scores(data).reshape(7, -1)
        assert np.allclose(scores, made.scores(theta)[k], atol=1e-12)
        if labels == 2:
            scores = np.concatenate([0 * scores, scores], axis=1)
        logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        loss = -np.sum(weight[k] * logs[np.arange(7), codes]) + penalty[k] * np.sum(theta[k] ** 2)
        assert np.isclose(found[k], loss, rtol=1e-12)
    move, size = RNG.normal(size=theta.shape), 1e-6
    up, down = (value(made, theta + s * size * move, weight, penalty)[0] for s in (1, -1))
    slope = np.sum(gradient * move, axis=1)
    assert np.allclose((up - down) / (2 * size), slope, rtol=1e-7, atol=1e-8)


def test_numpy_and_jax_compute_the_same():
    made, codes = problem("query", 3)
    theta = RNG.normal(size=(2, made.shape.size))
    weight = RNG.random((2, 7))
    chunk = columns.Chunk(np.arange(7), FEATURES, MASK, codes)
    ours = columns.chunk_terms(theta, made.shape, chunk, weight, np)
    with jax.enable_x64(True):
        theirs = columns.chunk_terms(jnp.asarray(theta), made.shape, chunk, weight, jnp)
    assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


def test_columns_that_share_every_read_end_where_probes_fitted_alone_do():
    made, _ = problem("query", 3, width=3)
    folds = np.array([[1, 1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1]]) / 6.0
    penalty = np.array([1e-2, 1e-3, 1e-1])
    start = np.tile(made.start(), (3, 1))
    together = made.minimize(start, folds, penalty, steps=200)
    for k in range(3):
        alone = made.minimize(start[:1], folds[k : k + 1], penalty[k : k + 1], steps=200)
        assert np.isclose(together.value[k], alone.value[0], rtol=1e-6)
        assert np.allclose(together.theta[k], alone.theta[0], atol=1e-3)


def test_a_fold_of_weight_zero_has_no_part_in_its_column():
    made, codes = problem("query", 2)
    theta = RNG.normal(size=(1, made.shape.size))
    weight = np.array([[1.0, 1, 1, 1, 1, 1, 0]])
    turned = columns.cut(FEATURES, MASK, np.where(np.arange(7) == 6, 1 - codes, codes), 2)
    one = columns.evaluate(theta, made.shape, made.pieces, weight, np.zeros(1))
    other = columns.evaluate(theta, made.shape, turned, weight, np.zeros(1))
    assert one[0] == other[0] and np.array_equal(one[1], other[1])


def test_the_descent_finds_the_minimum_of_quadratics_of_any_condition():
    sizes = np.array([np.ones(4), np.geomspace(1, 1e4, 4)])
    found = minimize(
        lambda theta, which: (
            0.5 * np.sum(sizes[which] * (theta - 1) ** 2, axis=1),
            sizes[which] * (theta - 1),
        ),
        np.zeros((2, 4)),
        steps=100,
        tolerance=1e-9,
        change=0.0,
    )
    assert np.allclose(found.theta, 1.0, atol=1e-8) and found.steps[0] < found.steps[1]
