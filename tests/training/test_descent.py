import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import manyheads as mh
from manyheads.model import gradient
from manyheads.model.loss import LOGISTIC, Loss
from manyheads.training import loop
from manyheads.training.rules import RULES

MIX = dict(
    num_tokens=4,
    dim=6,
    num_patterns=2,
    sparsity=0.5,
    signal=1.5,
    noise_mu=0.1,
    noise_nu=0.1,
    noise_norm=0.4,
)


@pytest.fixture(scope="module")
def mixture():
    return mh.TokenizedMixture(**MIX, key=jax.random.key(0))


@pytest.fixture(scope="module")
def data(mixture):
    return mixture.sample(20, key=jax.random.key(1))


@pytest.fixture(scope="module")
def gaussian():
    return mh.gaussian_start(3, num_tokens=4, dim=6, key=jax.random.key(2))


def plain_run(model, data, num_steps, update):
    """Descent by autodiff of the plain formula, one Python step at a time; `update(gradient, loss, step)` is the move."""
    X, y, N = jnp.asarray(data.tokens), jnp.asarray(data.labels), model.multiplicity

    @jax.jit
    def value_and_grad(heads):
        def loss(heads):
            return jnp.mean(jnp.logaddexp(0, -y * jax.vmap(model.replace_heads(heads))(X)))

        value, by_class = jax.value_and_grad(loss)(heads)
        return value, jax.tree.map(lambda g: g / N.reshape(-1, *(1,) * (g.ndim - 1)), by_class)

    heads, losses = jax.tree.map(jnp.asarray, model.heads), []
    for k in range(num_steps + 1):
        value, gradient = value_and_grad(heads)
        losses.append(float(value))
        heads = jax.tree.map(jnp.add, heads, update(gradient, value, k))
    return np.array(losses)


def length(model, gradient):
    N = model.multiplicity
    return jnp.sqrt(
        sum(jnp.sum(N.reshape(-1, *(1,) * (g.ndim - 1)) * g**2) for g in jax.tree.leaves(gradient))
    )


def scaled(gradient, factor):
    return jax.tree.map(lambda g: -factor * g, gradient)


@pytest.mark.parametrize("rule", ["gd", "normalized", "polyak"])
def test_descent_equals_a_loop_of_autodiff(mixture, data, rule):
    model = mh.first_phase(mixture.sample(30, key=jax.random.key(5)), 7)

    def update(gradient, loss, _):
        size = length(model, gradient)
        return scaled(
            gradient,
            {"gd": 0.3, "normalized": 0.3 / size, "polyak": jnp.minimum(0.3, loss / size**2)}[rule],
        )

    run = mh.train(model, data, rule=RULES[rule](0.3), num_steps=25, record="all", dtype="float64")
    assert np.allclose(run.train_loss, plain_run(model, data, 25, update), rtol=1e-12)


def test_adam_equals_optax_on_every_single_head(mixture, data):
    model = mh.first_phase(mixture.sample(30, key=jax.random.key(5)), 7)
    options = dict(rule=mh.Adam(0.02), num_steps=30, record="all", dtype="float64")
    classes, heads = (mh.train(m, data, **options) for m in (model, mh.expand(model)))
    by_hand = mh.train(
        mh.expand(model),
        data,
        rule=optax.adam(0.02),
        num_steps=30,
        record="all",
        dtype="float64",
    )
    assert np.allclose(heads.train_loss, by_hand.train_loss, rtol=1e-12)
    assert np.allclose(classes.train_loss, heads.train_loss, rtol=1e-11)


def test_an_optax_transform_of_the_whole_vector_acts_on_classes_as_on_heads(mixture, data):
    model = mh.first_phase(mixture.sample(30, key=jax.random.key(5)), 7)
    clipped = optax.chain(optax.clip_by_global_norm(0.05), optax.sgd(0.3, momentum=0.9))
    options = dict(
        num_steps=30, record="all", dtype="float64", rule=mh.Optax(clipped, coordinates="class")
    )
    classes, heads = (mh.train(m, data, **options) for m in (model, mh.expand(model)))
    assert np.allclose(classes.train_loss, heads.train_loss, rtol=1e-11)
    assert classes.train_loss[-1] < classes.train_loss[0]


