"""Every readout and every loss: constants by hand, points that attain them, runs, and constants that are false."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paper_settings import setting

from manyheads.model.loss import HYPERBOLIC, LOGISTIC, LOSSES, Loss, misdeclared
from manyheads.theory.certify import certify
from manyheads.theory.deora2023 import carried
from manyheads.theory.deora2023.constants import Shape
from manyheads.theory.deora2023.training import Case
from manyheads.theory.finding import Effort
from manyheads.theory.verdict import OURS, Verdict
from manyheads.training.descent import train
from manyheads.training.rules import GD
from manyheads.training.start import first_phase

EXTREMAL = (carried.aligned_heads, carried.silent_heads, carried.idle_heads)
QUICK = [("pooled", HYPERBOLIC), ("last", LOGISTIC)]
REST = [pair for pair in carried.pairs(Effort(quick=False)) if pair not in QUICK]
LAZY = [*QUICK, *(pytest.param(*pair, marks=pytest.mark.full) for pair in REST)]


def softened() -> Loss:
    """log(1 + exp(-2 m)): a loss of a user, with C = 2, G = 2 and S = 1."""
    return Loss(
        "softened",
        lambda m: jnp.logaddexp(0.0, -2 * m),
        lambda m: -2 * jax.nn.sigmoid(-2 * m),
        lambda m: 4 * jax.nn.sigmoid(2 * m) * jax.nn.sigmoid(-2 * m),
        2.0,
        1.0,
        2.0,
    )


def test_values_by_hand():
    T, R, x = 4, 2.0, 3.0
    pooled, last = (Shape(T, 9, R, decoder, HYPERBOLIC) for decoder in ("pooled", "last"))
    q = R**2 * x / 2  # the norm of u is that of U over sqrt(T)
    assert pooled.b1(x) == T * R * math.sqrt(1 + q**2)
    assert last.b1(x) == R * math.sqrt(1 + 4 * q**2)
    assert abs(pooled.b3(x) - T * R**3 * (q + math.sqrt(q**2 + 4)) / 2) < 1e-12
    assert abs(pooled.b2(x, 25.0) - (2 * pooled.b3(x) / 5 + pooled.b1(x) ** 2)) < 1e-12
    assert pooled.lipschitz(x) == 2 * pooled.b1(x) and pooled.stability(x) == 2 * pooled.b1(x) ** 2
    twice = replace(pooled, loss=softened())
    assert twice.b1(x) == 2 * pooled.b1(x) and twice.b3(x) == 2 * pooled.b3(x)
    # the vector u moves by C T R per unit of loss, and U by sqrt(T) times as much
    assert twice.drift(1.0) == 2 * T * R * math.sqrt(T)


@pytest.mark.parametrize("decoder, loss", LAZY)
def test_constants_are_attained(decoder, loss):
    for extremal in EXTREMAL:  # so that a constant that is 1% too small, or too large, is seen
        measured, bound = extremal(decoder, loss)
        assert 0.99 * bound < measured <= bound * (1 + 1e-9), extremal.__name__


def test_a_constant_that_is_too_small_is_violated(monkeypatch):
    monkeypatch.setattr(carried, "pairs", lambda effort: QUICK[1:])
    for share, extremal in zip(
        (carried.gradient_share, carried.smoothness_share, carried.convexity_share),
        EXTREMAL,
        strict=True,
    ):
        with monkeypatch.context() as changed:
            changed.setattr(Shape, "rows", property(lambda self: 0.99))
            carried.search.cache_clear()
            assert carried.attacked(share, extremal, Effort()).verdict is Verdict.VIOLATED
    carried.search.cache_clear()


@pytest.mark.full
@pytest.mark.parametrize(
    "statement", [carried.GRADIENT, carried.SMOOTHNESS, carried.CONVEXITY, carried.TRAINING]
)
def test_adversarial_points_and_runs_at_the_limit(statement):
    found = statement.check(Effort(quick=False))
    print(statement.id, found.detail)
    assert found.verdict is Verdict.HOLDS


def certified(decoder, loss, names):
    """A short run of 16 heads, and what these statements say about it."""
    s = setting("A")
    start = first_phase(s.fresh, 16, decoder=decoder, loss=loss)
    run = train(start, s.dataset, rule=GD(0.005), num_steps=20, loss=loss, dtype="float64")
    return run, s.dataset, certify(run, s.dataset, names)


def test_a_run_is_certified_with_the_constants_of_its_readout_and_loss():
    names = ["def1.p3", "cor1.1", "descent", "thm1", "thm1.sharp"]
    run, data, found = certified(*QUICK[0], names)
    for name in names:
        assert {c.verdict for c in found.about(name)} == {Verdict.HOLDS}, name
    for c in found.about(
        "thm1"
    ):  # the paper's own constants are for the full readout and the logistic loss
        assert all(c.verdict_of(b.variant) is Verdict.SILENT for b in c.bounds if b.variant != OURS)
    (gradient,) = found.about("cor1.1")
    assert (
        gradient.bound().value
        >= Shape.of(data, decoder="pooled", loss=HYPERBOLIC).b1(0.0) * run.train_loss[-1]
    )


@pytest.mark.full
@pytest.mark.parametrize("decoder, loss", carried.pairs(Effort(quick=False)))
def test_every_pair_is_certified_and_a_wrong_constant_is_violated(decoder, loss, monkeypatch):
    names = [
        "def1.p1",
        "def1.p3",
        "cor1.1",
        "cor1.2",
        "cor1.3",
        "descent",
        "identity",
        "thm1",
        "thm1.sharp",
    ]
    run, data, found = certified(decoder, loss, names)
    for name in names:
        assert {c.verdict for c in found.about(name)} == {Verdict.HOLDS}, name
    monkeypatch.setattr(Shape, "features", lambda self, x: 0.1 * np.ones_like(x))
    assert certify(run, data, ["cor1.1"]).verdict is Verdict.VIOLATED


def test_the_printed_constants_are_those_of_the_paper():
    case = Case(Shape(4, 6, 1.2, "pooled"), 1e9, 100, 1.0, 0.01, 0.1, 0.1, 0.69, 0.1, 1e-6)
    assert not case.shape.b1(1.0) == Shape(4, 6, 1.2).b1(1.0)
    assert [h.holds for h in case.shape.unprinted()] == [False] and Shape(
        4, 6, 1.2
    ).unprinted() == ()


@pytest.fixture
def own():
    loss = softened()
    LOSSES[loss.name] = loss
    yield loss
    del LOSSES[loss.name]


@pytest.mark.full
def test_the_loss_of_a_user_speaks_when_its_constants_are_true(own):
    s = setting("A")
    start = first_phase(s.fresh, 16, loss=own)
    run = train(start, s.dataset, rule=GD(0.02), num_steps=20, loss=own, dtype="float64")
    assert certify(run, s.dataset, ["cor1.1", "descent"]).verdict is Verdict.HOLDS


def test_the_loss_of_a_user_is_silent_when_its_constants_are_false(own):
    assert misdeclared(LOGISTIC) == misdeclared(HYPERBOLIC) == misdeclared(own) == ""
    s = setting("A")
    options = {"rule": GD(0.2), "num_steps": 5, "dtype": "float64", "loss": own}
    run = train(first_phase(s.fresh, 16), s.dataset, **options)
    LOSSES[own.name] = replace(own, self_bound=1.9)
    (found,) = certify(run, s.dataset, ["cor1.1"])
    assert (
        found.verdict is Verdict.SILENT and "self_bound=1.9 is false at the margin" in found.reason
    )
    LOSSES[own.name] = replace(own, lipschitz=math.inf)
    (found,) = certify(run, s.dataset, ["cor1.1"])
    assert found.verdict is Verdict.SILENT and "declares no finite constants" in found.reason


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"lipschitz": 1.98}, "lipschitz=1.98"),
        ({"smoothness": 0.99}, "smoothness=0.99"),
        ({"self_curvature": 3.9}, "self_curvature=3.9"),
        ({"peak": 1.0}, "peak=1"),
        ({"slope": lambda m: -1.9 * jax.nn.sigmoid(-2 * m)}, "slope is its derivative"),
        ({"curvature": lambda m: jnp.zeros_like(m)}, "curvature is the derivative"),
        ({"value": lambda m: jnp.logaddexp(0.0, -2 * m) - 0.1}, "not negative"),
    ],
)
def test_false_declarations_are_found(wrong, text):
    assert text in misdeclared(replace(softened(), **wrong))
