"""A frozen block against the whole model, and low-rank attention against the full one that it stands for."""

import jax
import numpy as np
import pytest
from model.cases import SOME_KINDS, random_case
from model.modules import FROZEN, any_model

import manyheads as mh
from manyheads.measures.hessian import AutodiffPoint, HessianOperator
from manyheads.model.autodiff import float64
from manyheads.model.loss import LOGISTIC


@pytest.mark.parametrize("kind", SOME_KINDS, ids=str)
@pytest.mark.parametrize("block", ["readout", "key_query"])
def test_a_frozen_block_leaves_the_other_part(block, kind):
    model, data = random_case(2, counts=(3, 1), shape=(5, 3, 3), **kind)
    half = mh.frozen(model, block)
    other = "key_query" if block == "readout" else "readout"
    assert half.parameters._asdict()[block] is None and half.copies is model.copies
    assert np.array_equal(half.scores(data), model.scores(data))
    kernel = mh.measures.tangent_kernel(half, data)
    assert list(kernel.parts) == [other]
    assert np.array_equal(kernel.matrix, mh.measures.tangent_kernel(model, data).parts[other])
    operator, n = HessianOperator.of_loss(half, data, LOGISTIC), data.num_examples
    parameters = float64(half.parameters)
    point = AutodiffPoint(
        parameters, np.sqrt(model.copies), half.objective(data), np.full(n, 1 / n), LOGISTIC
    )
    want, got = HessianOperator(point, model.copies).dense(), operator.dense()
    assert got.shape == want.shape == (operator.size, operator.size)
    assert np.abs(got - want).max() <= 1e-12 * max(np.abs(want).max(), 1e-3)


@pytest.mark.parametrize("name", FROZEN)
def test_only_the_other_block_moves(name):
    half, data = any_model(name)
    move = jax.tree.map(np.ones_like, half.parameters)
    moved = half.displaced(move)
    held = name.split()[0]
    for block in ("readout", "key_query"):
        same = np.array_equal(getattr(moved.full, block), getattr(half.full, block))
        assert same == (block == held)
    assert str(half).endswith(f"; {held} frozen")


def test_only_a_multihead_has_blocks():
    model, _ = random_case(0)
    with pytest.raises(ValueError, match="block='values' must be 'key_query' or 'readout'"):
        mh.frozen(model, "values")
    with pytest.raises(ValueError, match="must be a MultiHead"):
        mh.frozen(mh.frozen(model, "readout"), "key_query")


@pytest.mark.parametrize("pooled", [False, True])
def test_low_rank_attention_is_a_multihead_with_its_values_absorbed(pooled):
    _, data = random_case(1, masked=True)
    T, d, H = 5, 4, 2
    low = mh.model.LowRank.random(H, num_tokens=T, dim=d, scale=2.0, key=jax.random.key(0))
    assert low.query.shape == low.value.shape == (H, d, d // H)
    if pooled:
        low = mh.model.LowRank(low.query, low.key, low.value, low.output, low.readout[0])
    absorbed = np.einsum("...d,hev,hvd->h...e", low.readout, low.value, low.output)
    full = mh.MultiHead.create(
        mh.model.Factored(low.query, low.key),
        absorbed,
        decoder="pooled" if pooled else "full",
        exponent=0.5,
    )
    want = full.scores(data)
    got = [float(low(X, mask)) for X, mask in zip(data.tokens, data.mask, strict=True)]
    assert np.allclose(got, want, rtol=1e-12)
    assert np.linalg.matrix_rank(absorbed.reshape(H, -1, d)[0]) <= d // H


def test_factors_that_do_not_fit_are_named():
    low = mh.model.LowRank.random(2, num_tokens=5, dim=4, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"readout \(5, 3\) do not fit"):
        mh.model.LowRank(low.query, low.key, low.value, low.output, low.readout[:, :3])
