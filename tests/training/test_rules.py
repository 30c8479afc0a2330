"""Rules of descent as objects: each against the update written out, and what none of them accepts."""

import jax
import numpy as np
import optax
import pytest

import manyheads as mh
from manyheads.model.autodiff import loss_and_gradient
from manyheads.model.loss import LOGISTIC


@pytest.fixture(scope="module")
def data():
    return mh.data.RandomLabels(num_tokens=3, dim=4).sample(10, key=0)


@pytest.fixture(scope="module")
def start():
    return mh.gaussian_start(2, num_tokens=3, dim=4, key=1)


def first_move(run):
    return run.displacement_at(1)


def adam(g, step_size, b1, b2, eps):
    m, v = (1 - b1) * g / (1 - b1), (1 - b2) * g**2 / (1 - b2)
    return -step_size * m / (np.sqrt(v) + eps)


@pytest.mark.parametrize(
    "rule, move",
    [
        (mh.GD(0.3), lambda loss, g, size: -0.3 * g),
        (mh.Normalized(0.3), lambda loss, g, size: -0.3 * g / size),
        (mh.Polyak(1e6), lambda loss, g, size: -loss * g / size**2),
        (mh.Polyak(1e-3), lambda loss, g, size: -1e-3 * g),
        (mh.Adam(0.3), lambda loss, g, size: adam(g, 0.3, 0.9, 0.999, 1e-8)),
        (mh.Adam(0.3, b1=0.5, eps=0.1), lambda loss, g, size: adam(g, 0.3, 0.5, 0.999, 0.1)),
        (optax.sgd(0.3), lambda loss, g, size: -0.3 * g),
    ],
)
def test_the_first_move_of_each_rule(start, data, rule, move):
    loss, gradient = loss_and_gradient(start, data, LOGISTIC)
    size = np.sqrt(sum(np.sum(leaf**2) for leaf in gradient))
    run = mh.train(start, data, rule=rule, num_steps=1, dtype="float64")
    wanted = jax.tree.map(lambda g: move(loss, g, size), gradient)
    for found, leaf in zip(run.displacement, wanted, strict=True):
        np.testing.assert_allclose(found, leaf, rtol=1e-9, atol=1e-15)
    assert run.settings["step_size"] == getattr(rule, "step_size", None)


def test_a_run_says_by_which_rule_it_was_made(start, data):
    run = mh.train(start, data, rule=mh.Adam(0.02, b1=0.5), num_steps=2)
    assert (run.settings["optimizer"], run.settings["b1"]) == ("adam", 0.5)
    assert "b2" not in run.settings


def test_another_step_size_compiles_nothing_anew(start, data, caplog):
    mh.train(start, data, rule=mh.Normalized(0.3), num_steps=2)
    with jax.log_compiles():
        mh.train(start, data, rule=mh.Normalized(0.2), num_steps=2)
    assert not [line for line in caplog.records if "Compiling jit(advance)" in line.getMessage()]


def test_a_rule_of_ones_own(start, data):
    from manyheads.training.rules import Rule

    class Signs(Rule):
        name = "signs"
        step_size: float

        def move(self, problem, view, memory, axis):
            return jax.tree.map(
                lambda g: -self.step_size * jax.numpy.sign(g), view.gradient
            ), memory

    run = mh.train(start, data, rule=Signs(0.25), num_steps=1, dtype="float64")
    _, gradient = loss_and_gradient(start, data, LOGISTIC)
    assert np.array_equal(run.displacement.readout, -0.25 * np.sign(gradient.readout))
    assert run.settings["optimizer"] == "signs"


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf, "fast", True, None, [0.1]])
@pytest.mark.parametrize("rule", [mh.GD, mh.Normalized, mh.Polyak, mh.Adam])
def test_a_step_size_that_is_no_positive_number_is_refused(rule, value):
    with pytest.raises(ValueError, match=r"step_size=.* must be a finite number > 0"):
        rule(value)


def test_what_is_no_rule_is_refused(start, data):
    for rule in ("gd", 0.1, mh.GD, {}):
        with pytest.raises(ValueError, match=r"is not a rule of descent; pass mh.GD\(0.1\)"):
            mh.train(start, data, rule=rule, num_steps=1)
    with pytest.raises(ValueError, match="b1=1 must be"):
        mh.Adam(0.1, b1=1)


def test_classes_and_an_optax_transform_need_coordinates(data):
    start = mh.first_phase(data, 8)
    with pytest.raises(ValueError, match=r"rule=mh.Optax\(transform, coordinates='head'\)"):
        mh.train(start, data, rule=optax.sgd(0.1), num_steps=1)
    plain = mh.train(start, data, rule=mh.GD(0.1), num_steps=3, dtype="float64")
    same = mh.Optax(optax.sgd(0.1), coordinates="class")
    run = mh.train(start, data, rule=same, num_steps=3, dtype="float64")
    np.testing.assert_allclose(run.train_loss, plain.train_loss, rtol=1e-13)
    with pytest.raises(ValueError, match="transform=7 must be an optax transform"):
        mh.Optax(7)
