import jax
import jax.numpy as jnp
import numpy as np
import pytest

import manyheads as mh


def numpy_score(W, U, X):
    """Eq. (1), row by row, in NumPy."""
    total = 0.0
    for t in range(len(X)):
        logits = X @ W.T @ X[t]
        phi = np.exp(logits - logits.max())
        total += U[t] @ (X.T @ (phi / phi.sum()))
    return total


@pytest.fixture
def draw():
    rng = np.random.default_rng(0)
    W, U, X = (
        rng.standard_normal((4, 3, 3)),
        rng.standard_normal((4, 5, 3)),
        rng.standard_normal((5, 3)),
    )
    return W, U, X


def test_score_is_equation_2(draw):
    W, U, X = draw
    want = sum(numpy_score(w, u, X) for w, u in zip(W, U, strict=True)) / 2
    assert np.isclose(mh.MultiHead.create(W, U)(X), want, rtol=1e-13)


def test_multiplicity_counts_equal_heads(draw):
    W, U, X = draw
    classes = mh.MultiHead.create(W, U, multiplicity=[1, 2, 3, 4])
    heads = mh.expand(classes)
    assert heads.num_heads == classes.num_heads == 10 and heads.num_classes == 10
    assert np.isclose(classes(X), heads(X), rtol=1e-13)
    back = mh.collapse(heads)
    assert np.array_equal(back.multiplicity, classes.multiplicity)
    assert np.array_equal(back.key_query, W) and np.array_equal(back.readout, U)


def test_collapse_merges_signed_zeros_and_keeps_what_differs_in_one_bit(draw):
    W, U, _ = draw
    U = np.stack([U[0], U[0] + 0.0, np.nextafter(U[0], 9)])
    W = np.stack([0 * W[0], -0.0 * W[0], 0 * W[0]])
    assert np.array_equal(mh.collapse(mh.MultiHead.create(W, U)).multiplicity, [2, 1])


def test_pooled_and_last_readouts_are_special_cases_of_the_full_one(draw):
    W, U, X = draw
    u = U[:, 0]
    pooled = mh.MultiHead.create(W, u, decoder="pooled")
    assert np.isclose(
        pooled(X), mh.MultiHead.create(W, np.repeat(u[:, None], 5, axis=1))(X), rtol=1e-13
    )
    last = np.zeros_like(U)
    last[:, -1] = u
    assert np.isclose(
        mh.MultiHead.create(W, u, decoder="last")(X), mh.MultiHead.create(W, last)(X), rtol=1e-13
    )


def test_factored_weights_multiply_out(draw):
    _, U, X = draw
    Q, K = np.random.default_rng(1).standard_normal((2, 4, 3, 2))
    product = mh.MultiHead.create(Q @ K.transpose(0, 2, 1), U)
    assert np.isclose(mh.MultiHead.create(mh.model.Factored(Q, K), U)(X), product(X), rtol=1e-13)


@pytest.mark.parametrize("decoder", ["full", "pooled", "last"])
def test_a_masked_sequence_is_the_shorter_sequence(draw, decoder):
    W, U, X = draw
    mask = jnp.array([True, True, True, False, False])
    readout = U if decoder == "full" else U[:, 0]
    short = mh.MultiHead.create(W, U[:, :3] if decoder == "full" else U[:, 0], decoder=decoder)
    assert np.isclose(
        mh.MultiHead.create(W, readout, decoder=decoder)(X, mask), short(X[:3]), rtol=1e-13
    )


def test_attention_rows_are_distributions(draw):
    W, U, X = draw
    A = mh.MultiHead.create(W, U).attention(X)
    assert A.shape == (4, 5, 5) and np.allclose(A.sum(-1), 1) and (A > 0).all()


def test_given_parameters_are_kept_in_single_or_double_precision(draw):
    W, U, _ = draw
    for given, kept in (
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float64"),
        ("int8", "float64"),
    ):
        model = mh.MultiHead.create(W.astype(given), U.astype(given))
        assert model.key_query.dtype == model.readout.dtype == kept


def test_a_model_prints_what_it_is():
    model = mh.first_phase(
        mh.TokenizedMixture(frame="axis").sample(20, key=jax.random.key(0)), 1e12
    )
    assert str(model) == (
        "MultiHead: 1000000000000 heads in 2 classes, T=8, d=12, key-query weights, full readout, scaling 1/H^0.5"
    )
