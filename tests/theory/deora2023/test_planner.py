"""The planner: what it asks for is enough, and what it says is plain."""

import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest

from manyheads.data.dataset import Dataset
from manyheads.data.mixture import TokenizedMixture
from manyheads.theory.deora2023 import planner
from manyheads.theory.deora2023.initialization import good_start
from manyheads.theory.deora2023.planner import Demand, _count, _stable_step, below, plan
from manyheads.theory.deora2023.regime import Ray
from manyheads.theory.deora2023.sharper import Features, sharp_conditions
from manyheads.theory.targets import with_heads
from manyheads.theory.walk import follow
from manyheads.training.start import gaussian_start


@pytest.fixture(scope="module")
def data():
    mixture = TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.5,
        signal=1.0,
        noise_mu=0.05,
        noise_nu=0.05,
        noise_norm=0.3,
        key=jax.random.key(0),
    )
    return mixture.sample(80, key=jax.random.key(1))


@pytest.fixture(scope="module")
def planned(data):
    return plan(data, target_loss=0.2, key=jax.random.key(2))


def test_training_data_are_disjoint_from_planning(data, planned, monkeypatch):
    assert planned.num_planning == 40 and planned.training.num_examples == 40
    monkeypatch.setattr(
        planner, "_demands", lambda *_: []
    )  # which take long, and are not looked at
    again = plan(data, target_loss=0.2, key=jax.random.key(2), trials=False)
    np.testing.assert_array_equal(again.training.tokens, planned.training.tokens)


def test_versions_are_ordered(planned):
    printed, explicit, ours, _ = planned.demands
    assert ours.num_heads < explicit.num_heads and ours.num_steps < explicit.num_steps
    assert ours.step_size > explicit.step_size
    for demand in (explicit, ours):
        assert demand.certified_loss <= 0.2 * (1 + 1e-9)
    assert "not proved" in printed.note


def test_what_our_version_asks_for_makes_its_hypotheses_true(data, planned):
    """Rebuild the case from the plan's numbers, with an independent loss evaluation at the target."""
    ours = planned.demands[2]
    phase = jax.random.split(jax.random.key(2))[1]
    planning, _ = data.split(40, key=jax.random.split(jax.random.key(2))[0])
    _, sample = planning.split(20, key=phase)
    start = with_heads(planned.start, ours.num_heads)
    good = good_start(planned.start, sample)
    scale = ours.distance / math.sqrt(2)
    moved = start.displaced(good.direction.displacement(scale, ours.num_heads))
    loss = float(np.mean(np.logaddexp(0.0, -sample.labels * moved.scores(sample))))
    ray = Ray(planned.start, sample, good.direction)
    case = ray.case(ours.num_heads, scale, ours.num_steps, loss, math.log(2))
    conditions = sharp_conditions(
        replace(case, step_size=ours.step_size), Features.of(start, sample)
    )
    assert conditions.holds, conditions.missing
    assert conditions.bound <= 0.2 * (1 + 1e-6)


@pytest.mark.full
def test_a_gaussian_start_gets_finite_demands(data):
    """Copies of plain Gaussian heads would have scores that grow like sqrt(H), and no number of heads would do."""
    few = data.subset(range(40))
    found = plan(few, start="gaussian", target_loss=0.4, key=jax.random.key(2), planning_share=0.3)
    assert np.abs(with_heads(found.start, 6.4e9).scores(few)).max() < 1e-9
    assert (
        all(math.isfinite(d.num_heads) and d.num_heads % 64 == 0 for d in found.demands)
        and not found.silent
    )
    assert found.demands[2].certified_loss <= 0.4 * (1 + 1e-9)
    assert [m.num_heads for m in found.measured] == [64] and math.isfinite(
        found.measured[0].num_steps
    )


def test_heads_come_in_equal_shares(planned):
    """A first phase has as many heads of either sign."""
    assert all(d.num_heads % 2 == 0 for d in planned.demands)


def test_the_step_size_of_a_trial_was_tried(data):
    """Tokens of norm 150 need far smaller steps than the first one that is tried."""
    tokens = data.tokens[:16] * 150
    start = gaussian_start(2, num_tokens=4, dim=6, key=jax.random.key(0), key_query_scale=1e-4)
    large = Dataset.from_arrays(tokens, data.labels[:16])
    eta = _stable_step(start, large)
    assert eta < 2.0**-12

    def steady(step):
        walk = follow(start, large, step_size=step, num_steps=60)
        return np.all(
            np.diff(walk.loss) + step / 2 * walk.gradient_norm[:-1] ** 2
            <= 1e-12 * (1 + walk.loss[0])
        )

    assert steady(eta) and not steady(2 * eta)


@pytest.mark.full
def test_a_given_number_of_steps_is_respected(data):
    fixed = plan(data, target_loss=0.4, num_steps=2000, key=jax.random.key(2), trials=False)
    assert fixed.demands[2].num_steps == 2000 and fixed.demands[2].certified_loss < 0.4


def test_trials_reach_the_loss(planned):
    assert [m.num_heads for m in planned.measured] == [2, 16, 256]
    assert all(math.isfinite(m.num_steps) for m in planned.measured)
    assert all(m.num_heads < planned.demands[2].num_heads for m in planned.measured)


