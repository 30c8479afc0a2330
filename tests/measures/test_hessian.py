"""Hessian-vector products against autodiff of the plain formula with every head written out."""

import jax
import numpy as np
import pytest
from model.cases import SOME_KINDS, dense_hessian, random_case
from scipy.sparse.linalg import eigsh

import manyheads as mh
from manyheads.measures import hessian
from manyheads.measures.hessian import HessianOperator
from manyheads.model.loss import HYPERBOLIC, LOGISTIC


def whole_spectrum(operator, model):
    values = [np.linalg.eigvalsh(operator.dense())]
    for g, count in enumerate(model.multiplicity.astype(int)):
        if count > 1:
            values += [np.linalg.eigvalsh(operator.within(np.array([g])).dense())] * (count - 1)
    return np.sort(np.concatenate(values))


@pytest.mark.parametrize("kind", SOME_KINDS, ids=str)
def test_classes_give_the_whole_spectrum(kind):
    model, data = random_case(1, counts=(1, 3, 2), shape=(5, 3, 3), **kind)
    want = np.linalg.eigvalsh(dense_hessian(model, data, LOGISTIC))
    got = whole_spectrum(HessianOperator.of_loss(model, data, LOGISTIC), model)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()


def test_another_loss_and_exponent():
    model, data = random_case(2, counts=(2, 1), shape=(5, 3, 3), exponent=0.7)
    want = np.linalg.eigvalsh(dense_hessian(model, data, HYPERBOLIC))
    got = whole_spectrum(HessianOperator.of_loss(model, data, HYPERBOLIC), model)
    assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()


def test_chunks_and_what_is_kept_do_not_matter(monkeypatch):
    model, data = random_case(3, counts=(1, 2), shape=(23, 4, 3))
    kept = HessianOperator.of_loss(model, data, LOGISTIC)
    v = np.random.default_rng(0).standard_normal(kept.size)
    want = kept(v)
    monkeypatch.setattr(hessian, "KEPT_BYTES", 0.0)
    monkeypatch.setattr(
        hessian,
        "prepare",
        lambda dataset, model, _prepare=hessian.prepare: _prepare(dataset, model, chunk=5),
    )
    again = HessianOperator.of_loss(model, data, LOGISTIC)
    assert again.point.parts is None and again.point.batch.labels.shape == (5, 5)
    assert np.abs(again(v) - want).max() <= 1e-14 * np.abs(want).max() * 10


def test_the_product_is_symmetric_at_a_trillion_heads():
    model, data = random_case(4, counts=(1, 1), shape=(6, 4, 3))
    many = mh.MultiHead(model.key_query, 1e-6 * model.readout, np.array([4e11, 6e11]))
    operator = HessianOperator.of_loss(many, data, LOGISTIC)
    a, b = np.random.default_rng(0).standard_normal((2, operator.size))
    assert b @ operator(a) == pytest.approx(a @ operator(b), rel=1e-9)


def test_it_is_a_scipy_operator_in_float64_whatever_jax_is_set_to():
    model, data = random_case(5, counts=(1, 2), shape=(6, 4, 3))
    exact = HessianOperator.of_loss(model, data, LOGISTIC).dense()
    with jax.enable_x64(False):
        operator = HessianOperator.of_loss(model, data)
        largest = eigsh(operator, k=1, which="LA", return_eigenvectors=False)
        assert np.abs(operator.dense() - exact).max() <= 1e-15
    assert largest == pytest.approx(np.linalg.eigvalsh(exact)[-1:], rel=1e-9)
    with pytest.raises(ValueError, match="loss='hinge' must be"):
        HessianOperator.of_loss(model, data, "hinge")
