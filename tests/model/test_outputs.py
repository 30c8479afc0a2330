"""Several scores a sequence and their softmax loss, against autodiff of the plain formula."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from manyheads import MultiHead
from manyheads.model import outputs
from manyheads.model.gradient import head_weights, prepare

spec = importlib.util.spec_from_file_location("cases", Path(__file__).with_name("cases.py"))
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
SHAPES = [(7, 5, 4), (1, 5, 4), (7, 1, 4)]  # sequences, tokens, dim


@jax.jit
def plain(model, heads, tokens, mask, codes, weight):
    """Loss by the definition: one sequence at a time, log-sum-exp of its scores."""

    def loss(point):
        moved = model.replace_heads(point)
        scores = jax.vmap(moved)(tokens) if mask is None else jax.vmap(moved)(tokens, mask)
        picked = scores[jnp.arange(len(codes)), codes]
        return jnp.sum(weight * (jnp.log(jnp.sum(jnp.exp(scores), axis=1)) - picked)), scores

    (value, scores), gradient = jax.value_and_grad(loss, has_aux=True)(heads)
    return value, scores, gradient


def batch_of(data, model, codes, chunk):
    batch = prepare(data, model, chunk=chunk)
    padded = np.zeros(batch.labels.size)
    padded[: len(codes)] = codes
    return batch._replace(labels=padded.reshape(batch.labels.shape))


@pytest.mark.parametrize("kind", cases.KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_softmax_loss_scores_and_gradient_equal_autodiff(kind):
    shapes = SHAPES if kind["decoder"] == "query" else SHAPES[:1]
    for seed, shape in enumerate(shapes):
        model, data = cases.random_case(seed, outputs=(3,), shape=shape, **kind)
        rng = np.random.default_rng(seed)
        codes, weight = rng.integers(0, 3, len(data)), rng.random(len(data))
        value, scores, gradient = plain(
            model, model.heads, data.tokens, data.mask, jnp.asarray(codes), weight
        )
        got = outputs.loss_and_gradient(
            model.heads,
            head_weights(model),
            batch_of(data, model, codes, chunk=3),
            weight,
            decoder=model.decoder,
        )
        assert abs(got[0] - value) <= 1e-12 * abs(value)
        assert cases.relative_error(got[1], scores) <= 1e-12
        assert cases.relative_error(got[2], cases.per_head(model, gradient)) <= 1e-12
        assert cases.relative_error(model.scores(data), scores) <= 1e-12


def test_two_outputs_whose_second_is_zero_are_the_logistic_loss():
    model, data = cases.random_case(0, decoder="query")
    two = MultiHead.create(
        model.key_query,
        np.stack([np.zeros_like(model.readout), model.readout], axis=1),
        multiplicity=model.multiplicity,
        decoder="query",
    )
    codes, weight = (data.labels > 0).astype(int), np.full(len(data), 1 / len(data))
    found = outputs.loss_and_gradient(
        two.heads, head_weights(two), batch_of(data, two, codes, None), weight, decoder="query"
    )
    margins = data.labels * model.scores(data)
    assert float(found[0]) == pytest.approx(np.mean(np.log1p(np.exp(-margins))), rel=1e-13)


def test_a_learned_query_is_self_attention_of_a_last_constant_token():
    """softmax(X q) X u = last-token attention with W = e q' where a constant feature e marks the last token."""
    model, data = cases.random_case(3, decoder="query", counts=(1, 2))
    n, T, d = data.tokens.shape
    X = np.concatenate([data.tokens, np.ones((n, T, 1))], axis=2)
    W = np.zeros((2, d + 1, d + 1))
    W[:, d, :d] = model.key_query
    U = np.concatenate([model.readout, np.zeros((2, 1))], axis=1)
    last = MultiHead.create(W, U, multiplicity=model.multiplicity, decoder="last")
    mine, theirs = model.scores(data), [float(last(x)) for x in X]
    np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_wrong_shapes_and_margin_losses_of_several_scores_are_refused():
    with pytest.raises(ValueError, match=r"decoder='query' needs one query per class"):
        MultiHead.create(np.zeros((2, 4, 4)), np.zeros((2, 4)), decoder="query")
    model, data = cases.random_case(0, decoder="query", outputs=(3,))
    assert model.num_outputs == 3
    with pytest.raises(ValueError, match="3 scores a sequence"):
        model.objective(data)