def test_words_and_numbers(planned):
    text = str(planned)
    for piece in (
        "Goal: a train loss of 0.2",
        "What is enough",
        "What guarantees it",
        "our version",
        "linear model",
        "that the guarantee covers. The other",
    ):
        assert piece in text
    stored = json.loads(planned.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert stored["left_for_training"] == 40 and len(stored["demands"]) == 4


@pytest.mark.full
def test_it_says_when_a_linear_model_does_as_well():
    """Fixed positions: a linear model reads the relevant tokens directly, uniform attention cannot."""
    mixture = TokenizedMixture(
        num_tokens=4,
        dim=6,
        num_patterns=2,
        sparsity=0.25,
        signal=1.0,
        positions="fixed",
        key=jax.random.key(0),
    )
    easy = plan(
        mixture.sample(60, key=jax.random.key(1)),
        target_loss=0.3,
        key=jax.random.key(2),
        trials=False,
    )
    assert easy.linear_does_as_well and "A linear model fits these sequences as well" in str(easy)
    assert easy.linear_margin[0] > easy.kernel_margin[1]


def test_inseparable_data_are_told(data):
    tokens = np.repeat(data.tokens[:10], 4, axis=0)
    labels = np.tile([1.0, -1.0, 1.0, -1.0], 10)
    found = plan(
        Dataset.from_arrays(tokens, labels), target_loss=0.3, key=jax.random.key(0), trials=False
    )
    assert not found.separable and found.demands == ()
    assert "the theory is silent" in str(found) and "no margin above" in str(found)


def test_a_linear_model_is_named_where_attention_fails_at_the_start(data):
    """Order alone tells the classes apart: mean pooling of a first phase sees nothing, a linear model sees all."""
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    tokens = np.array([[a, b], [b, a]] * 20)
    found = plan(
        Dataset.from_arrays(tokens, np.tile([1.0, -1.0], 20)), key=jax.random.key(0), trials=False
    )
    assert found.kernel_answer == "not separable" and found.linear_answer == "separable"
    assert found.silent and "A linear model fits these sequences, and this start does not" in str(
        found
    )


def test_demands_without_end_are_silence(planned):
    assert not planned.silent
    assert replace(
        planned, demands=tuple(replace(d, num_heads=math.inf) for d in planned.demands)
    ).silent


def test_undecided_is_not_told_as_proved(planned):
    unsure = replace(planned, kernel_answer="undecided", linear_answer="undecided", demands=())
    text = str(unsure)
    assert text.count("undecided") == 2 and "proved, no margin" not in text and "cannot" not in text
    refuted = str(replace(planned, linear_answer="not separable"))
    assert "A linear model has no margin above" in refuted and "attention has" in refuted


@pytest.mark.parametrize(
    "options, words",
    [
        ({"target_loss": 0.0}, "target_loss=0.0 must be a finite number > 0"),
        ({"target_loss": 0.8}, "must be from 1e-100 to log 2"),
        ({"start": "cold"}, "start='cold' must be 'first_phase', 'zero' or 'gaussian'"),
        ({"planning_share": 1.0}, "planning_share=1.0"),
        ({"planning_share": 0.05}, "at least 8"),
        ({"num_steps": 0}, "num_steps=0"),
    ],
)
def test_bad_input_is_explained(data, options, words):
    with pytest.raises(ValueError, match=words):
        plan(data, key=jax.random.key(0), **options)


@pytest.mark.full
@pytest.mark.parametrize("decoder, loss", [("pooled", "hyperbolic"), ("last", "logistic")])
def test_a_plan_for_another_readout_and_loss_is_enough(data, decoder, loss):
    goal = {"hyperbolic": 0.7, "logistic": 0.5}[loss]
    kind = {"decoder": decoder, "loss": loss}
    found = plan(data, target_loss=goal, num_steps=300, key=jax.random.key(2), trials=False, **kind)
    ours, promise = found.demands  # the paper prints no constants for these
    assert found.start.decoder == decoder and ours.certified_loss <= goal * (1 + 1e-9)
    planning, _ = data.split(40, key=jax.random.split(jax.random.key(2), 3)[0])
    _, sample = planning.split(20, key=jax.random.split(jax.random.key(2), 3)[1])
    for demand in (ours, promise):
        start = with_heads(found.start, demand.num_heads)
        walk = follow(
            start, sample, step_size=demand.step_size, num_steps=int(demand.num_steps), loss=loss
        )
        assert walk.loss.min() <= goal and (demand is promise or walk.loss[1:].mean() <= goal)
    with pytest.raises(ValueError, match="the loss of zero scores"):
        plan(data, target_loss=1.0, key=jax.random.key(2), **kind)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0.0044559, "0.004455"),
        (0.5, "0.5"),
        (1.0, "1"),
        (2.0999e-8, "2.099e-8"),
        (1234.9, "1234"),
        (0.99999, "0.9999"),
    ],
)
def test_a_step_size_is_rounded_down(number, said):
    assert below(number) == said and float(said) <= number
    assert f"step size {said}," in str(Demand("ours", 10.0, number, 5.0, 1.0, 0.1))


def test_heads_are_rounded_up():
    assert (
        _count(1.21e13) == "1.3e+13" and _count(9_999_999) == "9,999,999" and _count(1e7) == "1e+07"
    )


def test_of_many_sequences_a_part_is_looked_at_and_it_is_said(data, monkeypatch):
    monkeypatch.setattr(planner, "MOST_SAMPLED", 12)
    monkeypatch.setattr(
        planner, "_demands", lambda *_: []
    )  # which take long, and are not looked at
    found = plan(data, target_loss=0.2, key=jax.random.key(2), trials=False)
    assert found.looked_at == (
        12,
        20,
    ) and "Margins and trials: on 12 of 20, drawn at random." in str(found)
    assert found.to_dict()["looked_at"] == 12
