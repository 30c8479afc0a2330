"""Extreme eigenvalues against the dense Hessian of the expanded model."""

import jax
import numpy as np
import pytest
from measures.programs import same_program
from model.cases import dense_hessian, random_case

import manyheads as mh
from manyheads.model.loss import LOGISTIC


def dense(model, data, of=None):
    return dense_hessian(model, data, LOGISTIC, of)


CASE = dict(counts=(1, 3, 2), shape=(5, 3, 3))


@pytest.mark.parametrize("method", ["dense", "lanczos"])
@pytest.mark.parametrize("counts", [(1, 3, 2), (1, 1, 1), (2, 2, 2)])
def test_both_ends_are_those_of_the_full_hessian(method, counts):
    model, data = random_case(1, counts=counts, shape=(5, 3, 3))
    values = np.linalg.eigvalsh(dense(model, data))
    found = mh.measures.loss_curvature(model, data, method=method, tolerance=1e-10)
    assert found.converged and found.method == method
    assert found.smallest.value == pytest.approx(values[0], abs=1e-8 * values[-1])
    assert found.largest.value == pytest.approx(values[-1], rel=1e-8)
    assert found.num_parameters == len(values)


def test_the_eigenvectors_are_those_of_the_full_model():
    model, data = random_case(1, **CASE)
    H, N = dense(model, data), model.multiplicity.astype(int)
    found = mh.measures.loss_curvature(model, data)
    assert found.smallest.within_class is not None and found.largest.within_class is None
    for end in (found.smallest, found.largest):
        if end.within_class is None:
            signs = np.ones(N.sum())
        else:  # two members of the class against each other
            signs = np.zeros(N.sum())
            first = N[: end.within_class].sum()
            signs[first], signs[first + 1] = np.sqrt(0.5), -np.sqrt(0.5)
        rows = jax.tree.map(
            lambda leaf, signs=signs: (
                np.repeat(leaf, N, axis=0) * signs.reshape(-1, *(1,) * (leaf.ndim - 1))
            ),
            end.direction,
        )
        v = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(rows)])
        assert np.linalg.norm(v) == pytest.approx(1, abs=1e-9)
        assert np.linalg.norm(H @ v - end.value * v) <= end.residual + 1e-13


def test_the_score_of_one_sequence():
    model, data = random_case(2, **CASE)
    values = np.linalg.eigvalsh(dense(model, data, of=3))
    found = mh.measures.score_curvature(model, data, 3)
    assert found.smallest.value == pytest.approx(values[0], rel=1e-10)
    assert found.largest.value == pytest.approx(values[-1], rel=1e-10)
    # at U = W = 0 with tokens half +v and half -v the norm is sqrt(T) |v|^3, its largest value
    v = np.array([0.6, 0.0, 0.8])
    tokens = np.stack([np.stack([v, v, -v, -v]), np.zeros((4, 3))])
    zero = mh.zero_start(1, num_tokens=4, dim=3)
    attained = mh.measures.score_curvature(zero, mh.Dataset.from_arrays(tokens, [1.0, -1.0]), 0)
    assert attained.largest.value == pytest.approx(2.0, rel=1e-12)


def test_too_few_products_are_said():
    model, data = random_case(3, counts=(1,) * 3, shape=(8, 4, 5))
    found = mh.measures.loss_curvature(
        model, data, method="lanczos", tolerance=1e-14, max_products=10
    )
    assert not found.converged
    assert "NOT CONVERGED" in str(found)
    good = mh.measures.loss_curvature(model, data, method="lanczos")
    assert good.converged
    values = np.linalg.eigvalsh(dense(model, data))
    for end, true in ((good.smallest, values[0]), (good.largest, values[-1])):
        assert abs(end.value - true) <= end.residual + 1e-14  # the residual bounds the error


def test_a_tolerance_below_rounding_is_not_called_reached():
    model, data = random_case(3, counts=(1,) * 3, shape=(8, 4, 5))
    for tolerance in (1e-7, 1e-18):
        found = mh.measures.loss_curvature(model, data, method="dense", tolerance=tolerance)
        scale = max(abs(found.smallest.value), abs(found.largest.value))
        for end in (found.smallest, found.largest):
            assert end.converged == (end.residual <= tolerance * scale) == (tolerance == 1e-7)


