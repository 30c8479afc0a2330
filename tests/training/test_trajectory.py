import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.data.files import read_npz, write_npz


@pytest.fixture(scope="module")
def run():
    mix = mh.TokenizedMixture(num_tokens=4, dim=6, num_patterns=2, sparsity=0.5, frame="axis")
    model = mh.gaussian_start(
        3, num_tokens=4, dim=6, rank=2, decoder="pooled", key=jax.random.key(0)
    )
    data, test = mix.sample(10, key=jax.random.key(1)), mix.sample(10, key=jax.random.key(2))
    return mh.train(model, data, rule=mh.Adam(0.1), num_steps=30, test=test, snapshots=[3, 30])


def test_saves_and_loads_equal(run, tmp_path):
    run.save(tmp_path / "run.npz")
    back = mh.Trajectory.load(tmp_path / "run.npz")
    for name in (
        "steps",
        "train_loss",
        "test_loss",
        "gradient_norm",
        "distance",
        "readout_norm",
        "margin",
        "attention_mass",
    ):
        assert (
            np.array_equal(getattr(back, name), getattr(run, name))
            and getattr(back, name).dtype == getattr(run, name).dtype
        )
    assert (back.status, back.last_step, back.settings) == (run.status, run.last_step, run.settings)
    assert str(back) == str(run) and str(back.start) == str(run.start)
    trees = [(t.start.heads, t.snapshots, t.displacement, t.optimizer_state) for t in (back, run)]
    assert jax.tree.structure(trees[0]) == jax.tree.structure(trees[1])
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, trees), strict=True))
    assert list(tmp_path.iterdir()) == [tmp_path / "run.npz"]


def test_models_at_snapshots(run):
    assert np.array_equal(run.model(30).readout, run.final.readout)
    assert np.array_equal(run.model(0).readout, run.start.readout)
    assert not np.array_equal(run.model(3).readout, run.start.readout)
    with pytest.raises(
        ValueError, match="step 4 has no snapshot; there are snapshots at 0, 3, 30, 30"
    ):
        run.model(4)


def test_prints_a_table_with_the_status(run):
    assert "adam, step size 0.1, logistic loss, float32: finished at step 30 of 30" in str(run)
    assert len(str(run).splitlines()) == 3 + 8 and repr(run) == str(run)


def test_a_file_of_another_version_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr("manyheads.data.files.FORMAT_VERSION", 2)
    run.save(tmp_path / "run.npz")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format_version 2, and this version of manyheads reads 1"):
        mh.Trajectory.load(tmp_path / "run.npz")


def test_a_file_that_lacks_something_is_refused(run, tmp_path):
    run.save(tmp_path / "run.npz")
    arrays, meta = read_npz(tmp_path / "run.npz")
    for name in ("steps", "multiplicity", "start_2", "last_0", "record_train_loss"):
        write_npz(
            tmp_path / "less.npz",
            {key: value for key, value in arrays.items() if key != name},
            meta,
        )
        with pytest.raises(
            ValueError, match=f"not a whole trajectory: '{name.removeprefix('record_')}' is"
        ):
            mh.Trajectory.load(tmp_path / "less.npz")


def test_a_run_with_learned_queries_is_read_back(tmp_path):
    rng = np.random.default_rng(0)
    model = mh.MultiHead.create(
        rng.standard_normal((2, 6)), rng.standard_normal((2, 6)), decoder="query"
    )
    data = mh.Dataset.from_arrays(rng.standard_normal((8, 4, 6)), [0, 1] * 4)
    run = mh.train(model, data, rule=mh.GD(0.1), num_steps=3)
    run.save(tmp_path / "run.npz")
    assert np.array_equal(mh.Trajectory.load(tmp_path / "run.npz").final.readout, run.final.readout)


def test_a_truncated_file_is_refused(run, tmp_path):
    run.save(tmp_path / "run.npz")
    (tmp_path / "run.npz").write_bytes((tmp_path / "run.npz").read_bytes()[:3000])
    with pytest.raises(ValueError, match="is not a readable .npz file"):
        mh.Trajectory.load(tmp_path / "run.npz")


def test_records_as_a_table_and_as_an_xarray_dataset(run):
    table, dataset = run.to_pandas(), run.to_xarray()
    assert table.index.name == "step" and table.index.tolist() == run.steps.tolist()
    assert np.array_equal(table["train_loss"], run.train_loss) and np.array_equal(
        dataset.test_loss, run.test_loss
    )
    assert np.array_equal(table["attention_mass_1"], run.attention_mass[:, 1])
    assert dataset.attrs["step_size"] == 0.1 and dataset.attrs["status"] == "finished"