def test_records_are_what_they_say(mixture, data):
    model = mh.first_phase(mixture.sample(30, key=jax.random.key(5)), 6)
    test = mixture.sample(40, key=jax.random.key(6))
    run = mh.train(
        model,
        data,
        rule=mh.GD(0.5),
        num_steps=40,
        test=test,
        record=[7, 20],
        snapshots="records",
        dtype="float64",
    )
    assert (
        run.steps.tolist() == run.snapshot_steps.tolist() == [0, 7, 20, 40]
        and run.status == "finished"
    )
    for i, k in enumerate(run.steps):
        at = run.model(k)
        margins = data.labels * at.scores(data)
        assert np.isclose(run.train_loss[i], np.logaddexp(0, -margins).mean(), rtol=1e-12)
        assert np.isclose(
            run.test_loss[i], np.logaddexp(0, -test.labels * at.scores(test)).mean(), rtol=1e-12
        )
        assert np.isclose(run.margin[i], margins.min(), rtol=1e-12, atol=1e-13)
        expanded, start = mh.expand(at), mh.expand(model)
        moved = sum(np.sum((a - b) ** 2) for a, b in zip(expanded.heads, start.heads, strict=True))
        assert np.isclose(run.distance[i], np.sqrt(moved), rtol=1e-12, atol=1e-14)
        assert np.isclose(
            run.readout_norm[i], np.linalg.norm(expanded.readout, axis=(1, 2)).max(), rtol=1e-12
        )
        attention = np.stack([at.attention(x) for x in data.tokens])
        mass = np.stack(
            [a[:, :, r].sum((1, 2)) / 4 for a, r in zip(attention, data.relevant, strict=True)]
        ).mean(0)
        assert np.allclose(run.attention_mass[i], mass, rtol=1e-12)


def test_the_same_call_gives_the_same_bits_and_another_chunk_the_same_numbers(
    data, gaussian, monkeypatch
):
    options = dict(rule=mh.GD(0.2), num_steps=50, record="all", dtype="float64")
    once, again = (mh.train(gaussian, data, **options) for _ in range(2))
    monkeypatch.setattr(gradient, "chunk_size", lambda *_: 3)
    other = mh.train(gaussian, data, **options)
    assert np.array_equal(once.train_loss, again.train_loss)
    assert all(
        np.array_equal(a, b) for a, b in zip(once.displacement, again.displacement, strict=True)
    )
    assert np.allclose(once.train_loss, other.train_loss, rtol=1e-11)


def test_dtype_is_float32_unless_asked_or_many_heads(mixture, data, gaussian):
    for named in ({}, {"dtype": None}, {"dtype": "tf32"}):
        run = mh.train(gaussian, data, rule=mh.GD(0.1), num_steps=2, **named)
        assert run.settings["dtype"] == "float32"
    assert (
        mh.train(gaussian, data, rule=mh.GD(0.1), num_steps=2, dtype="float64").settings["dtype"]
        == "float64"
    )
    assert (
        mh.train(
            mh.zero_start(1e6, num_tokens=4, dim=6), data, rule=mh.GD(0.1), num_steps=2
        ).settings["dtype"]
        == "float64"
    )
    single = mh.train(gaussian, data, rule=mh.GD(0.2), num_steps=60)
    double = mh.train(gaussian, data, rule=mh.GD(0.2), num_steps=60, dtype="float64")
    assert single.train_loss.dtype == np.float32
    assert np.allclose(single.train_loss, double.train_loss, rtol=2e-5) and not np.array_equal(
        single.train_loss, double.train_loss
    )


def test_runs_without_double_precision_being_on(mixture, data, gaussian):
    with jax.enable_x64(False):
        run = mh.train(gaussian, data, rule=mh.GD(0.2), num_steps=20, dtype="float64", record="all")
    assert run.train_loss.dtype == np.float64
    inside = mh.train(gaussian, data, rule=mh.GD(0.2), num_steps=20, dtype="float64", record="all")
    assert np.array_equal(run.train_loss, inside.train_loss)


def test_another_number_of_heads_or_another_step_size_does_not_compile_again(mixture, data):
    traces = []

    def value(m):
        traces.append(1)
        return LOGISTIC.value(m)

    counting = Loss("counting", value, LOGISTIC.slope, LOGISTIC.curvature, 1.0, 0.25, 1.0)
    fresh = mixture.sample(30, key=jax.random.key(5))
    mh.train(
        mh.first_phase(fresh, 4), data, rule=mh.GD(0.1), num_steps=5, loss=counting, dtype="float64"
    )
    compiled = len(traces)
    assert compiled >= 1
    mh.train(
        mh.first_phase(fresh, 1e12),
        data,
        rule=mh.GD(0.3),
        num_steps=5,
        loss=counting,
        dtype="float64",
    )
    assert len(traces) == compiled


def test_a_run_compiles_its_loop_once(data, caplog):
    model = mh.gaussian_start(5, num_tokens=4, dim=6, key=jax.random.key(2))  # a shape of its own
    with jax.log_compiles():
        half = mh.train(model, data, rule=mh.GD(0.1), num_steps=50, record=[20])
        mh.train(model, data, rule=mh.GD(0.1), num_steps=50, record=[20], resume=half)
    assert sum("Compiling jit(advance)" in line.getMessage() for line in caplog.records) == 1


