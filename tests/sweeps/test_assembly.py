import json

import numpy as np
import pytest
import xarray
from sweeps.stored import SWEEP, fill, result

from manyheads.sweeps.assembly import export, open_sweep
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.status import status, time_spent
from manyheads.sweeps.store import Store


def test_every_value_is_where_its_coordinates_say(tmp_path):
    fill(tmp_path)
    data = open_sweep(tmp_path)
    assert data.curve.dims == ("num_heads", "seed", "place") and dict(data.sizes) == {
        "num_heads": 3,
        "seed": 2,
        "place": 3,
    }
    for heads in (1, 4, 16):
        for seed in (0, 1):
            cell = data.sel(num_heads=heads, seed=seed)
            assert np.array_equal(cell.curve, heads + 0.1 * np.arange(3) + 100 * seed)
            assert cell.label == f"H={heads}" and cell.status == "finished"
    assert data["count"].dtype == np.int64
    assert np.array_equal(data.place, [0, 1, 2]) and "place" in data.coords
    assert data.num_heads.attrs["units"] == "heads" and data.curve.attrs["units"] == "1"


def test_provenance_travels_with_the_data(tmp_path):
    fill(tmp_path)
    attributes = open_sweep(tmp_path).attrs
    assert Sweep.from_toml(attributes["spec"]) == SWEEP
    assert (
        attributes["git"] == "abc"
        and attributes["versions"] == "jax=0"
        and attributes["device"] == "cpu"
    )
    assert attributes["seeds"] == "0 1" and attributes["dtype"] == "auto"


def test_time_on_the_clock_counts_once_and_without_pauses(tmp_path):
    """Two sweeps at the same time, one of them twice; a part takes half a second of computing."""

    def journal(folder, *events):
        fill(tmp_path / folder)
        lines = [json.dumps({"time": when, "event": event, "batch": ""}) for when, event in events]
        (tmp_path / folder / "journal.jsonl").write_text("\n".join(lines))

    journal(
        "a",
        (100.0, "run"),
        (104.0, "done"),
        (110.0, "done"),
        (500.0, "run"),
        (503.0, "done"),
        (900.0, "run"),
    )
    journal("b", (108.0, "run"), (109.0, "lost"), (112.0, "done"))
    assert time_spent([tmp_path / "a", tmp_path / "b"]) == (15.0, 6.0)
    assert time_spent([tmp_path / "b"]) == (4.0, 3.0) and time_spent([]) == (0.0, 0.0)


def test_only_what_is_touched_is_read(tmp_path, monkeypatch):
    fill(tmp_path)
    reads = []
    original = Store.read
    monkeypatch.setattr(
        Store,
        "read",
        lambda self, batch, names: reads.append(names) or original(self, batch, names),
    )
    data = open_sweep(tmp_path)
    reads.clear()  # coordinates are read on opening
    piece = data.curve.isel(num_heads=1, seed=slice(0, 1))
    assert reads == []
    assert np.array_equal(piece, [4 + 0.1 * np.arange(3)])
    assert reads == [["0/curve"]]


@pytest.mark.parametrize("batching", [False, 3])
def test_any_indexing_agrees_with_numpy(tmp_path, batching):
    fill(tmp_path, batching=batching)
    lazy, whole = open_sweep(tmp_path).curve, open_sweep(tmp_path).curve.load().values
    for key in (
        (0, 0, 0),
        (slice(None, None, -1), 1),
        ([2, 0], slice(None), [1]),
        (slice(1, 3), [1, 0], slice(0, 3, 2)),
        (np.array([True, False, True]),),
        (2, [1], -1),
    ):
        full = (*key, *(slice(None),) * (3 - len(key)))
        lists = [np.arange(size)[k] for k, size in zip(full, whole.shape, strict=True)]
        wanted = whole[np.ix_(*map(np.atleast_1d, lists))].reshape(
            [len(i) for i in lists if np.ndim(i)]
        )
        assert np.array_equal(lazy[key].values, wanted), key


def test_missing_failed_and_ragged_cells_are_marked(tmp_path):
    store, plan = fill(tmp_path, leave=3)
    store.write(plan.batches[3].id, result(plan, plan.batches[3], status="failed"))
    store.write(plan.batches[4].id, result(plan, plan.batches[4], status="diverged", size=2))
    data = open_sweep(tmp_path)
    assert data.status.values.ravel().tolist() == ["finished"] * 3 + [
        "failed",
        "diverged",
        "missing",
    ]
    assert data.message.values.ravel().tolist() == [""] * 3 + ["it broke", "", ""]
    curve = data.curve.values.reshape(6, 3)
    assert np.isnan(curve[3]).all() and np.isnan(curve[5]).all()
    assert (
        np.isnan(curve[4, 2]) and np.isfinite(curve[4, :2]).all() and np.isfinite(curve[:3]).all()
    )
    assert (
        np.isnan(data["count"].values.ravel()[[3, 5]]).all() and data.label.values.ravel()[5] == ""
    )
    assert data.coords["place"].dims == ("place",) and data.place.values.tolist() == [0, 1, 2]
    found = status(tmp_path)
    assert (found.finished, found.failed, found.diverged, found.missing) == (3, 1, 1, 1)
    assert "failed 1 x: it broke" in str(found) and "rerun .manyheads sweep. with" in str(
        found
    ).replace("`", ".")


