"""The forecast for other readouts and losses: cells of margins against dense grids, promises against runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paper_settings import setting

import manyheads as mh
from manyheads.model.loss import HYPERBOLIC, LOGISTIC, Loss
from manyheads.theory.certify import certify
from manyheads.theory.finding import Effort, Tally
from manyheads.theory.manyheads2026 import attack, carried
from manyheads.theory.manyheads2026.region import floors
from manyheads.theory.verdict import Verdict
from manyheads.theory.walk import follow

SOFTENED = Loss(
    "softened",
    lambda m: jnp.logaddexp(0.0, -2 * m),
    lambda m: -2 * jax.nn.sigmoid(-2 * m),
    lambda m: 4 * jax.nn.sigmoid(2 * m) * jax.nn.sigmoid(-2 * m),
    2.0,
    1.0,
    2.0,
)


@pytest.mark.parametrize("loss", [HYPERBOLIC, SOFTENED, LOGISTIC], ids=lambda loss: loss.name)
def test_floors_are_below_every_margin_of_the_box_and_near_the_least(loss):
    rng = np.random.default_rng(0)
    low = rng.uniform(-4, 4, 40)
    high = low + rng.uniform(0.01, 1.0, 40)
    share, floor = floors(low, high, loss)
    m = low + (high - low) * np.linspace(0, 1, 301)[:, None]
    w, value = loss.slope_at(m), loss.at(m)
    assert 0.9 * (w / value).min() <= share <= (w / value).min() * (1 + 1e-12)
    for mu in (0.0, 0.4, 1.0):
        least, exact = floor(mu), (w - mu * value).min(axis=0)
        assert (least <= exact + 1e-12).all() and (
            least >= exact - 0.1 * (w + mu * value).max(axis=0)
        ).all()


@pytest.mark.parametrize("decoder", ["full", pytest.param("pooled", marks=pytest.mark.full)])
def test_a_promise_about_the_hyperbolic_loss_is_kept(decoder):
    s = setting("A")
    eta = {"full": 0.3, "pooled": 0.05}[decoder]
    start = mh.first_phase(s.fresh, 8, decoder=decoder, loss="hyperbolic")
    run = mh.train(
        start, s.dataset, rule=mh.GD(eta), num_steps=5, loss="hyperbolic", dtype="float64"
    )
    promise = mh.forecast(run, s.dataset, most_pieces=8)  # with the loss of the run
    assert promise.pieces and abs(promise.loss - run.train_loss[-1]) < 1e-12
    steps = int(promise.steps[-1])
    walk = follow(run.final, s.dataset, step_size=eta, num_steps=steps, loss="hyperbolic")
    for count, level in zip(promise.steps, promise.certified_loss, strict=True):
        assert walk.loss[: count + 1].min() <= level * (1 + 1e-9)
    assert steps < 20 * np.argmax(walk.loss <= promise.certified_loss[-1])


@pytest.mark.full
def test_a_run_of_another_loss_is_certified():
    s = setting("A")
    start = mh.first_phase(s.fresh, 64, loss="hyperbolic")
    run = mh.train(
        start, s.dataset, rule=mh.GD(0.1), num_steps=40, loss="hyperbolic", dtype="float64"
    )
    found = certify(run, s.dataset, ["forecast", "forecast.before"])
    assert {c.verdict for c in found} == {Verdict.HOLDS}


@pytest.mark.full
@pytest.mark.parametrize(
    "name, factor", [("ratio", 1.1), ("smoothness", 0.2)]
)  # the second is the looser one
def test_a_broken_bound_is_violated(monkeypatch, name, factor):
    real = attack.problem
    monkeypatch.setattr(
        attack, "problem", lambda rng, loss: (p := real(rng, loss=loss)) | {name: factor * p[name]}
    )
    tally = Tally()
    carried.local_bounds(tally, Effort(quick=False))
    assert tally.finding().verdict is Verdict.VIOLATED


@pytest.mark.full
def test_adversarial_points_and_runs():
    found = carried.CARRIED.check(Effort(quick=False))
    print(found.detail)
    assert found.verdict is Verdict.HOLDS
