"""Every measure on models other than the paper's: a dense Jacobian, a dense Hessian and descent by hand are the oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from model.modules import FROZEN, OTHERS, any_model, mostly

import manyheads as mh
from manyheads.model.autodiff import as_model, float64, loss_and_gradient, scores
from manyheads.model.loss import LOGISTIC

STEP, STEPS = 0.2, 6


def plain(model, data):
    """Scores and train loss as functions of one flat vector of the parameters of one copy, from the scores alone."""
    model = as_model(model)
    start, unravel = ravel_pytree(float64(model.parameters))
    objective = model.objective(data)
    y = jnp.asarray(data.labels)

    def score(vector):
        return objective.scores(unravel(vector))

    return score, (lambda vector, w: jnp.sum(w * LOGISTIC.value(y * score(vector)))), start, unravel


def descent_by_hand(model, data, weight, steps=STEPS):
    """Plain descent with jax.grad; every copy takes its own share of the gradient of its class."""
    _, loss, point, unravel = plain(model, data)
    copies = as_model(model).copies
    ones = unravel(jnp.ones_like(point))
    share = (
        ones
        if copies is None
        else jax.tree.map(lambda a: a / copies.reshape(-1, *(1,) * (a.ndim - 1)), ones)
    )
    gradient = jax.jit(jax.grad(loss))
    for _ in range(steps):
        point = point - STEP * ravel_pytree(share)[0] * gradient(point, weight)
    return point, unravel


def full_norm(model, tree):
    """The norm over all copies."""
    copies = as_model(model).copies
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    if copies is None:
        return np.sqrt(sum(np.sum(leaf**2) for leaf in leaves))
    return np.sqrt(
        sum(copies @ np.sum(leaf.reshape(len(leaf), -1) ** 2, axis=1) for leaf in leaves)
    )


@pytest.mark.parametrize("name", mostly("mlp", "low rank"))
def test_the_kernel_is_the_product_of_dense_jacobians(name):
    model, data = any_model(name)
    score, _, point, _ = plain(model, data)
    J = np.asarray(jax.jacobian(score)(point))
    for memory in (128e6, 1e5):
        kernel = mh.measures.tangent_kernel(model, data, memory=memory)
        norms = np.sqrt(np.outer(np.diag(J @ J.T), np.diag(J @ J.T)))
        assert np.max(np.abs(kernel.matrix - J @ J.T) / norms) <= kernel.accuracy < 1e-12
    mixed = mh.measures.tangent_kernel(model, data, data.subset([4, 1]))
    assert np.allclose(mixed.matrix, (J @ J.T)[:, [4, 1]], rtol=1e-10)
    single = mh.measures.tangent_kernel(model, data, dtype="float32")
    assert single.matrix.dtype == np.float32 and np.allclose(
        single.matrix, J @ J.T, rtol=1e-3, atol=1e-4
    )
    assert kernel.form == "autodiff" and list(kernel.parts) == ["parameters"]
    assert str(kernel).startswith("tangent kernel 7x7 of ") and "readout share" not in str(kernel)
    with pytest.raises(ValueError, match="form='maps' is a closed form of MultiHead"):
        mh.measures.tangent_kernel(model, data, form="maps")


@pytest.mark.parametrize("name", mostly("mlp"))
def test_the_curvature_is_that_of_the_dense_hessian(name):
    model, data = any_model(name)
    score, loss, point, _ = plain(model, data)
    n = data.num_examples
    values = np.linalg.eigvalsh(jax.hessian(loss)(point, jnp.full(n, 1 / n)))
    for method in ("dense", "lanczos"):
        found = mh.measures.loss_curvature(model, data, method=method, tolerance=1e-9)
        assert found.converged and found.num_parameters == len(values)
        assert found.smallest.value == pytest.approx(values[0], abs=1e-8 * np.abs(values).max())
        assert found.largest.value == pytest.approx(values[-1], rel=1e-8)
    assert np.allclose(
        mh.measures.loss_spectrum(model, data).eigenvalues,
        values,
        atol=1e-12 * np.abs(values).max(),
    )
    one = np.linalg.eigvalsh(jax.hessian(lambda vector: score(vector)[2])(point))
    found = mh.measures.score_curvature(model, data, 2)
    assert found.smallest.value == pytest.approx(one[0], abs=1e-10 * np.abs(one).max())
    assert found.largest.value == pytest.approx(one[-1], abs=1e-10 * np.abs(one).max())
    density = mh.measures.spectral_density(model, data, num_probes=20, key=jax.random.key(0))
    assert abs(density.trace - values.sum()) <= 5 * density.trace_error + 1e-9


@pytest.mark.parametrize("name", mostly("mlp", "readout frozen", among=OTHERS + FROZEN))
def test_descent_is_that_by_hand_and_the_other_block_stays(name):
    model, data = any_model(name)
    n = data.num_examples
    point, unravel = descent_by_hand(model, data, jnp.full(n, 1 / n))
    run = mh.train(model, data, rule=mh.GD(STEP), num_steps=STEPS, dtype="float64", snapshots=[3])
    got, want = jax.tree.leaves(run.final.parameters), jax.tree.leaves(unravel(point))
    assert all(np.allclose(a, b, rtol=1e-10, atol=1e-12) for a, b in zip(got, want, strict=True))
    value, gradient = loss_and_gradient(run.final, data, LOGISTIC)
    assert run.train_loss[-1] == pytest.approx(value, rel=1e-12)
    assert run.gradient_norm[-1] == pytest.approx(full_norm(model, gradient), rel=1e-10)
    assert run.margin[-1] == pytest.approx(np.min(data.labels * scores(run.final, data)), rel=1e-10)
    if name in FROZEN:
        block = name.split()[0]
        assert np.array_equal(getattr(run.final.full, block), getattr(model.full, block))


@pytest.mark.parametrize("name", mostly("mlp", "readout frozen", among=OTHERS + FROZEN))
def test_leaving_one_out_is_training_without_it(name):
    model, data = any_model(name)
    n = data.num_examples
    found = mh.measures.leave_one_out(model, data, step_size=STEP, num_steps=STEPS, indices=[1, 4])
    here, unravel = descent_by_hand(model, data, jnp.full(n, 1 / n))
    for row, i in enumerate((1, 4)):
        there, _ = descent_by_hand(model, data, jnp.full(n, 1 / n).at[i].set(0.0))
        distance = full_norm(model, unravel(here - there))
        assert found.distance[row, -1] == pytest.approx(distance, rel=1e-9)
        score = plain(model, data)[0](there)[i]
        want = float(LOGISTIC.value(data.labels[i] * score))
        assert found.left_out_loss[row, -1] == pytest.approx(want, rel=1e-9)
    assert 0 < found.accuracy < 1e-9 and 0 < found.loss_accuracy < 1e-9


@pytest.mark.parametrize("name", mostly("low rank", "key_query frozen", among=OTHERS + FROZEN))
def test_the_mean_loss_of_a_run_is_explained(name):
    model, data = any_model(name)
    parts = mh.theory.explain_run(model, data, step_size=STEP, num_steps=STEPS)
    assert {part.target.name for part in parts} == {
        "the proximal target",
        "the end of a run 2 times as long",
    }
    for part in parts:
        assert abs(part.residual) <= part.rounding
        assert part.mean_loss <= part.bound
    run = mh.train(model, data, rule=mh.GD(STEP), num_steps=STEPS, dtype="float64", record="all")
    assert parts[0].mean_loss == pytest.approx(run.train_loss[1:].mean(), rel=1e-10)


@pytest.mark.parametrize("name", mostly("mlp", "readout frozen", among=OTHERS + FROZEN))
def test_margins_risk_and_drift(name):
    model, data = any_model(name)
    score, _, point, _ = plain(model, data)
    J = np.asarray(jax.jacobian(score)(point))
    copies = as_model(model).copies
    if copies is not None:  # per copy, then over all copies
        _, unravel = ravel_pytree(float64(model.parameters))
        rows = [jax.tree.leaves(unravel(jnp.asarray(row))) for row in J]
        root = 1 / np.sqrt(copies)
        J = np.array(
            [
                np.concatenate([np.ravel(a * root.reshape(-1, *(1,) * (a.ndim - 1))) for a in r])
                for r in rows
            ]
        )
    kernel = mh.measures.tangent_kernel(model, data)
    by_kernel = mh.measures.hard_margin(
        data.labels, gram=kernel.matrix, gram_accuracy=kernel.accuracy
    )
    by_rows = mh.measures.hard_margin(data.labels, features=J)
    assert by_kernel.lower <= by_rows.upper and by_rows.lower <= by_kernel.upper
    ladder = mh.measures.margin_ladder(
        model, data, num_starts=1, num_steps=0, key=jax.random.key(0)
    )
    assert ladder.tangent.upper == pytest.approx(by_kernel.upper, rel=1e-9)
    assert (ladder.iterate is None) == (name in OTHERS) and "tangent scale" in str(ladder)
    risk = mh.measures.risk(model, data, data)
    assert risk.train_error == np.mean(data.labels * np.asarray(score(point)) <= 0)
    run = mh.train(model, data, rule=mh.GD(STEP), num_steps=STEPS, dtype="float64", snapshots=[3])
    drift = mh.measures.kernel_drift(run, data)
    later = mh.measures.tangent_kernel(run.model(3), data).matrix
    change = np.linalg.norm(later - kernel.matrix) / np.linalg.norm(kernel.matrix)
    assert drift.relative_change[1] == pytest.approx(change, rel=1e-9)
    along = mh.measures.curvature_along(run, data, steps=[0, STEPS])
    between = mh.measures.curvature_on_segment(run.start, run.final, data, num_points=2)
    assert np.allclose(along.largest, between.largest, rtol=1e-9)


def test_what_needs_attention_says_so():
    model, data = any_model("mlp")
    mixture = mh.TokenizedMixture(
        num_tokens=5, dim=4, num_patterns=1, sparsity=0.4, signal=1.0, key=jax.random.key(0)
    )
    with pytest.raises(
        ValueError,
        match="must be a Trajectory or a MultiHead or a Frozen; train and frozen make them",
    ):
        mh.measures.attention_focus(model, data)
    with pytest.raises(ValueError, match="moves both blocks of a MultiHead; leave mixture= out"):
        mh.measures.margin_ladder(
            model, data, mixture=mixture, num_starts=1, num_steps=0, key=jax.random.key(0)
        )
    half, data = any_model("readout frozen")
    whole = mh.measures.attention_focus(half.full, data)
    assert np.array_equal(mh.measures.attention_focus(half, data).saturation, whole.saturation)
    other = mh.frozen(
        half.full.replace_heads((half.full.key_query, 2 * half.full.readout)), "readout"
    )
    with pytest.raises(ValueError, match="differ in what does not train"):
        mh.measures.curvature_on_segment(half, other, data)
