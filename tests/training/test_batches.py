"""Mini-batches: what a step sees, the same bits after an interruption, and what is refused."""

import jax
import numpy as np
import optax
import pytest

import manyheads as mh
from manyheads.training import loop

MIX = dict(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, frame="axis")


@pytest.fixture(scope="module")
def data():
    return mh.TokenizedMixture(**MIX).sample(20, key=jax.random.key(1))


@pytest.fixture(scope="module")
def start():
    return mh.gaussian_start(3, num_tokens=4, dim=6, key=jax.random.key(2))


def same(a, b):
    pairs = zip(*map(jax.tree.leaves, (a, b)), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def orders(key, count):
    """The order of each pass, by JAX's own shuffle."""
    keys = [jax.random.fold_in(jax.random.key(key), k) for k in range(count)]
    return [np.asarray(jax.random.permutation(k, np.arange(20, dtype=np.int32))) for k in keys]


def test_a_run_is_that_of_its_batches_one_after_another(start, data):
    """Each step is one step of the plain run on the sequences that are drawn; 2 of 20 are left out of a pass."""
    found = mh.train(
        start,
        data,
        rule=mh.MiniBatches(mh.GD(0.3), 6, key=5),
        num_steps=7,
        dtype="float64",
        snapshots="records",
        record="all",
    )
    model = start
    for step in range(7):
        order = orders(5, 3)[step // 3]
        chosen = order[step % 3 * 6 : step % 3 * 6 + 6]
        model = mh.train(
            model, data.subset(chosen), rule=mh.GD(0.3), num_steps=1, dtype="float64"
        ).final
        for a, b in zip(model.parameters, found.model(step + 1).parameters, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)
    scores = np.log1p(np.exp(-data.labels * found.final.scores(data)))
    assert found.train_loss[-1] == pytest.approx(scores.mean(), rel=1e-12)  # of all sequences


def test_one_batch_of_everything_is_plain_descent(start, data):
    plan = dict(num_steps=9, dtype="float64")
    one = mh.train(start, data, rule=mh.MiniBatches(mh.Adam(0.05), 20), **plan)
    plain = mh.train(start, data, rule=mh.Adam(0.05), **plan)
    np.testing.assert_allclose(one.train_loss, plain.train_loss, rtol=1e-10)


RULES = {
    "gd": mh.GD(0.2),
    "adam": mh.Adam(0.02),
    "normalized": mh.Normalized(0.1),
    "optax": optax.sgd(0.1, momentum=0.9),
}


@pytest.mark.parametrize("name", RULES)
def test_interrupted_and_resumed_has_the_same_bits(start, data, name, tmp_path, monkeypatch):
    plan = dict(rule=mh.MiniBatches(RULES[name], 7, key=3), num_steps=40, record=9)
    whole = mh.train(start, data, **plan)
    calls, advance = [], loop.advance

    def interrupting(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*arguments)

    monkeypatch.setattr(loop, "advance", interrupting)
    part = mh.train(start, data, checkpoint=tmp_path / "run.npz", **plan)
    assert part.status == "interrupted" and 0 < part.last_step < 40
    monkeypatch.undo()
    rest = mh.train(start, data, resume=tmp_path / "run.npz", **plan)
    assert same((rest.displacement, rest.train_loss), (whole.displacement, whole.train_loss))


def test_a_run_of_other_batches_is_not_resumed(start, data):
    half = mh.train(start, data, rule=mh.MiniBatches(mh.GD(0.1), 5), num_steps=4)
    for rule, words in (
        (mh.MiniBatches(mh.GD(0.1), 4), "has batch_size=5, this call 4"),
        (mh.MiniBatches(mh.GD(0.1), 5, key=1), "has batch_key="),
        (mh.GD(0.1), "has optimizer='gd in batches', this call 'gd'"),
    ):
        with pytest.raises(ValueError, match=words):
            mh.train(start, data, rule=rule, num_steps=9, resume=half)


def test_a_run_that_diverges_keeps_its_last_good_step(start, data):
    rule = mh.MiniBatches(optax.sgd(lambda step: 10.0**step), 5)
    run = mh.train(start, data, rule=rule, num_steps=80, record=3)
    assert run.status == "diverged" and run.steps.tolist() == list(range(0, run.last_step + 1, 3))
    assert np.isfinite(run.train_loss).all() and np.isfinite(run.final.readout).all()


def test_what_cannot_be_drawn_is_refused(start, data, tmp_path):
    np.save(tmp_path / "x.npy", data.tokens)
    np.save(tmp_path / "y.npy", data.labels)
    left = mh.Dataset.open(tmp_path / "x.npy", tmp_path / "y.npy")
    for words, call in {
        "batch_size=0 must be a whole number": lambda: mh.MiniBatches(mh.GD(0.1), 0),
        "rule='gd' is not a rule": lambda: mh.MiniBatches("gd", 4),
        "cannot be on mini-batches again": lambda: mh.MiniBatches(mh.MiniBatches(mh.GD(1), 2), 2),
        "batch_size=21 is more than the 20": lambda: mh.train(
            start, data, rule=mh.MiniBatches(mh.GD(0.1), 21), num_steps=1
        ),
        "mini-batches need the tokens in memory": lambda: mh.train(
            start, left, rule=mh.MiniBatches(mh.GD(0.1), 4), num_steps=1
        ),
    }.items():
        with pytest.raises(ValueError, match=words) as error:
            call()
        assert "\n" not in str(error.value)