def pulled_back(rate=0.2, pull=0.3):
    """Descent with a spring to where it began: a transform that remembers its first parameters."""

    def update(gradient, state, params):
        return jax.tree.map(
            lambda g, p, p0: -rate * g - pull * (p - p0), gradient, params, state
        ), state

    return optax.GradientTransformation(lambda params: params, update)


@pytest.mark.parametrize("coordinates", ["head", "class"])
def test_an_optax_transform_begins_at_the_start(mixture, data, coordinates):
    model = mh.first_phase(mixture.sample(20, key=jax.random.key(5)), 6)
    rule = mh.Optax(pulled_back(), coordinates=coordinates)
    run = mh.train(model, data, rule=rule, num_steps=12, dtype="float64")
    start = model.heads
    moved = jax.tree.map(np.zeros_like, start)
    for _ in range(12):
        point = mh.MultiHead(*jax.tree.map(np.add, start, moved), model.multiplicity)
        gradient = mh.train(
            point, data, rule=mh.GD(1.0), num_steps=1, dtype="float64"
        ).displacement  # minus the gradient
        moved = jax.tree.map(lambda g, m: m + 0.2 * g - 0.3 * m, gradient, moved)
    assert all(
        np.allclose(a, b, rtol=1e-10, atol=1e-13)
        for a, b in zip(run.displacement, moved, strict=True)
    )


def test_a_typed_key_in_an_optimizer_is_refused_before_the_work(data, gaussian):
    noisy = optax.GradientTransformation(
        lambda _: jax.random.key(0), lambda g, state, params=None: (g, state)
    )
    with pytest.raises(ValueError, match="typed random key"):
        mh.train(gaussian, data, rule=noisy, num_steps=3)


def test_a_pooled_readout_counts_for_every_token(data):
    model = mh.gaussian_start(3, num_tokens=4, dim=6, decoder="pooled", key=jax.random.key(2))
    last = mh.gaussian_start(3, num_tokens=4, dim=6, decoder="last", key=jax.random.key(2))
    for start, copies in ((model, 4), (last, 1)):
        run = mh.train(start, data, rule=mh.GD(0.1), num_steps=0, dtype="float64")
        matrices = [np.outer(np.ones(copies), u) for u in start.readout]
        assert np.isclose(run.readout_norm[0], max(map(np.linalg.norm, matrices)), rtol=1e-12)


def test_stretches_stay_short_after_dense_snapshots(data, gaussian, monkeypatch):
    clock, spans, advance = [0.0], [], loop.advance

    def slow(problem, observers, state, until, last):  # a step takes 10 ms by this clock
        spans.append(int(until) - int(state.step))
        clock[0] += 0.01 * spans[-1]
        return advance(problem, observers, state, until, last)

    monkeypatch.setattr(loop, "advance", slow)
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    mh.train(gaussian, data, rule=mh.GD(0.1), num_steps=400, snapshots=range(30))
    assert max(spans) <= loop.STRETCH_SECONDS / 0.01 and max(spans) >= 10


def test_a_diverged_run_keeps_no_snapshot_of_the_bad_point(data, gaussian):
    ever_larger = optax.sgd(lambda step: 10.0**step)
    options = dict(rule=ever_larger, num_steps=80, record="all", snapshots="records")
    run = mh.train(gaussian, data, **options)
    assert run.status == "diverged" and run.snapshot_steps.tolist() == list(
        range(run.last_step + 1)
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.snapshots))


def test_divergence_ends_with_a_status_and_the_last_good_step(data, monkeypatch):
    flipped = mh.Dataset.from_arrays(
        np.concatenate([data.tokens, data.tokens]), np.concatenate([data.labels, -data.labels])
    )
    model = mh.gaussian_start(2, num_tokens=4, dim=6, key=jax.random.key(3))
    ever_larger = optax.sgd(lambda step: 10.0**step)
    for stretch in (0.2, 1e-6):  # found inside a stretch, and at the first step of one
        monkeypatch.setattr(loop, "STRETCH_SECONDS", stretch)
        run = mh.train(model, flipped, rule=ever_larger, num_steps=100, record="all")
        assert run.status == "diverged" and 5 < run.last_step < 60
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.displacement))
        assert np.isfinite(run.train_loss).all() and run.steps[-1] == run.last_step
        exact = mh.train(model, flipped, rule=ever_larger, num_steps=run.last_step, record="all")
        assert exact.status == "finished"
        assert all(
            np.array_equal(a, b) for a, b in zip(run.displacement, exact.displacement, strict=True)
        )
        assert np.array_equal(run.train_loss, exact.train_loss)