def test_equal_classes_do_not_share_an_eigenvector():
    """Two equal classes: the lowest eigenvalue belongs to both, and the vector given is that of one of them."""
    model, data = random_case(1, counts=(2, 2), shape=(5, 3, 3))
    W, U = (np.repeat(leaf[:1], 2, axis=0) for leaf in model.heads)
    twice = mh.MultiHead(W, U, np.array([2.0, 2.0]))
    H = dense(twice, data)
    end = mh.measures.loss_curvature(twice, data, method="lanczos", tolerance=1e-10).smallest
    assert end.converged and end.within_class is not None
    signs = np.zeros(4)
    signs[2 * end.within_class : 2 * end.within_class + 2] = np.sqrt(0.5), -np.sqrt(0.5)
    v = np.concatenate(
        [
            (np.repeat(leaf, 2, axis=0) * signs.reshape(-1, 1, 1)).ravel()
            for leaf in jax.tree.leaves(end.direction)
        ]
    )
    assert np.linalg.norm(v) == pytest.approx(1, abs=1e-9)
    assert np.linalg.norm(H @ v - end.value * v) <= 1e-9 * np.abs(H).max()


def test_a_lanczos_of_a_block_of_zeros_is_zero():
    model, data = random_case(
        4, counts=(3, 2), shape=(5, 1, 3)
    )  # one token: nothing bends within a class
    found = mh.measures.loss_curvature(model, data, method="lanczos")
    assert found.converged and abs(found.smallest.value) <= 1e-15
    values = np.linalg.eigvalsh(dense(model, data))
    assert found.largest.value == pytest.approx(values[-1], rel=1e-8)


def test_a_lanczos_of_a_trillion_heads_runs_the_same_program(caplog):
    mixture = mh.TokenizedMixture(
        num_tokens=4, dim=5, num_patterns=2, sparsity=0.5, signal=1.0, key=jax.random.key(0)
    )
    data, first = (
        mixture.sample(10, key=jax.random.key(1)),
        mixture.sample(40, key=jax.random.key(2)),
    )
    few, many = (mh.first_phase(first, heads) for heads in (4, 10**12))
    exact = np.linalg.eigvalsh(dense(few, data))
    found = mh.measures.loss_curvature(few, data, method="lanczos", tolerance=1e-10)
    assert found.smallest.value == pytest.approx(exact[0], rel=1e-8) and found.converged
    with same_program(caplog):
        found = mh.measures.loss_curvature(many, data, method="lanczos", tolerance=1e-10)
    assert found.converged and found.method == "lanczos"
    # the scores are zero at any H, so the lower end falls as 1/sqrt(H), and what is left above is the kernel's part
    assert found.smallest.value == pytest.approx(exact[0] * 2 / 1e6, abs=2e-10 * exact[-1])
    assert (
        found.num_products < 300
    )  # thousands, where the null space of the kernel's part is searched for a lower end
    kernel = mh.measures.tangent_kernel(many, data).matrix
    assert found.largest.value == pytest.approx(np.linalg.eigvalsh(kernel)[-1] / 4 / 10, rel=1e-5)


def test_the_smallest_eigenvalue_of_two_classes_falls_as_one_over_root_heads(caplog):
    mixture = mh.TokenizedMixture(
        num_tokens=4, dim=5, num_patterns=2, sparsity=0.5, signal=1.0, key=jax.random.key(0)
    )
    data, first = (
        mixture.sample(10, key=jax.random.key(1)),
        mixture.sample(40, key=jax.random.key(2)),
    )
    values, products = {}, {}
    for heads in (4, 64, 10**12):
        start = mh.first_phase(
            first, heads
        )  # balanced: the scores are zero and the classes the same at any H
        with same_program(caplog, heads > 4):
            found = mh.measures.loss_curvature(start, data)
        values[heads] = found.smallest.value * np.sqrt(heads)
        products[heads] = found.num_products
    assert values[4] < -0.01
    assert values[64] == pytest.approx(values[4], rel=1e-10)
    assert values[10**12] == pytest.approx(values[4], rel=1e-8)
    assert (
        products[4] == products[64] == products[10**12]
    )  # the same work; the benchmark states the ratio of times


