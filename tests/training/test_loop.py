"""The loop itself: observers, any model, divergence, many runs as a vmap."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import manyheads as mh
from manyheads.model.protocol import Model
from manyheads.training import loop
from manyheads.training.loop import RUNS, Observer, descend, whole_run
from manyheads.training.problem import make_problem
from manyheads.training.rules import GD, RULES


class PooledObjective(eqx.Module):
    pooled: jax.Array
    labels: jax.Array
    copies: jax.Array

    def scores(self, parameters):
        return (
            jnp.tanh(self.pooled @ parameters["hidden"]) @ parameters["out"] + parameters["shift"]
        )

    def loss_and_gradient(self, parameters, sample_weight, *, loss, precision=None):
        scores, back = jax.vjp(self.scores, parameters)
        margins = self.labels * scores
        slopes = sample_weight * loss.slope(margins) * self.labels
        return jnp.sum(sample_weight * loss.value(margins)), scores, back(slopes)[0]

    def replaced(self, i, other):
        swap = lambda a, b: a.at[i].set(b[i])  # noqa: E731
        return PooledObjective(
            swap(self.pooled, other.pooled), swap(self.labels, other.labels), self.copies
        )

    def some(self, indices):
        return PooledObjective(self.pooled[indices], self.labels[indices], self.copies)


class Pooled:
    """A two-layer network on the mean token: a model without a base class, with a scalar among its leaves."""

    copies = None

    def __init__(self, parameters):
        self.parameters = parameters

    def displaced(self, displacement):
        return Pooled(
            jax.tree.map(lambda a, b: np.asarray(a) + np.asarray(b), self.parameters, displacement)
        )

    def objective(self, dataset, dtype=np.float64, chunk=None, platform="cpu"):
        return PooledObjective(
            dataset.tokens.mean(1).astype(dtype), dataset.labels.astype(dtype), np.ones(1, dtype)
        )


@pytest.fixture(scope="module")
def data():
    mix = mh.TokenizedMixture(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, frame="axis")
    return mix.sample(12, key=jax.random.key(1))


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(0)
    return Pooled(
        {
            "hidden": rng.standard_normal((6, 5)),
            "out": rng.standard_normal(5),
            "shift": np.array(0.1),
        }
    )


@pytest.fixture(scope="module")
def attention():
    return mh.gaussian_start(2, num_tokens=4, dim=6, key=jax.random.key(2))


def displacement(view):
    return view.displacement


def distance_to(view, place):
    return sum(
        jnp.sum((a - b) ** 2) for a, b in zip(view.displacement, place, strict=True)
    ), view.step


def test_an_observer_keeps_what_it_sees_at_its_steps(attention, data):
    problem = make_problem(attention, data, GD(0.3))
    place = jax.tree.map(np.ones_like, attention.heads)
    run, seen = descend(
        problem,
        {
            "path": Observer(displacement),
            "far": Observer(distance_to, np.array([0, 7, 20]), (place,)),
        },
        20,
    )
    squares, steps = seen["far"]
    assert steps.tolist() == [0, 7, 20] and seen["path"].readout.shape == (
        21,
        *attention.readout.shape,
    )
    assert np.array_equal(seen["path"].readout[20], run.displacement.readout)
    for k, square in zip(steps, squares, strict=True):
        exact = mh.train(
            attention, data, rule=mh.GD(0.3), num_steps=int(k), dtype="float64"
        ).displacement
        assert all(np.array_equal(a[k], b) for a, b in zip(seen["path"], exact, strict=True))
        assert square == pytest.approx(sum(np.sum((a - 1) ** 2) for a in exact), rel=1e-12)


def test_the_same_observer_compiles_once(attention, data, caplog):
    observers = {"path": Observer(displacement)}
    with jax.log_compiles():
        for rate in (0.1, 0.2):
            descend(make_problem(attention, data, GD(rate), dtype=np.float32), observers, 11)
    assert sum("Compiling jit(advance)" in line.getMessage() for line in caplog.records) == 1


def test_many_runs_are_a_vmap(network, data):
    problem = make_problem(network, data, GD(0.3))
    observers = {"path": Observer(displacement, np.arange(0, 11, 5))}

    def one(rate):
        return whole_run(
            eqx.tree_at(lambda p: p.rule.step_size, problem, rate), observers, 10, RUNS
        )

    with jax.enable_x64(True):
        many = jax.jit(jax.vmap(one, axis_name=RUNS))(np.array([0.1, 0.3, np.inf]))
    alone, seen = descend(problem, observers, 10)
    for a, b in zip(jax.tree.leaves(many.kept["path"]), jax.tree.leaves(seen["path"]), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-12, atol=1e-14)
    assert (
        many.finite.tolist() == [True, True, False] and many.evaluated[2] < 11 == many.evaluated[1]
    )


def test_after_a_divergence_rows_are_nan_and_the_run_stands_at_its_last_finite_point(network, data):
    endless = jax.tree.map(lambda _: np.inf, GD(1.0))  # which GD itself refuses
    problem = make_problem(network, data, endless)
    run, seen = descend(problem, {"path": Observer(displacement)}, 10)
    last = int(run.evaluated) - 1
    assert not run.finite and last == 0
    assert (
        np.isnan(seen["path"]["out"][last + 1 :]).all()
        and np.isfinite(seen["path"]["out"][: last + 1]).all()
    )
    assert np.array_equal(seen["path"]["out"][last], run.displacement["out"])


@pytest.mark.parametrize("optimizer", ["gd", "normalized", "polyak", "adam"])
def test_any_model_is_trained_like_autodiff_does(network, data, optimizer):
    assert isinstance(network, Model)
    run = mh.train(
        network,
        data,
        rule=RULES[optimizer](0.1),
        num_steps=30,
        dtype="float64",
        record="all",
    )
    assert run.readout_norm is None and run.attention_mass is None and run.status == "finished"
    X, y = data.tokens.mean(1), data.labels

    def loss(p):
        return jnp.mean(jnp.logaddexp(0, -y * (jnp.tanh(X @ p["hidden"]) @ p["out"] + p["shift"])))

    p = jax.tree.map(jnp.asarray, network.parameters)
    adam = optax.adam(0.1)
    state = adam.init(p)
    for k in range(31):
        value, g = jax.value_and_grad(loss)(p)
        if optimizer == "adam" and value < 2e-3:
            break  # from there on its steps are in units of the largest weight
        assert run.train_loss[k] == pytest.approx(float(value), rel=1e-11)
        size = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(g)))
        rate = {
            "gd": 0.1,
            "normalized": 0.1 / size,
            "polyak": jnp.minimum(0.1, value / size**2),
            "adam": 0,
        }[optimizer]
        moves, state = adam.update(g, state)
        p = jax.tree.map(
            lambda a, b, m, rate=rate: a + m if optimizer == "adam" else a - rate * b, p, g, moves
        )


def test_a_run_of_any_model_is_saved_loaded_and_resumed(network, data, tmp_path):
    options = dict(rule=mh.Adam(0.1), record=5, snapshots="records")
    whole = mh.train(network, data, num_steps=30, **options)
    mh.train(network, data, num_steps=15, checkpoint=tmp_path / "run.npz", **options)
    rest = mh.train(network, data, num_steps=30, resume=tmp_path / "run.npz", **options)
    assert np.array_equal(rest.train_loss, whole.train_loss)
    with pytest.raises(ValueError, match="holds a run of a Pooled; pass like="):
        mh.Trajectory.load(tmp_path / "run.npz")
    other = Pooled(jax.tree.map(lambda a: a * 1e-3 - 5, network.parameters))
    back = mh.Trajectory.load(tmp_path / "run.npz", like=other)
    for a, b in zip(
        jax.tree.leaves(back.start.parameters), jax.tree.leaves(network.parameters), strict=True
    ):
        assert np.array_equal(a, b)
    with pytest.raises(ValueError, match="another shape than like="):
        mh.Trajectory.load(tmp_path / "run.npz", like=mh.zero_start(2, num_tokens=4, dim=6))


def test_leave_one_out_of_any_model_is_training_without_an_example(network, data):
    found = mh.measures.leave_one_out(network, data, step_size=0.2, num_steps=20, indices=[0, 3])
    weight = np.full(12, 1 / 12)
    whole = mh.train(network, data, rule=mh.GD(0.2), num_steps=20, dtype="float64").displacement
    for row, i in zip(found.distance, (0, 3), strict=True):
        share = np.where(np.arange(12) == i, 0, weight)
        twin = mh.train(
            network, data, rule=mh.GD(0.2), num_steps=20, loss=mh.Weighted(share), dtype="float64"
        ).displacement
        exact = np.sqrt(sum(np.sum((whole[name] - twin[name]) ** 2) for name in whole))
        assert abs(row[-1] - exact) <= found.accuracy < 1e-9


def mean_score(parameters, data):
    model = mh.MultiHead(parameters.key_query, parameters.readout, np.ones(2))
    return jnp.mean(jax.vmap(model)(data.tokens)), data.labels.sum()


def test_a_function_of_the_user_is_recorded_saved_loaded_and_resumed(attention, data, tmp_path):
    def row(parameters, data):
        return jnp.stack(mean_score(parameters, data))

    options = dict(
        rule=mh.GD(0.2),
        record=10,
        snapshots="records",
        observe={"mean and sum": row},
        dtype="float64",
    )
    whole = mh.train(attention, data, num_steps=40, **options)
    seen = whole.observed["mean and sum"]
    for k, (mean, total) in zip(whole.steps, seen, strict=True):
        assert (
            mean == pytest.approx(whole.model(k).scores(data).mean(), rel=1e-12)
            and total == data.labels.sum()
        )
    mh.train(attention, data, num_steps=20, checkpoint=tmp_path / "run.npz", **options)
    assert np.array_equal(
        mh.Trajectory.load(tmp_path / "run.npz").observed["mean and sum"], seen[:3]
    )
    rest = mh.train(attention, data, num_steps=40, resume=tmp_path / "run.npz", **options)
    assert np.array_equal(rest.observed["mean and sum"], seen)
    plain = mh.train(attention, data, num_steps=40, **{**options, "observe": None})
    assert plain.train_loss == pytest.approx(whole.train_loss, rel=1e-14) and plain.observed == {}
    with pytest.raises(ValueError, match="the run to resume has no observed mean and sum"):
        mh.train(attention, data, num_steps=50, resume=plain, **options)
    with pytest.raises(ValueError, match="must map names to functions"):
        mh.train(attention, data, num_steps=5, **{**options, "observe": row})


def test_a_compiled_function_keeps_a_bounded_number_of_programs(monkeypatch):
    monkeypatch.setattr(loop, "MOST_PROGRAMS", 3)
    traced = []

    def double(array):
        traced.append(array.shape)
        return 2 * array

    twice = loop.forgetful(jax.jit(double))
    for size in (1, 2, 3, 2, 1, 3):
        assert np.array_equal(twice(np.ones(size)), 2 * np.ones(size))
    assert traced == [(1,), (2,), (3,)]
    twice(np.ones(4))  # a fourth: the others are forgotten
    twice(np.ones(4))
    twice(np.ones(1))
    assert traced == [(1,), (2,), (3,), (4,), (1,)]