@pytest.mark.parametrize("sizes", [(3, 2, 1), (1, 2, 3), (2, 3, 1)])
@pytest.mark.parametrize("statuses", ["fdd", "ffd", "ddd", "dfd"])
def test_a_diverged_cell_leaves_a_shared_coordinate_shared(tmp_path, sizes, statuses):
    """Shorter because it ended early; a finished cell that is shorter is another matter, and so are other values."""
    words = {"f": "finished", "d": "diverged"}
    store, plan = fill(tmp_path, sweep=Sweep(seeds=3), leave=3)
    longest = max(sizes)
    sizes = [longest if s == "f" else size for s, size in zip(statuses, sizes, strict=True)]
    for batch, status_, size in zip(plan.batches, statuses, sizes, strict=True):
        store.write(batch.id, result(plan, batch, status=words[status_], size=size))
    data = open_sweep(tmp_path)
    assert data.coords["place"].dims == ("place",) and int(data["place"].values[-1]) == longest - 1
    assert [int(np.isfinite(row).sum()) for row in data.curve.values] == sizes


def test_coordinates_that_differ_stay_with_their_cells(tmp_path):
    store, plan = fill(tmp_path / "finished", sweep=Sweep(seeds=2), leave=2)
    store.write(plan.batches[0].id, result(plan, plan.batches[0], size=2))
    store.write(plan.batches[1].id, result(plan, plan.batches[1], size=3))
    assert open_sweep(tmp_path / "finished").place.dims == ("seed", "place")
    store, plan = fill(tmp_path / "diverged", sweep=Sweep(seeds=2), leave=1)
    other = result(plan, plan.batches[1], status="diverged", size=2)
    other["cells"][0]["values"]["place"] = (("place",), np.array([0, 7]), {"coordinate": True})
    store.write(plan.batches[1].id, other)
    assert open_sweep(tmp_path / "diverged").place.dims == ("seed", "place")


def test_every_part_says_which_code_made_it(tmp_path):
    store, plan = fill(
        tmp_path, leave=3
    )  # these are of before parts said it, and count as made by what the folder says
    for batch, commit in zip(plan.batches[3:], ("def", "def + changes", ""), strict=True):
        made = result(plan, batch)
        store.write(batch.id, {**made, "worker": {**made["worker"], "git": commit}})
    assert open_sweep(tmp_path).attrs["git"] == "abc; def; def + changes"


def test_an_axis_of_precisions_is_what_was_used(tmp_path):
    fill(tmp_path, sweep=Sweep(axes={"train.dtype": ["float32", "float64"]}))
    assert open_sweep(tmp_path).attrs["dtype"] == "float32; float64"


def test_a_corrupt_part_counts_as_missing_with_one_warning(tmp_path):
    store, plan = fill(tmp_path)
    store.part(plan.batches[0].id).write_bytes(b"no zip")
    with pytest.warns(UserWarning, match="cannot be read .* its cells count as missing") as caught:
        data = open_sweep(tmp_path)
    assert len(caught) == 1 and data.status.values.ravel()[0] == "missing"
    assert status(tmp_path).corrupt == (store.part(plan.batches[0].id).name,)


def test_a_sweep_that_has_just_begun_opens(tmp_path):
    Store(tmp_path).begin(make_plan(SWEEP), {})
    strict = json.dumps(status(tmp_path).to_dict(), allow_nan=False)  # JSON has no NaN
    assert json.loads(strict)["seconds_left"] is None
    data = open_sweep(tmp_path)
    assert set(data.data_vars) == {"status", "message"} and (data.status == "missing").all()


def test_equal_cells_fill_all_their_places(tmp_path):
    axes = {"start.kind": ["zero", "gaussian"], "start.readout_scale": [1.0, 2.0]}
    fill(tmp_path, sweep=Sweep(axes=axes, seeds=2))
    data = open_sweep(tmp_path)
    assert (data.status == "finished").all() and data.curve.shape == (2, 2, 2, 3)
    assert status(tmp_path).finished == 8


@pytest.mark.parametrize("ending", ["nc", "zarr"])
def test_exports_hold_the_same_data(tmp_path, ending):
    store, plan = fill(tmp_path / "sweep", leave=2)
    store.write(plan.batches[4].id, result(plan, plan.batches[4], status="failed"))
    target = tmp_path / f"out.{ending}"
    export(tmp_path / "sweep", target)
    read = xarray.open_dataset if ending == "nc" else xarray.open_zarr
    here = open_sweep(tmp_path / "sweep").load()
    with read(target) as there:
        there = there.load()
    assert set(there.variables) == set(here.variables)
    for name in here.variables:
        assert there[name].dims == here[name].dims
        assert np.array_equal(
            there[name].values.astype(here[name].dtype),
            here[name].values,
            equal_nan=here[name].dtype.kind == "f",
        )
    assert there.attrs["spec"] == here.attrs["spec"] and there.num_heads.attrs["units"] == "heads"
    with pytest.raises(ValueError, match="exists; choose another name"):
        export(tmp_path / "sweep", target)
    export(tmp_path / "sweep", target, overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["sweep", target.name])
    with pytest.raises(ValueError, match=r"must end in \.nc"):
        export(tmp_path / "sweep", tmp_path / "out.txt")
