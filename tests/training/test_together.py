import jax
import numpy as np
import pytest

from manyheads.data.mixture import TokenizedMixture
from manyheads.data.planted import RandomLabels
from manyheads.training.descent import train
from manyheads.training.rules import GD, RULES
from manyheads.training.start import first_phase, gaussian_start, zero_start
from manyheads.training.together import train_together
from manyheads.training.trajectory import RECORDS

STEPS = 40


def runs():
    """Runs of one shape that differ in seed, sparsity, heads and step size."""
    models, datasets, tests, rates = [], [], [], []
    for seed, sparsity, heads, rate in (
        (0, 0.25, 2, 0.1),
        (1, 0.5, 5, 0.4),
        (2, 0.25, 1e6, 1.0),
        (3, 0.75, 40, 0.02),
    ):
        mixture = TokenizedMixture(
            num_tokens=4, dim=5, num_patterns=2, sparsity=sparsity, key=jax.random.key(seed)
        )
        draw = [
            mixture.sample(n, key=jax.random.key(10 * seed + i)) for i, n in enumerate((12, 9, 30))
        ]
        datasets.append(draw[0])
        tests.append(draw[1])
        models.append(first_phase(draw[2], heads))
        rates.append(rate)
    return models, datasets, tests, rates


@pytest.mark.parametrize("optimizer", ["gd", "normalized", "polyak", "adam"])
def test_together_and_alone_agree_to_ten_digits(optimizer):
    models, datasets, tests, rates = runs()
    rules = [RULES[optimizer](rate) for rate in rates]
    shared = dict(num_steps=STEPS, dtype="float64")
    together = train_together(models, datasets, rules=rules, tests=tests, **shared)
    for i, one in enumerate(together):
        alone = train(models[i], datasets[i], rule=rules[i], test=tests[i], **shared)
        for name in (*RECORDS, "steps"):
            np.testing.assert_allclose(
                getattr(one, name), getattr(alone, name), rtol=1e-10, atol=1e-13, err_msg=name
            )
        for a, b in zip(
            jax.tree.leaves(one.displacement), jax.tree.leaves(alone.displacement), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)
        assert (one.status, one.last_step, one.settings) == (
            alone.status,
            alone.last_step,
            alone.settings,
        )
        assert one.train_loss[-1] < one.train_loss[0]


def test_a_run_that_diverges_leaves_the_others_alone():
    rates = [0.1, 0.4, 1.0, 0.02]
    datasets = [RandomLabels(4, 5).sample(40, key=jax.random.key(i)) for i in range(4)]
    models = [zero_start(1, num_tokens=4, dim=5) for _ in rates]
    good = train_together(
        models, datasets, rules=[GD(rate) for rate in rates], num_steps=STEPS, dtype="float64"
    )
    wild = train_together(
        models,
        datasets,
        rules=[GD(rate) for rate in (rates[0], 1e308, *rates[2:])],
        num_steps=STEPS,
        dtype="float64",
    )
    alone = train(models[1], datasets[1], rule=GD(1e308), num_steps=STEPS, dtype="float64")
    assert [one.status for one in wild] == ["finished", "diverged", "finished", "finished"]
    assert wild[1].last_step == alone.last_step and np.array_equal(
        wild[1].train_loss, alone.train_loss
    )
    for i in (0, 2, 3):
        assert np.array_equal(wild[i].train_loss, good[i].train_loss)


def test_different_shapes_are_refused():
    models, datasets, _, rates = runs()
    other = gaussian_start(3, num_tokens=4, dim=5, key=jax.random.key(0))
    plan = dict(rules=[GD(rate) for rate in rates], num_steps=3)
    with pytest.raises(ValueError, match="2 different shapes"):
        train_together([other, *models[1:]], datasets, dtype="float64", **plan)
    with pytest.raises(ValueError, match="different precisions"):
        train_together(models, datasets, **plan)
