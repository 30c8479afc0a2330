import importlib.util
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyheads import Dataset, MultiHead
from manyheads.model.gradient import (
    batch_scores,
    chunk_size,
    evaluate,
    head_weights,
    loss_and_gradient,
    prepare,
)
from manyheads.model.loss import LOSSES

spec = importlib.util.spec_from_file_location("cases", Path(__file__).with_name("cases.py"))
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)


def name(kind):
    return "-".join(str(value) for value in kind.values())


def check_against_autodiff(kind, loss):
    """Loss, scores, gradient and Hessian-vector product of two random models; both run one compiled program."""

    @jax.jit
    def autodiff(model, heads, direction, tokens, labels, mask, weight):
        data = SimpleNamespace(tokens=tokens, labels=labels, mask=mask)

        def plain(point):
            return cases.plain_loss(model, point, data, weight, loss)

        value, gradient = jax.value_and_grad(plain)(heads)
        return (
            value,
            cases.plain_scores(model, heads, data),
            gradient,
            jax.jvp(jax.grad(plain), (heads,), (direction,))[1],
        )

    @jax.jit
    def ours(heads, direction, weights, batch, weight):
        def evaluate(point):
            return loss_and_gradient(point, weights, batch, weight, loss=loss)

        values, moved = jax.jvp(evaluate, (heads,), (direction,))
        return *values, moved[2]

    for seed in range(2):
        model, data = cases.random_case(seed, **kind)
        rng = np.random.default_rng(seed)
        weight = rng.random(data.num_examples)
        direction = jax.tree.map(lambda a, rng=rng: rng.standard_normal(a.shape), model.heads)
        value, scores, gradient, product = autodiff(
            model, model.heads, direction, data.tokens, data.labels, data.mask, weight
        )
        got = ours(
            model.heads, direction, head_weights(model), prepare(data, model, chunk=3), weight
        )
        assert abs(got[0] - value) <= 1e-12 * abs(value)
        assert cases.relative_error(got[1], scores) <= 1e-12
        assert cases.relative_error(got[2], cases.per_head(model, gradient)) <= 1e-12
        assert cases.relative_error(got[3], cases.per_head(model, product)) <= 1e-12


@pytest.mark.parametrize("kind", cases.KINDS, ids=name)
def test_values_gradients_and_hessian_products_equal_autodiff(kind):
    check_against_autodiff(kind, LOSSES["logistic"])


def test_other_losses_equal_autodiff():
    check_against_autodiff(cases.KINDS[0], LOSSES["hyperbolic"])


def random_kind(seed):
    rng = np.random.default_rng(seed)
    return dict(
        decoder=str(rng.choice(["full", "pooled", "last"])),
        factored=bool(rng.integers(2)),
        masked=bool(rng.integers(2)),
        shape=(
            int(rng.integers(2, 9)),
            1 if seed == 0 else int(rng.integers(2, 10)),
            int(rng.integers(2, 9)),
        ),
        counts=tuple(int(v) for v in rng.integers(1, 10, rng.integers(1, 5))),
        exponent=float(rng.choice([0.25, 0.5, 1.0])),
    )


@pytest.mark.parametrize("kind", [random_kind(seed) for seed in range(6)], ids=str)
def test_random_shapes_and_scalings_equal_autodiff(kind):
    check_against_autodiff(kind, LOSSES["logistic"])


def test_large_logits_neither_overflow_nor_lose_the_gradient():
    model, data = cases.random_case(0)
    heads = jax.tree.map(lambda leaf: 40 * jnp.asarray(leaf), model.heads)
    weight = jnp.full(data.num_examples, 1 / data.num_examples)
    value, gradient = jax.value_and_grad(
        lambda p: cases.plain_loss(model, p, data, weight, LOSSES["logistic"])
    )(heads)
    got = loss_and_gradient(heads, head_weights(model), prepare(data, model), weight)
    assert np.isclose(got[0], value, rtol=1e-12)
    assert cases.relative_error(got[2], cases.per_head(model, gradient)) <= 1e-11


def test_chunks_change_nothing_but_rounding_and_the_same_chunk_gives_the_same_bits():
    model, data = cases.random_case(1, shape=(23, 5, 4))
    heads = jax.tree.map(jnp.asarray, model.heads)
    weight = jnp.full(23, 1 / 23)
    run = jax.jit(loss_and_gradient)
    reference = run(heads, head_weights(model), prepare(data, model, chunk=23), weight)
    for chunk in (1, 7):
        batch = prepare(data, model, chunk=chunk)
        once, again = (run(heads, head_weights(model), batch, weight) for _ in range(2))
        assert cases.relative_error(once, reference) <= 1e-12
        assert all(
            np.array_equal(a, b)
            for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(again), strict=True)
        )


def test_a_zero_weight_leaves_a_sequence_out():
    model, data = cases.random_case(2)
    n = data.num_examples
    heads, weights = jax.tree.map(jnp.asarray, model.heads), head_weights(model)
    weight = jnp.full(n, 1 / n).at[3].set(0.0)
    got = loss_and_gradient(heads, weights, prepare(data, model), weight)
    rest = data.without(3)
    want = loss_and_gradient(heads, weights, prepare(rest, model), jnp.full(n - 1, 1 / n))
    assert np.isclose(got[0], want[0], rtol=1e-14)
    assert cases.relative_error(got[2], want[2]) <= 1e-13


