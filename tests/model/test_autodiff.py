"""Derivatives by autodiff against the closed forms of MultiHead and against plain JAX; what is no model is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from model.cases import SOME_KINDS, random_case, relative_error
from model.modules import any_model, attention_mlp, mostly, pooled_mlp

import manyheads as mh
from manyheads.measures.hessian import AutodiffPoint, HessianOperator
from manyheads.model import autodiff
from manyheads.model.loss import HYPERBOLIC, LOGISTIC
from manyheads.model.protocol import Model


def plain_loss(module, data, loss=LOGISTIC, weight=None):
    """The train loss as a function of a flat vector, in plain JAX, and the vector of the module."""
    parameters, rest = eqx.partition(module, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(jax.tree.map(lambda a: jnp.asarray(a, float), parameters))
    X, y = jnp.asarray(data.tokens), jnp.asarray(data.labels)
    mask = jnp.ones(X.shape[:2], bool) if data.mask is None else jnp.asarray(data.mask)
    w = jnp.full(len(y), 1 / len(y)) if weight is None else weight

    def scores(vector):
        return jax.vmap(eqx.combine(unravel(vector), rest))(X, mask)

    return (lambda vector: jnp.sum(w * loss.value(y * scores(vector)))), scores, flat


class Written(eqx.Module):
    """A MultiHead as nothing but a module, so that autodiff knows none of its closed forms."""

    key_query: object
    readout: object
    decoder: str = eqx.field(static=True)
    exponent: float = eqx.field(static=True)

    def __call__(self, tokens, mask):
        ones = np.ones(self.readout.shape[0])
        return mh.MultiHead(self.key_query, self.readout, ones, self.decoder, self.exponent)(
            tokens, mask
        )


@pytest.mark.parametrize("kind", SOME_KINDS, ids=str)
def test_the_closed_forms_are_those_of_autodiff(kind):
    model, data = random_case(3, counts=(2, 1), shape=(5, 3, 3), **kind)
    full = mh.expand(model)
    module = Written(full.key_query, full.readout, full.decoder, full.exponent)
    assert np.allclose(autodiff.scores(module, data), model.scores(data), rtol=1e-12, atol=1e-12)
    value, gradient = autodiff.loss_and_gradient(module, data, LOGISTIC)
    closed, by_head = autodiff.loss_and_gradient(model, data, LOGISTIC)
    written = mh.expand(model.replace_heads(by_head)).heads
    assert value == pytest.approx(closed, rel=1e-13)
    assert relative_error((gradient.key_query, gradient.readout), tuple(written)) <= 1e-12
    by_class, by_module = (
        mh.measures.tangent_kernel(model, data),
        mh.measures.tangent_kernel(module, data),
    )
    assert np.abs(by_class.matrix - by_module.matrix).max() <= 1e-12 * np.abs(by_class.matrix).max()
    assert np.allclose(
        autodiff.gradient_norms(model, data), np.sqrt(by_class.matrix.diagonal()), rtol=1e-12
    )
    here, there = (mh.measures.loss_spectrum(m, data).eigenvalues for m in (full, module))
    assert np.abs(here - there).max() <= 1e-12 * np.abs(here).max()


def test_the_operator_of_autodiff_takes_classes_into_account():
    model, data = random_case(4, counts=(3, 1), shape=(5, 3, 3))
    closed = HessianOperator.of_loss(model, data, HYPERBOLIC)
    n = data.num_examples
    point = AutodiffPoint(
        model.heads, np.sqrt(model.copies), model.objective(data), np.full(n, 1 / n), HYPERBOLIC
    )
    want, got = closed.dense(), HessianOperator(point, model.copies).dense()
    assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()
    with pytest.raises(ValueError, match="known for MultiHead only; write the copies out"):
        HessianOperator(point, model.copies).within(np.array([0]))


@pytest.mark.parametrize("name", mostly("mlp"))
def test_chunks_and_weights_do_not_matter(name):
    module, data = any_model(name)
    model = autodiff.as_model(module)
    assert isinstance(model, Model) and model.copies is None and autodiff.as_model(model) is model
    weight = np.random.default_rng(0).random(data.num_examples)
    value, scores, flat = plain_loss(module, data, weight=jnp.asarray(weight))
    parameters = autodiff.float64(model.parameters)
    for chunk in (None, 1, 3):
        objective = model.objective(data, chunk=chunk)
        assert np.allclose(objective.scores(parameters), scores(flat), rtol=1e-13)
        found, phi, gradient = objective.loss_and_gradient(parameters, weight, loss=LOGISTIC)
        assert float(found) == pytest.approx(float(value(flat)), rel=1e-13)
        assert np.allclose(phi, scores(flat), rtol=1e-13)
        assert np.allclose(ravel_pytree(gradient)[0], jax.grad(value)(flat), rtol=1e-11, atol=1e-14)


def test_one_example_alone_and_one_replaced():
    module, data = any_model("attention and mlp")
    _, other = any_model("attention and mlp", seed=1)
    model = autodiff.as_model(module)
    parameters = autodiff.float64(model.parameters)
    here, there = (model.objective(d, chunk=3) for d in (data, other))
    want = np.asarray(here.scores(parameters))
    for i in (0, 4, 6):
        alone = jax.jit(lambda objective, i: objective.some(i[None]))(here, np.asarray(i))
        assert np.asarray(alone.scores(parameters)) == pytest.approx([want[i]], rel=1e-14)
        assert alone.labels.tolist() == [data.labels[i]]
        mixed = jax.jit(lambda a, i, b: a.replaced(i, b))(here, i, there)
        expected = want.copy()
        expected[i] = there.scores(parameters)[i]
        assert np.allclose(mixed.scores(parameters), expected, rtol=1e-14)


def test_a_displaced_module_is_the_module_at_other_parameters():
    model = autodiff.as_model(pooled_mlp(4))
    moved = model.displaced(jax.tree.map(np.ones_like, model.parameters))
    assert np.array_equal(moved.module.inner, model.module.inner + 1) and moved.module.power == 3
    assert str(model) == "PooledMLP: 30 parameters in 3 arrays"
    assert autodiff.as_model(attention_mlp(4)).module.mlp.activation is jax.nn.softplus


class TwoNumbers(eqx.Module):
    weight: jax.Array

    def __call__(self, tokens, mask):
        return jnp.mean(tokens, axis=0)[:2] * self.weight


class NoCall(eqx.Module):
    weight: jax.Array


class NothingTrains(eqx.Module):
    def __call__(self, tokens, mask):
        return jnp.sum(tokens)


class TakesNoMask(eqx.Module):
    weight: jax.Array

    def __call__(self, tokens):
        return jnp.sum(tokens) * self.weight


@pytest.mark.parametrize(
    "thing,words",
    [
        (
            TwoNumbers(jnp.ones(2)),
            r"TwoNumbers returns 'float64\[2\]' for one sequence; it must return one real number",
        ),
        (NoCall(jnp.ones(2)), "NoCall"),
        (NothingTrains(), "NothingTrains has no floating-point array to train"),
        (
            TakesNoMask(jnp.ones(())),
            r"TakesNoMask fails on tokens \(5, 4\) with a mask \(5,\) \(TypeError: .*takes 2 p",
        ),
        (lambda tokens, mask: tokens.sum(), "must be a MultiHead, made by"),
        (3, "model=3 must be a MultiHead, made by"),
        (mh.MultiHead, "must be a MultiHead, made by"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(thing, words):
    _, data = random_case(0)
    with pytest.raises(ValueError, match=words) as refusal:
        mh.measures.tangent_kernel(thing, data)
    assert "\n" not in str(refusal.value)
