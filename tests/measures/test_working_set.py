"""Margins by a working set: against the direct solver, and against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import manyheads as mh
from manyheads.measures import margin, working_set
from manyheads.measures import tangent_features as tangent
from manyheads.measures.margin import hard_margin
from manyheads.measures.tangent_features import tangent_margin


@pytest.fixture(autouse=True)
def small_sets(monkeypatch):
    """Working sets begin with four features and grow by a few, so that small problems take several rounds."""
    monkeypatch.setattr(working_set, "FIRST", 4)
    monkeypatch.setattr(working_set, "LEAST_ADDED", 3)


def grown(monkeypatch, y, G):
    with monkeypatch.context() as patch:
        patch.setattr(margin, "MOST_DIRECT", 0)
        return hard_margin(y, features=G)


def problem(rng, kind):
    n, p = int(rng.integers(5, 80)), int(rng.choice([2, 3, 8, 40, 120]))
    G = rng.standard_normal((n, p))
    y = np.sign(G[:, 0])
    if kind == "duplicates":
        G, y = np.tile(G, (2, 1)), np.tile(y, 2)
    elif kind == "barely":
        G[:, 1:] *= 30.0
    elif kind == "one class":
        G, y = np.abs(G), np.ones(n)
    elif kind == "norms":
        G = G * 10.0 ** rng.uniform(-2, 2, (n, 1))
    elif kind == "inseparable":
        G = np.concatenate([G, -G])
        y = np.concatenate([y, y])  # opposite features of one label
    elif kind == "zero":
        G[n // 2] = 0.0
    return G, y


KINDS = ("separable", "barely", "duplicates", "one class", "norms", "inseparable", "zero")


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_is_that_of_the_direct_solver(kind, monkeypatch):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(12):
        G, y = problem(rng, kind)
        direct, ours = hard_margin(y, features=G), grown(monkeypatch, y, G)
        assert ours.verdict == direct.verdict and ours.converged == direct.converged
        assert max(ours.lower, direct.lower) <= min(
            ours.upper, direct.upper
        )  # one margin lies in both
        assert ours.scale == pytest.approx(direct.scale, rel=1e-14)
        assert len(ours.weights) == len(y) and (ours.weights >= 0).all()


@pytest.mark.parametrize("order", ["by margin", "against it", "by label", "hardest last"])
def test_the_order_of_the_features_does_not_matter(order, monkeypatch):
    rng = np.random.default_rng(5)
    G = rng.standard_normal((300, 6))
    y = np.sign(G[:, 0])
    G[:, 0] += y
    direct = hard_margin(y, features=G)
    products = y * (G @ direct.direction)
    places = {
        "by margin": products,
        "against it": -products,
        "by label": y,
        "hardest last": -direct.weights,
    }
    sort = np.argsort(places[order], kind="stable")
    ours = grown(monkeypatch, y[sort], G[sort])
    assert ours.converged and max(ours.lower, direct.lower) <= min(ours.upper, direct.upper)


def test_both_ends_are_proved_in_rational_arithmetic(monkeypatch):
    rng = np.random.default_rng(6)
    G, y = problem(rng, "norms")
    found = grown(monkeypatch, y, G)
    rows = [[Fraction(float(v) * s) for v in row] for row, s in zip(G, y, strict=True)]
    lam, w = ([Fraction(float(v)) for v in array] for array in (found.weights, found.direction))
    point = [sum(m * row[k] for m, row in zip(lam, rows, strict=True)) for k in range(G.shape[1])]
    assert sum(v * v for v in point) <= (Fraction(found.upper) * sum(lam)) ** 2
    least = min(sum(a * b for a, b in zip(row, w, strict=True)) for row in rows)
    assert least > 0 and least**2 >= Fraction(found.lower) ** 2 * sum(v * v for v in w)


def test_a_set_that_may_not_grow_still_proves_an_interval(monkeypatch):
    rng = np.random.default_rng(7)
    G = rng.standard_normal((200, 40))
    y = np.sign(G[:, 0])
    G[:, 0] += y
    monkeypatch.setattr(margin, "LARGEST_SET", 12)
    direct, ours = hard_margin(y, features=G), grown(monkeypatch, y, G)
    assert not ours.converged and np.count_nonzero(ours.weights) <= 12
    assert ours.lower <= direct.upper and direct.lower <= ours.upper


@pytest.fixture(scope="module")
def mixture():
    task = mh.TokenizedMixture(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, signal=2.0, key=0)
    return task, task.sample(120, key=1)


def starts(task):
    yield mh.first_phase(task.sample(60, key=2), num_heads=10**6)
    yield mh.gaussian_start(3, num_tokens=4, dim=6, decoder="pooled", key=3)


def test_the_tangent_margin_is_that_of_the_kernel(mixture, monkeypatch):
    task, data = mixture
    monkeypatch.setattr(tangent, "AT_ONCE", 5)
    for start in starts(task):
        kernel = mh.measures.tangent_kernel(start, data)
        direct = hard_margin(data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy)
        same = tangent_margin(start, data)
        assert (same.lower, same.upper) == (
            direct.lower,
            direct.upper,
        )  # few sequences: the same bits
        with monkeypatch.context() as patch:
            patch.setattr(tangent, "MOST_DIRECT", 0)
            told = []
            ours = tangent_margin(start, data, progress=told.append)
        assert ours.converged and len(told) > 1
        assert max(ours.lower, direct.lower) <= min(ours.upper, direct.upper)
        a = (
            ours.direction * data.labels
        )  # the direction has length one and the margin on every sequence
        np.testing.assert_allclose(a @ kernel.matrix @ a, 1.0, rtol=1e-9)
        assert np.min(data.labels * (kernel.matrix @ a)) >= ours.lower * (1 - 1e-9)


def test_random_labels_are_refuted(mixture, monkeypatch):
    task, data = mixture
    monkeypatch.setattr(tangent, "MOST_DIRECT", 0)
    noisy = mh.Dataset.from_arrays(
        np.concatenate([data.tokens, data.tokens]), np.concatenate([data.labels, -data.labels])
    )
    found = tangent_margin(mh.gaussian_start(3, num_tokens=4, dim=6, key=3), noisy)
    assert found.verdict == "not separable"


def test_too_little_memory_is_answered(mixture, monkeypatch):
    monkeypatch.setattr(tangent, "MOST_DIRECT", 0)
    with pytest.raises(ValueError, match="is too little for 120 sequences; pass"):
        tangent_margin(mh.zero_start(1, num_tokens=4, dim=6), mixture[1], memory=1e5)


def test_kernel_columns_know_the_norms_of_the_gradients(mixture):
    task, data = mixture
    for start in starts(task):
        whole = mh.measures.tangent_kernel(start, data)
        part = mh.measures.tangent_kernel(start, data, data[:7])
        for left, right in (whole.norms, part.norms):
            np.testing.assert_allclose(left, np.sqrt(whole.matrix.diagonal()), rtol=1e-12)
            np.testing.assert_allclose(
                right, np.sqrt(whole.matrix.diagonal())[: len(right)], rtol=1e-12
            )