def test_paths_are_the_eigenvalues_at_their_points():
    model, data = random_case(4, counts=(1, 2), shape=(5, 3, 3))
    run = mh.train(model, data, rule=mh.GD(0.3), num_steps=6, dtype="float64", snapshots=[2])
    path = mh.measures.curvature_along(run, data)
    assert path.positions.tolist() == [0, 2, 6] and path.converged.all()
    for k, step in enumerate((0, 2, 6)):
        values = np.linalg.eigvalsh(dense(run.model(step), data))
        assert path.smallest[k] == pytest.approx(values[0], abs=1e-10)
        assert path.largest[k] == pytest.approx(values[-1], rel=1e-10)
    segment = mh.measures.curvature_on_segment(run.start, run.final, data, num_points=3)
    assert segment.smallest[[0, 2]] == pytest.approx(path.smallest[[0, 2]], abs=1e-12)
    half = run.start.displaced(jax.tree.map(lambda leaf: leaf / 2, run.displacement))
    assert segment.largest[1] == pytest.approx(np.linalg.eigvalsh(dense(half, data))[-1], rel=1e-10)
    assert "position" in str(segment) and "step" in str(path)


def test_bad_options_are_answered():
    model, data = random_case(4)
    other, _ = random_case(4, counts=(1, 5, 4))
    with pytest.raises(
        ValueError, match="tolerance=2 must be a finite number strictly between 0 and 1"
    ):
        mh.measures.loss_curvature(model, data, tolerance=2)
    with pytest.raises(ValueError, match="method='exact' must be 'dense' or 'lanczos' or None"):
        mh.measures.loss_curvature(model, data, method="exact")
    with pytest.raises(ValueError, match="max_products=1 must be a whole number >= 10"):
        mh.measures.loss_curvature(model, data, max_products=1)
    with pytest.raises(ValueError, match="num_points=1"):
        mh.measures.curvature_on_segment(model, model, data, num_points=1)
    exponent, _ = random_case(4, exponent=0.8)
    with pytest.raises(
        ValueError,
        match="one model has decoder='full', exponent=0.5, the other decoder='full', exp",
    ):
        mh.measures.curvature_on_segment(model, exponent, data)
    pooled, last = (random_case(4, decoder=decoder)[0] for decoder in ("pooled", "last"))
    with pytest.raises(
        ValueError, match="decoder='pooled', exponent=0.5, the other decoder='last'"
    ):
        mh.measures.curvature_on_segment(pooled, last, data)
    with pytest.raises(ValueError, match="different shapes or multiplicities"):
        mh.measures.curvature_on_segment(model, other, data)


def test_one_pair_among_many_heads_of_one_dimension():
    # the two members of the pair that move against each other have two parameters, too few for ARPACK
    rng = np.random.default_rng(0)
    U, counts = rng.standard_normal((201, 1, 1)), np.where(np.arange(201) == 0, 2.0, 1.0)
    model = mh.MultiHead(np.zeros((201, 1, 1)), U, counts)
    data = mh.Dataset(rng.standard_normal((3, 1, 1)), np.array([1.0, -1.0, 1.0]))
    found, exact = (
        mh.measures.loss_curvature(model, data),
        mh.measures.loss_curvature(model, data, method="dense"),
    )
    assert found.method == "lanczos" and found.converged
    assert (
        abs(found.largest.value - exact.largest.value)
        <= found.largest.residual + exact.largest.residual
    )


def test_a_hessian_of_zero_to_rounding_is_known():
    # slopes below the smallest normal number have few digits, and no residual is small relative to what they leave
    model, data = random_case(1, shape=(5, 3, 3), counts=(2, 2))
    margins = data.labels * model.scores(data)
    right = mh.Dataset(data.tokens, np.where(margins > 0, data.labels, -data.labels))
    for size in np.linspace(730, 745, 6) / np.abs(margins).min():
        sharp = mh.MultiHead(model.key_query, size * model.readout, model.multiplicity)
        for method in ("dense", "lanczos"):
            found = mh.measures.loss_curvature(sharp, right, method=method)
            assert found.converged and max(abs(found.smallest.value), found.largest.value) < 1e-300