def test_a_start_that_is_not_finite_is_no_good_step(data, gaussian):
    huge = mh.Dataset.from_arrays(1e25 * data.tokens, data.labels)
    run = mh.train(gaussian, huge, rule=mh.GD(0.1), num_steps=3)
    assert (
        run.status == "diverged"
        and len(run.steps) == 0
        and "float32: not finite at its start" in str(run)
    )


def test_ctrl_c_keeps_what_was_done_and_the_run_resumes_to_the_same_bits(
    data, gaussian, monkeypatch, tmp_path
):
    options = dict(rule=mh.Adam(0.2), num_steps=300, record="log", snapshots=[50, 200])
    whole = mh.train(gaussian, data, **options)
    calls = []

    def interrupting(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return loop_advance(*arguments)

    loop_advance = loop.advance
    monkeypatch.setattr(loop, "advance", interrupting)
    monkeypatch.setattr(loop, "STRETCH_SECONDS", 1e-3)
    part = mh.train(gaussian, data, checkpoint=tmp_path / "run.npz", **options)
    assert part.status == "interrupted" and 0 < part.last_step < 300
    rest = mh.train(gaussian, data, resume=tmp_path / "run.npz", **options)
    assert rest.status == "finished"
    for name in (
        "steps",
        "train_loss",
        "gradient_norm",
        "distance",
        "readout_norm",
        "margin",
        "attention_mass",
        "snapshot_steps",
    ):
        assert np.array_equal(getattr(rest, name), getattr(whole, name)), name
    for a, b in zip(
        jax.tree.leaves((rest.snapshots, rest.displacement)),
        jax.tree.leaves((whole.snapshots, whole.displacement)),
        strict=True,
    ):
        assert np.array_equal(a, b)


def test_a_run_resumes_only_as_itself(mixture, data, gaussian):
    test = mixture.sample(10, key=jax.random.key(8))
    options = dict(rule=mh.GD(0.2), num_steps=10, test=test)
    half = mh.train(gaussian, data, **options)
    other = mh.Dataset.from_arrays(data.tokens + 0.1, data.labels, relevant=data.relevant)
    exponent = mh.MultiHead.create(gaussian.key_query, gaussian.readout, exponent=1.0)
    for model, dataset, more, words in (
        (gaussian, other, {}, "made with other data or sample weights"),
        (
            gaussian,
            data,
            {"loss": mh.Weighted(np.arange(20.0))},
            "made with other data or sample weights",
        ),
        (
            gaussian,
            data,
            {"test": mixture.sample(10, key=jax.random.key(9))},
            "made with other test data, or none",
        ),
        (gaussian, data, {"test": None}, "made with other test data, or none"),
        (exponent, data, {}, "began from another model"),
        (
            gaussian,
            data,
            {"snapshots": [3, 15]},
            r"snapshots=\[3\] lie before step 10, where the run resumes",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            mh.train(model, dataset, resume=half, **{**options, "num_steps": 20, **more})


def test_a_finished_run_can_be_made_longer(data, gaussian):
    options = dict(rule=mh.GD(0.2), record=10, dtype="float64")
    longer = mh.train(
        gaussian,
        data,
        num_steps=60,
        resume=mh.train(gaussian, data, num_steps=30, **options),
        **options,
    )
    assert np.array_equal(
        longer.train_loss, mh.train(gaussian, data, num_steps=60, **options).train_loss
    )


def test_a_small_run_pays_no_python_per_step(monkeypatch):
    data = mh.TokenizedMixture(
        num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, frame="axis"
    ).sample(100, key=jax.random.key(0))
    model = mh.gaussian_start(8, num_tokens=4, dim=6, key=jax.random.key(1))
    mh.train(model, data, rule=mh.GD(0.1), num_steps=1000)
    calls, advance = [], loop.advance
    monkeypatch.setattr(loop, "advance", lambda *a: (calls.append(1), advance(*a))[1])
    began = time.monotonic()
    mh.train(model, data, rule=mh.GD(0.1), num_steps=1000)
    assert len(calls) <= 40 + 10 * (time.monotonic() - began)


def test_a_sample_left_out_by_its_weight_is_not_seen(data, gaussian):
    n = data.num_examples
    weight = np.full(n, 1 / n)
    weight[3] = 0
    left_out = mh.train(
        gaussian, data, rule=mh.GD(0.2), num_steps=20, loss=mh.Weighted(weight), dtype="float64"
    )
    shorter = mh.train(
        gaussian, data.without(3), rule=mh.GD(0.2 * (n - 1) / n), num_steps=20, dtype="float64"
    )
    for a, b in zip(left_out.displacement, shorter.displacement, strict=True):
        assert np.allclose(a, b, atol=1e-14)
