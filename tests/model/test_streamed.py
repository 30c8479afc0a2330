"""Training on tokens that stay in a file: the bits of the run whose tokens are on the device."""

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.data import mapped
from manyheads.model import gradient, streamed
from manyheads.model.gradient import attention_objective
from manyheads.model.streamed import Feed
from manyheads.training.together import train_together


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Two chunks of eleven sequences make a block."""
    monkeypatch.setattr(streamed, "FEED_BYTES", 2 * 11 * 3 * 5 * 4)
    monkeypatch.setattr(mapped, "SMALL_BYTES", 0)


@pytest.fixture
def pair(tmp_path):
    """The same data in memory and in files."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 5)).astype(np.float32)
    y, mask = np.sign(X[:, 0, 0]), rng.random((60, 3)) < 0.8
    mask[:, 0] = True
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)

    def make(masked):
        more = {"mask": mask, "relevant": mask & (X[:, :, 1] > 0)} if masked else {}
        return mh.Dataset.from_arrays(X, y, **more), mh.Dataset.open(
            tmp_path / "x.npy", tmp_path / "y.npy", **more
        )

    return make


def assert_equal_runs(run, other):
    assert jax.tree.structure(run.displacement) == jax.tree.structure(other.displacement)
    leaves = zip(
        *(jax.tree.leaves((r.displacement, r.snapshots)) for r in (run, other)), strict=True
    )
    assert all(np.array_equal(a, b) for a, b in leaves)
    for name in (
        "steps",
        "train_loss",
        "gradient_norm",
        "distance",
        "margin",
        "test_loss",
        "attention_mass",
    ):
        assert np.array_equal(getattr(run, name), getattr(other, name)), name
    assert run.sources == other.sources


@pytest.fixture
def eleven(monkeypatch):
    """Chunks of eleven sequences."""
    monkeypatch.setattr(gradient, "chunk_size", lambda *_: 11)


@pytest.mark.parametrize(
    ("decoder", "dtype", "masked"),
    [("full", "float32", False), ("pooled", "float64", True), ("last", "float32", True)],
)
def test_same_bits_as_the_resident_run(pair, eleven, decoder, dtype, masked):
    start = mh.gaussian_start(3, num_tokens=3, dim=5, decoder=decoder, key=1)
    how = dict(rule=mh.GD(0.5), num_steps=6, record="all", snapshots="records", dtype=dtype)
    assert_equal_runs(*(mh.train(start, data, test=data, **how) for data in pair(masked)))


@pytest.mark.parametrize("chunk", [7, 1000])
def test_any_chunk(pair, chunk, monkeypatch):
    monkeypatch.setattr(gradient, "chunk_size", lambda n, *_: min(chunk, n))
    start = mh.gaussian_start(3, num_tokens=3, dim=5, key=1)
    how = dict(rule=mh.GD(0.5), num_steps=3, dtype="float32", test=None)
    ours, theirs = (mh.train(start, data, **how) for data in pair(False)[::-1])
    assert ours.settings["chunk"] == theirs.settings["chunk"]
    # one chunk alone is compiled without a loop, which may round differently
    np.testing.assert_allclose(ours.train_loss, theirs.train_loss, rtol=1e-6)


def test_a_rule_that_evaluates_twice_and_weights(pair, eleven):
    start = mh.gaussian_start(3, num_tokens=3, dim=5, key=1)
    weight = np.random.default_rng(3).random(60)
    weight[::3] = 0
    how = dict(
        rule=mh.Polyak(0.1),
        num_steps=4,
        loss=mh.Weighted(weight),
        dtype="float64",
    )
    runs = [mh.train(start, data, **how) for data in pair(False)]
    assert np.array_equal(runs[0].train_loss, runs[1].train_loss)


def test_a_run_is_resumed_in_place_or_not(pair, eleven):
    whole, left = pair(False)
    start = mh.gaussian_start(3, num_tokens=3, dim=5, key=1)
    how = dict(rule=mh.GD(0.5), dtype="float32", record=1)
    once = mh.train(start, left, num_steps=6, **how)
    half = mh.train(start, left, num_steps=3, stop=lambda step, model: step == 2, **how)
    again = mh.train(start, whole, num_steps=6, resume=half, **how)
    assert np.array_equal(once.train_loss[-3:], again.train_loss[-3:])


def test_first_phase_and_scores(pair):
    whole, left = pair(True)
    models = [mh.first_phase(data, num_heads=4) for data in (whole, left)]
    for a, b in zip(*(jax.tree.leaves(m.parameters) for m in models), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(
        models[0].scores(left), models[0].scores(whole), rtol=1e-12, atol=1e-14
    )


def test_a_feed_reads_ahead_and_pads(pair):
    whole, left = pair(False)
    feed = Feed(left.tokens, 11, np.float64)
    assert feed.shape[0] == feed.blocks * feed.per_block and feed.shape[0] * 11 >= 60
    for order in (range(feed.blocks), reversed(range(feed.blocks)), range(feed.blocks)):
        seen = {k: feed.fetch(np.int32(k)) for k in order}
        found = np.concatenate([seen[k].reshape(-1, 3, 5) for k in sorted(seen)])
        assert np.array_equal(found[:60], whole.tokens) and not found[60:].any()
    assert feed.ahead is None  # nothing is held after the last block


def test_what_cannot_be_done_says_so(pair, monkeypatch):
    left = pair(False)[1]
    start = mh.gaussian_start(3, num_tokens=3, dim=5, key=1)
    with pytest.raises(ValueError, match="use train for each"):
        train_together([start], [left], rules=[mh.GD(0.1)], num_steps=1)
    with pytest.raises(ValueError, match=r"single sequences .* dataset\.subset"):
        attention_objective(start, left).some(np.arange(1))
    monkeypatch.setenv("MANYHEADS_MEMORY", "0.000001")
    for measure in (mh.measures.loss_curvature, mh.measures.tangent_kernel):
        with pytest.raises(ValueError, match="GiB are free"):
            measure(start, left)


def test_a_file_that_changed_after_it_was_opened_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.standard_normal((6, 3, 4)))
    np.save(tmp_path / "y.npy", np.arange(6) % 2)
    data = mh.Dataset.open(tmp_path / "x.npy", tmp_path / "y.npy")
    changed = np.lib.format.open_memmap(tmp_path / "x.npy", mode="r+")
    changed[4, 1, 2] = np.nan
    changed.flush()
    with pytest.raises(
        ValueError, match="no longer finite: the file has changed since it was opened; repair it"
    ):
        mh.train(mh.zero_start(2, num_tokens=3, dim=4), data, rule=mh.GD(0.1), num_steps=2)
