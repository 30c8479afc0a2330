"""The forecast: the known table, promises kept, bounds against autodiff for every decoder, and what it refuses."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from followed import compared
from paper_settings import setting

import manyheads as mh
from manyheads.measures.neighborhood import Neighborhood
from manyheads.model.attention import Heads
from manyheads.model.loss import LOGISTIC
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026 import attack, region
from manyheads.theory.manyheads2026 import forecast as lens
from manyheads.theory.manyheads2026.forecast import FORECAST
from manyheads.theory.manyheads2026.region import Center, margin_box
from manyheads.theory.verdict import Verdict


def run_of(name: str, heads: float, steps: int) -> mh.Trajectory:
    s = setting(name)
    start = mh.first_phase(s.fresh, heads)
    return mh.train(
        start, s.dataset, rule=mh.GD(s.step_size), num_steps=steps, dtype="float64", record="all"
    )


# promised at most (a finer grid promises less), measured: the table of the derivation
@pytest.mark.parametrize(
    ("name", "heads", "step", "promised", "measured"),
    [
        ("A", 8, 0, 13, 5),
        ("B", 8, 40, 78, 27),
        pytest.param("A", 1, 8, 36, 7, marks=pytest.mark.full),
        pytest.param("C", 8, 60, 289, 46, marks=pytest.mark.full),
    ],
)
def test_it_speaks_at_few_heads_and_the_promise_is_kept(name, heads, step, promised, measured):
    data = setting(name).dataset
    found = mh.forecast(run_of(name, heads, step).final, data, step_size=setting(name).step_size)
    assert found.speaks and found.steps_to_reduce <= promised
    loss = run_of(name, heads, step + found.steps_to_reduce).train_loss[step:]
    assert int(np.argmax(loss <= loss[0] / 2)) == measured
    for steps, level in zip(found.steps, found.certified_loss, strict=True):
        if steps < len(loss):
            assert loss[: steps + 1].min() <= level


def test_the_curve_and_the_words():
    s = setting("A")
    found = mh.forecast(run_of("A", 8, 0), s.dataset, reduce=2)
    assert np.all(np.diff(found.certified_loss) < 0) and np.all(np.diff(found.steps) >= 0)
    assert (
        found.steps_to(found.loss) == 0 and found.steps_to(found.certified_loss[-1] * 0.99) is None
    )
    assert str(found).startswith(
        "From here, gradient descent with step size 1 is proved to halve the loss (0.693) within 12 steps"
    )
    assert "nothing is proved, because the margin over the region is no longer positive" in str(
        found
    )
    assert found.indicator == pytest.approx(1.97, abs=0.01)
    silent = mh.forecast(mh.first_phase(setting("B").fresh, 1), setting("B").dataset, step_size=0.1)
    assert (
        not silent.speaks
        and silent.steps_to_reduce is None
        and "is proved to bring the loss from 0.481 to 0.469" in str(silent)
    )


def test_ten_random_labels_are_promised_at_the_start():
    """A thousand heads and few sequences: half the loss of labels that carry no signal, from the first step on."""
    source = mh.data.RandomLabels(num_tokens=6, dim=6, token_norm=2.0)
    data, fresh = (source.sample(n, key=jax.random.key(k)) for k, n in ((1, 10), (2, 200)))
    start = mh.first_phase(fresh, 1024)
    found = mh.forecast(start, data, step_size=0.1, most_pieces=60)
    assert found.speaks and found.indicator > 0.9
    kept = compared(start, data, 0, found)
    assert kept["kept"] == kept["levels"] > 50 and kept["measured"] < kept["promised"]


@pytest.mark.full
def test_digits_are_promised_where_attention_chooses():
    """Less their mean image and from large key-query weights, at 8 heads; from weights of scale 1 hardly anything is."""
    tokens, labels = mh.data.digits().tokens, mh.data.digits().labels
    data = mh.Dataset.from_arrays((tokens - tokens[100:].mean(axis=0))[:100], labels[:100])
    for scale, speaks in ((80.0, True), (1.0, False)):
        scales = {"key_query_scale": scale, "readout_scale": 0.1}
        start = mh.gaussian_start(8, num_tokens=16, dim=4, **scales, key=jax.random.key(3))
        run = mh.train(start, data, rule=mh.GD(0.5), num_steps=100, dtype="float64")
        found = mh.forecast(run, data, most_pieces=60)
        assert found.speaks == speaks
        if speaks:
            kept = compared(start, data, 100, found)
            assert kept["kept"] == kept["levels"] > 20 and kept["measured"] <= kept["promised"]


def test_steps_of_changing_size_take_as_long_as_their_sum():
    """Sizes that fall and rise again; the descent uses them, the promise counts them."""
    s, start = setting("A"), mh.first_phase(setting("A").fresh, 8)
    sizes = 1 / (1 + np.arange(200) % 40 / 4)
    found = mh.forecast(start, s.dataset, step_size=sizes, most_pieces=60)
    constant = dataclasses.replace(found, schedule=None)
    for factor in np.linspace(
        1, 2, 40
    ):  # the last level is asked for by its own number, however its logarithm rounds
        scaled = dataclasses.replace(constant, loss=factor * constant.loss)
        assert scaled.steps_to(scaled.certified_loss[-1]) == scaled.steps[-1]
    assert (
        found.step_size == 1
        and "with step sizes of at most 1 is proved to halve the loss" in str(found)
    )
    assert np.array_equal(
        dataclasses.replace(found, schedule=np.ones(9)).steps, constant.steps[constant.steps <= 9]
    )
    for steps, level in zip(found.steps, found.certified_loss, strict=True):
        time = constant.steps_to(level)
        assert sizes[:steps].sum() > time - 1 and sizes[: steps - 1].sum() < time
    rule = mh.Optax(optax.sgd(lambda count: jnp.asarray(sizes)[count]), coordinates="head")
    loss = mh.train(
        start,
        s.dataset,
        rule=rule,
        num_steps=200,
        dtype="float64",
        record="all",
    ).train_loss
    assert np.all(np.minimum.accumulate(loss)[found.steps] <= found.certified_loss)
    short = dataclasses.replace(found, schedule=sizes[:4])
    assert (
        short.reason == "ended"
        and 0 < len(short.pieces) < len(found.pieces)
        and short.steps[-1] <= 4
    )


def test_many_sequences_go_without_a_kernel(monkeypatch):
    s, start = setting("A"), mh.first_phase(setting("A").fresh, 1024)
    exact = mh.forecast(start, s.dataset, step_size=0.5, most_pieces=20)
    monkeypatch.setattr(region, "EXACT_UP_TO", 10)
    monkeypatch.setattr(lens, "PIECE_OF_MANY", lens.PIECE)
    found = mh.forecast(start, s.dataset, step_size=0.5, most_pieces=20)
    assert found.pieces and found.nats <= exact.nats * 1.01
    loss = mh.train(
        start, s.dataset, rule=mh.GD(0.5), num_steps=int(found.steps[-1]), dtype="float64"
    ).train_loss
    assert loss.min() <= found.certified_loss[-1]


@pytest.mark.parametrize("seed", range(3))
def test_lanczos_bounds_the_largest_eigenvalue_from_above(seed):
    """Against the matrix itself; at one vector the trace that is left still bounds it."""
    s, rng = setting("A"), np.random.default_rng(seed)
    center = Center.at(
        mh.gaussian_start(3, num_tokens=4, dim=6, key=jax.random.key(seed)), s.dataset
    )
    bend = rng.uniform(0, 1, s.dataset.num_examples) ** 4
    root = np.sqrt(bend)
    exact = np.linalg.eigvalsh(root[:, None] * center.kernel * root / len(bend))[-1]
    assert exact <= region.top_eigenvalue(center, bend) <= 1.2 * exact


def test_data_that_nothing_separates_get_no_promise():
    s = setting("A")
    twice = mh.Dataset.from_arrays(np.repeat(s.dataset.tokens[:4], 2, axis=0), np.tile([1, -1], 4))
    found = mh.forecast(mh.first_phase(s.fresh, 2), twice, step_size=0.1)
    assert found.pieces == () and "is not proved to lower the loss, because no direction" in str(
        found
    )


@pytest.mark.parametrize("last", [1, 4, 30])
@pytest.mark.parametrize("slope", [0.01, 0.05, 0.3])
def test_the_first_step_is_found_wherever_the_indicator_sends_the_search(last, slope, monkeypatch):
    """Any step from which it might speak, with models that are just their steps and an indicator that grows."""
    tried = []
    monkeypatch.setattr(lens._Path, "__call__", lambda self, steps: {k: k for k in steps})
    monkeypatch.setattr(lens, "checked", lambda *_: (None, 1.0, LOGISTIC))
    monkeypatch.setattr(
        lens.Center, "at", lambda k, *_: SimpleNamespace(model=k, indicator=0.25 + slope * k)
    )
    monkeypatch.setattr(lens, "forecast", lambda k, *_, **__: k)
    data, run = setting("A").dataset, run_of("A", 8, 3)
    run = dataclasses.replace(run, last_step=last)
    for first in range(last + 2):
        tried.clear()

        def speaks(c, *_, f=first):
            tried.append(c.model)
            return SimpleNamespace(speaks=c.model >= f)

        monkeypatch.setattr(lens, "followed", speaks)
        assert lens.earliest_forecast(run, data) == (None if first > last else (first, first))
        assert len(tried) == len(set(tried)) <= 12


def test_a_promise_from_the_start_is_compared_with_the_run():
    s, start = setting("A"), mh.first_phase(setting("A").fresh, 8)
    found = compared(start, s.dataset, 0, mh.forecast(start, s.dataset, step_size=1.0))
    assert (found["promised"], found["measured"]) == (12, 5) and found["kept"] == found[
        "levels"
    ] > 20


@pytest.mark.full
def test_the_first_step_that_speaks():
    s = setting("A")
    run = run_of("A", 2, 12)
    step, found = mh.theory.first_forecast(run, s.dataset)
    assert found.speaks and step <= 8
    assert not mh.forecast(run_of("A", 2, step - 1), s.dataset).speaks
    assert mh.theory.first_forecast(run_of("B", 1, 3), setting("B").dataset) is None


def test_certify_measures_the_promise():
    s = setting("A")
    (item,) = mh.certify(run_of("A", 8, 3), s.dataset, ["forecast"])
    assert item.verdict is Verdict.HOLDS and item.measured == 5 and item.bound().value == 12
    (item,) = mh.certify(run_of("B", 1, 3), setting("B").dataset, ["forecast"])
    assert item.verdict is Verdict.SILENT and "smaller step size" in item.reason


@pytest.mark.parametrize("decoder", ["full", "pooled", "last", "query"])
@pytest.mark.parametrize("masked", [False, True])
def test_local_bounds_hold_for_every_decoder_and_mask(decoder, masked):
    rng = np.random.default_rng(0)
    counts = np.array([1.0, 50.0])
    mask = np.ones((4, 4), bool)
    mask[::2, 3] = not masked
    readout = (2, 4, 3) if decoder == "full" else (2, 3)

    @jax.jit
    def margins(start, move, tokens):
        heads = jax.tree.map(
            lambda a, m: a + m / jnp.sqrt(counts).reshape(-1, *(1,) * (m.ndim - 1)), start, move
        )
        model = mh.MultiHead(*heads, counts, decoder)
        return jax.vmap(lambda x, m: model(x, m if masked else None))(tokens, mask) * jnp.array(
            [1.0, -1.0, 1.0, -1.0]
        )

    @jax.jit
    def measured(start, move, tokens):
        features = jax.jacobian(margins, argnums=1)(start, move, tokens)
        slope = lambda t: jax.jvp(lambda u: margins(start, u, tokens), (t,), (move,))[1]  # noqa: E731
        flat = jnp.concatenate([leaf.reshape(4, -1) for leaf in features], axis=1)
        return margins(start, move, tokens), flat, jax.jvp(slope, (move,), (move,))[1]

    for radius in (0.05, 0.3, 1.0, 3.0):
        data = mh.Dataset.from_arrays(
            rng.standard_normal((4, 4, 3)), [1, -1, 1, -1], mask=mask if masked else None
        )
        key_query = (2, 3) if decoder == "query" else (2, 3, 3)
        start = Heads(rng.standard_normal(key_query), rng.standard_normal(readout))
        model = mh.MultiHead.create(*start, multiplicity=counts, decoder=decoder)
        direction = _scaled(Heads(*(rng.standard_normal(leaf.shape) for leaf in start)), 1.0)
        ball = Neighborhood(model, data)
        drift, along = ball.drift(radius), ball.margins(direction, radius)
        low, high = margin_box(Center.at(model, data), drift, radius)
        _, center, _ = measured(start, _scaled(direction, 0.0), data.tokens)
        v = np.concatenate([leaf.ravel() for leaf in direction])
        for _ in range(12):
            move = _scaled(Heads(*(rng.standard_normal(leaf.shape) for leaf in start)), radius)
            m, features, bent = map(np.asarray, measured(start, move, data.tokens))
            assert np.all((low <= m) & (m <= high))
            assert np.all(np.linalg.norm(features - center, axis=1) <= drift.gradient)
            assert np.all(features @ v >= along)
            assert np.all(np.abs(bent) / radius**2 <= drift.curvature)


def test_a_promise_about_learned_queries_is_kept():
    """A probe of two heads: descent reaches every certified loss in time."""
    rng = np.random.default_rng(2)
    tokens, queries = rng.standard_normal((6, 4, 3)), rng.standard_normal((2, 3))
    labels = np.array([1, -1, 1, -1, 1, -1])
    data = mh.Dataset.from_arrays(np.append(tokens, np.ones((6, 4, 1)), axis=2), labels)
    queries = np.append(queries, np.zeros((2, 1)), axis=1)
    start = mh.MultiHead.create(queries, np.zeros((2, 4)), decoder="query")
    found = mh.forecast(start, data, step_size=0.05, most_pieces=60)
    assert found.nats > 0.05
    run = mh.train(
        start, data, rule=mh.GD(0.05), num_steps=int(found.steps[-1]), record="all", dtype="float64"
    )
    assert np.all(np.diff(run.train_loss) < 0)
    for steps, level in zip(found.steps, found.certified_loss, strict=True):
        assert run.train_loss[: steps + 1].min() <= level
    with pytest.raises(ValueError, match="one score a sequence"):
        several = mh.MultiHead.create(queries, np.zeros((2, 3, 4)), decoder="query")
        mh.forecast(several, data, step_size=0.05)


def _scaled(tree: Heads, norm: float) -> Heads:
    size = math.sqrt(sum(float(np.sum(leaf**2)) for leaf in tree))
    return Heads(*(norm * leaf / size for leaf in tree))


@pytest.mark.parametrize(
    ("name", "field", "factor", "radius"),
    [
        ("margin", "margin", None, None),
        ("features", "drift", 0.99, None),
        ("scores", "width", 0.99, None),
        ("score curvature", "curvature", 0.99, 1e-3),
        ("slope over loss", "ratio", 1 / 0.99, None),
        ("loss curvature", "smoothness", 0.99, 1e-3),
    ],
)
@pytest.mark.full
def test_a_bound_that_is_one_percent_too_small_is_caught_by_ascent(name, field, factor, radius):
    """The curvatures are bounded tightly in small balls only."""
    rng = np.random.default_rng(1)
    size = attack.CLASSES * attack.DIM * (attack.DIM + attack.TOKENS)
    points = []
    for _ in range(40):
        p = attack.problem(rng, radius)
        if factor is None:  # one percent less than the loss of margin that the bound allows
            with jax.enable_x64(True):
                before = np.asarray(attack._features(p, jnp.zeros(size)) @ p["v"])
            p[field] = before - 0.99 * (before - p[field])
        else:
            p[field] = p[field] * factor
        points += [
            p | {"raw": rng.standard_normal(size), "turn": rng.standard_normal(size)}
            for _ in range(3)
        ]
    assert attack.ascend(attack.ATTACKS[name], points, steps=200, rate=0.1)[1] > 1


def test_a_broken_bound_is_violated(monkeypatch):
    real = attack.problem
    monkeypatch.setattr(
        attack, "problem", lambda rng: (p := real(rng)) | {"width": 0.2 * p["width"]}
    )
    tally = Tally()
    attack.local_bounds(tally, Effort(quick=True, seed=0))
    assert tally.finding().verdict is Verdict.VIOLATED


def test_bad_input_is_one_line():
    s = setting("A")
    run = run_of("A", 2, 1)
    for words, call in {
        "step_size=None must be a finite number": lambda: mh.forecast(run.start, s.dataset),
        "step_size=0 must be a finite": lambda: mh.forecast(run, s.dataset, step_size=[]),
        "each entry a finite number": lambda: mh.forecast(run, s.dataset, step_size=[1.0, -1.0]),
        "reduce=1 must be a finite number > 1": lambda: mh.forecast(run, s.dataset, reduce=1),
        "plain gradient descent": lambda: mh.forecast(
            mh.train(run.start, s.dataset, rule=mh.Adam(0.1), num_steps=1), s.dataset
        ),
        "loss='hinge' must be 'logistic', 'hyperbolic'": lambda: mh.forecast(
            run, s.dataset, loss="hinge"
        ),
        "not its factors": lambda: mh.forecast(
            mh.gaussian_start(2, num_tokens=4, dim=6, rank=2, key=jax.random.key(0)),
            s.dataset,
            step_size=1.0,
        ),
    }.items():
        with pytest.raises(ValueError, match=words) as error:
            call()
        assert "\n" not in str(error.value)
    assert FORECAST.about is not None


def test_a_run_on_other_data_is_refused():
    s = setting("A")
    run = mh.train(mh.first_phase(s.fresh, 8), s.dataset, rule=mh.GD(0.2), num_steps=2)
    other = dataclasses.replace(s.dataset, tokens=1.01 * s.dataset.tokens)
    for ask in (mh.forecast, mh.theory.first_forecast):
        with pytest.raises(ValueError, match="fingerprint is not that of these data"):
            ask(run, other)


def wild(seed):
    """Four sequences, a model and a step size, of which some are scaled by up to 1e150 or have an offset."""
    rng = np.random.default_rng(seed)

    def size():
        wide = 10.0 ** rng.uniform(-150, 150)
        return rng.choice([1.0, 10.0 ** rng.uniform(-6, 6), wide], p=[0.4, 0.4, 0.2])

    decoder = ("full", "last")[rng.integers(2)]
    labels = np.array([1.0, -1.0, 1.0, -1.0])
    X = rng.standard_normal((4, 3, 4)) + (rng.random() < 0.4) * size()
    X[:, :, 0] += rng.choice([0.0, 0.3, 3.0]) * labels[:, None]
    X *= np.clip(size(), 1e-35, 1e35)
    X *= min(1.0, 1e39 / np.abs(X).max())
    zero = rng.random() < 0.5
    W = (1 - zero) * size() * rng.standard_normal((1, 4, 4))
    U = (1 - zero) * size() * rng.standard_normal((1, 3, 4) if decoder == "full" else (1, 4))
    eta = size() / np.abs(X).max() ** rng.choice([0, 2])
    counts = rng.choice([1.0, 8.0, 1e12], 1)
    model = mh.MultiHead.create(W, U, multiplicity=counts, decoder=decoder)
    return model, mh.Dataset.from_arrays(X, labels), float(eta)


@pytest.mark.filterwarnings("error")
def test_no_number_that_is_not_finite_is_promised():
    spoke, reasons = 0, set()
    for seed in range(50):
        model, data, eta = wild(seed)
        found = mh.forecast(model, data, step_size=eta, most_pieces=5)
        assert str(found) and found.to_dict()
        reasons.add(found.reason)
        if not found.pieces:
            continue
        spoke += 1
        assert all(np.isfinite(dataclasses.astuple(p)).all() and p.sound for p in found.pieces)
        run = mh.train(model, data, rule=mh.GD(eta), num_steps=300, record="all", dtype="float64")
        for steps, level in zip(found.steps, found.certified_loss, strict=True):
            assert steps > 0
            if steps <= 300:
                assert run.train_loss[: steps + 1].min() <= level * (1 + 1e-9)
    assert spoke >= 5 and reasons >= {"range", "logits", "step"}


def far_away(offset, decoder):
    rng = np.random.default_rng(0)
    labels = np.array([1.0, -1.0, 1.0, -1.0])
    X = offset + 3 * rng.standard_normal((4, 3, 4))
    X[:, :, 0] += 0.3 * labels[:, None]
    data = mh.Dataset.from_arrays(X, labels)
    return mh.zero_start(1, num_tokens=3, dim=4, decoder=decoder), data


@pytest.mark.filterwarnings("error")
def test_tokens_far_from_the_origin_are_promised_nothing_false():
    """exp overflows, and infinity times zero is no bound; several queries gave eigenvalues of such a matrix."""
    for offset, decoder, eta in ((1e4, "last", 1.2e-13), (1e4, "full", 1e-10), (1e3, "full", 1e-7)):
        start, data = far_away(offset, decoder)
        found = mh.forecast(start, data, step_size=eta)
        assert not found.speaks
        if found.pieces:
            steps = int(min(found.steps[-1], 2000))
            run = mh.train(start, data, rule=mh.GD(eta), num_steps=steps, dtype="float64")
            assert run.train_loss.min() <= found.certified_loss[found.steps <= steps].min()


def test_logits_too_large_for_the_bounds_are_a_reason_and_no_error():
    s = setting("A")
    start = mh.gaussian_start(
        2,
        num_tokens=s.dataset.num_tokens,
        dim=s.dataset.dim,
        key_query_scale=1e6,
        key=jax.random.key(0),
    )
    found = mh.forecast(start, s.dataset, step_size=1e-3)
    assert found.reason == "logits" and "attention logits exceed 10000" in str(found)
    run = mh.train(start, s.dataset, rule=mh.GD(1e-3), num_steps=2, dtype="float64")
    (said,) = mh.certify(run, s.dataset, "forecast")
    assert said.verdict is Verdict.SILENT and "attention logits exceed" in said.reason


@pytest.mark.parametrize("field", ["radius", "margin", "ratio", "efficiency", "smoothness", "nats"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_piece_that_is_not_finite_ends_the_promise(field, value):
    good = lens.Piece(0.1, 0.5, 0.9, 0.8, 1.0, 0.05)
    bad = dataclasses.replace(good, radius=0.2, nats=0.1)
    assert len(lens.Forecast(0.1, 0.7, 2.0, 1.0, "slow", (good, bad)).pieces) == 2
    bad = dataclasses.replace(bad, **{field: value})
    found = lens.Forecast(0.1, 0.7, 2.0, 1.0, "slow", (good, bad))
    assert found.pieces == (good,) and found.reason == "range"
    assert lens.Forecast(0.1, 0.7, 2.0, 1.0, "slow", (bad,)).pieces == ()


@pytest.mark.parametrize("rule", [mh.Normalized(0.05), mh.Polyak(0.5)])
def test_steps_along_the_unit_gradient_and_by_polyaks_rule(rule):
    """A normalized step makes at least ηecΓ nats; Polyak's e nats, or those of plain descent where it is cut off."""
    s = setting("A")
    start = mh.train(
        mh.first_phase(s.fresh, 1024), s.dataset, rule=mh.GD(0.5), num_steps=3, dtype="float64"
    ).final
    found = mh.forecast(start, s.dataset, rule=rule, most_pieces=25)
    assert found.rule == rule.name and len(found.pieces) > 10
    last = int(found.steps[-1])
    run = mh.train(start, s.dataset, rule=rule, num_steps=last, record="all", dtype="float64")
    for steps, level in zip(found.steps, found.certified_loss, strict=True):
        assert run.train_loss[: steps + 1].min() <= level
    until = int(np.argmax(run.train_loss <= found.certified_loss[-1]))
    assert np.all(np.diff(run.train_loss[: until + 1]) < 0)
    assert run.distance[:until].max() <= 2 * found.radius
    again = mh.forecast(run, s.dataset, most_pieces=1)
    assert (again.rule, again.step_size) == (rule.name, rule.step_size)
    assert ("normalized descent with step length" in str(found)) == (rule.name == "normalized")


def test_a_rule_of_steps_that_is_not_covered_is_refused():
    s, start = setting("A"), mh.first_phase(setting("A").fresh, 8)
    with pytest.raises(ValueError, match="mh.Polyak"):
        mh.forecast(start, s.dataset, rule=mh.Adam(0.1))
    with pytest.raises(ValueError, match="leave step_size out"):
        mh.forecast(start, s.dataset, rule=mh.GD(0.1), step_size=0.1)
    with pytest.raises(ValueError, match="for plain gradient descent"):
        run = mh.train(start, s.dataset, rule=mh.Normalized(0.1), num_steps=2, dtype="float64")
        mh.theory.first_forecast(run, s.dataset)