@pytest.mark.parametrize("kind", cases.KINDS, ids=name)
def test_scores_and_attention_mass_equal_the_plain_model(kind):
    model, data = cases.random_case(5, **kind)
    n = data.num_examples
    batch = prepare(data, model, chunk=3)
    heads = jax.tree.map(jnp.asarray, model.heads)
    want = cases.plain_scores(model, heads, data)
    assert cases.relative_error(batch_scores(heads, head_weights(model), batch, n), want) <= 1e-13
    assert np.allclose(model.scores(data), want, rtol=1e-12)

    relevant = np.random.default_rng(0).random((n, data.num_tokens)) < 0.4
    mass = []
    for i in range(n):
        A = model.attention(data.tokens[i], None if data.mask is None else data.mask[i])
        queries = (
            1
            if model.decoder in ("last", "query")
            else data.num_tokens
            if data.mask is None
            else data.mask[i].sum()
        )
        mass.append(np.asarray(A)[:, :, relevant[i]].sum(axis=(1, 2)) / queries)
    flags = np.zeros((batch.labels.size, data.num_tokens), bool)
    flags[:n] = relevant
    flags, weight = flags.reshape(*batch.labels.shape, -1), jnp.full(n, 1 / n)
    seen, unseen = (
        evaluate(heads, head_weights(model), batch, weight, flags, due)[3] for due in (True, False)
    )
    assert np.allclose(seen, np.mean(mass, axis=0), rtol=1e-12) and not unseen.any()


@pytest.mark.parametrize("factored", [False, True])
def test_no_product_is_left_to_the_default_precision(factored):
    model, data = cases.random_case(0, factored=factored)
    n, batch = data.num_examples, prepare(data, model, np.float32, chunk=3)
    heads, weights = jax.tree.map(np.float32, model.heads), head_weights(model, np.float32)
    flags, weight = (
        np.ones((*batch.labels.shape, data.num_tokens), bool),
        np.full(n, 1 / n, np.float32),
    )
    for program in (
        jax.make_jaxpr(lambda: loss_and_gradient(heads, weights, batch, weight))(),
        jax.make_jaxpr(lambda: batch_scores(heads, weights, batch, n))(),
        jax.make_jaxpr(lambda: evaluate(heads, weights, batch, weight, flags))(),
        jax.make_jaxpr(lambda: model(np.float32(data.tokens[0])))(),
    ):
        text = str(program)
        assert (
            text.count("dot_general[")
            == text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
            > 0
        )


def test_no_product_of_a_chunk_has_to_move_its_factors():
    model, data = cases.random_case(0)
    n, batch = data.num_examples, prepare(data, model, chunk=3)
    program = jax.make_jaxpr(
        lambda: loss_and_gradient(model.heads, head_weights(model), batch, np.full(n, 1 / n))
    )()
    (loop,) = (step for step in program.eqns if step.primitive.name == "scan")
    body = loop.params["jaxpr"].jaxpr
    assert "transpose" not in str(body)  # the parameters are folded once, before
    products = [
        step.params["dimension_numbers"]
        for step in body.eqns
        if step.primitive.name == "dot_general"
    ]
    one_by_one = [left for (left, _), (batched, _) in products if batched]
    assert len(products) == 6 and one_by_one == [
        (2,),
        (2,),
    ]  # sums over the last axis of the left factor


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(10, 50, 8), (7, 20, 6), (33, 5, 2)], ids=str)
def test_equal_classes_of_opposite_sign_cancel_to_the_last_bit(dtype, shape):
    T, d, g = shape
    rng = np.random.default_rng(0)
    W, U = rng.standard_normal((1, d, d)), rng.standard_normal((1, T, d))
    model = MultiHead.create(
        np.repeat(W, g, axis=0), U * np.where(np.arange(g) % 2, 1.0, -1.0)[:, None, None]
    )
    data = Dataset.from_arrays(
        rng.standard_normal((9, T, d)) / np.sqrt(d), np.where(np.arange(9) % 2, 1.0, -1.0)
    )
    batch, weight = prepare(data, model, dtype, chunk=4), np.full(9, 1 / 9, dtype)
    heads = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), model.heads)
    _, scores, (by_W, by_U) = jax.jit(loss_and_gradient)(
        heads, head_weights(model, dtype), batch, weight
    )
    assert not scores.any()
    for gradient, signs in ((by_W, (-1, 1)), (by_U, (1, 1))):
        assert all(
            np.array_equal(signs[h % 2] * part, signs[0] * gradient[0])
            for h, part in enumerate(gradient)
        )


def test_chunk_size_fills_the_cache_and_no_more():
    assert chunk_size(10, 4, 4, 2, 8, "cpu") == 10
    assert 1 <= chunk_size(1000, 10, 50, 64, 4, "cpu") < 100
    assert chunk_size(1000, 10, 50, 64, 4, "gpu") == 1000
    assert chunk_size(5, 512, 64, 512, 8, "cpu") == 1
