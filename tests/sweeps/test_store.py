import json
import os

import numpy as np
import pytest
from sweeps.stored import SWEEP, fill, result

from manyheads.data.files import save_npz, write_json
from manyheads.sweeps.assembly import export
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.status import status
from manyheads.sweeps.store import CorruptPart, Store, StoreError


def test_a_part_is_read_back_equal(tmp_path):
    store, plan = fill(tmp_path)
    batch = plan.batches[3]
    wanted = result(plan, batch)["cells"][0]
    header = store.check(batch.id)
    assert (header["cells"][0]["hash"], header["cells"][0]["status"]) == (
        wanted["hash"],
        "finished",
    )
    assert np.array_equal(
        store.read(batch.id, ["0/curve"])["0/curve"], wanted["values"]["curve"][1]
    )
    assert store.sweep() == SWEEP


def test_a_part_is_never_written_again(tmp_path):
    store, plan = fill(tmp_path)
    with pytest.raises(StoreError, match="never written again"):
        store.write(plan.batches[0].id, result(plan, plan.batches[0]))


def test_nothing_half_written_stays(tmp_path, monkeypatch):
    store, plan = fill(tmp_path, leave=1)
    before = sorted(os.listdir(store.parts))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StoreError,
        match="No space left on device; stored results are safe, free some space and rerun",
    ):
        store.write(plan.batches[-1].id, result(plan, plan.batches[-1]))
    assert sorted(os.listdir(store.parts)) == before
    monkeypatch.undo()
    store.write(plan.batches[-1].id, result(plan, plan.batches[-1]))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "text", "header"])
def test_a_corrupt_part_is_found(tmp_path, damage):
    store, plan = fill(tmp_path)
    path = store.part(plan.batches[0].id)
    content = bytearray(path.read_bytes())
    numbers = result(plan, plan.batches[0])["cells"][0]["values"]["curve"][1].tobytes()
    content[content.index(numbers) + 5] ^= 1
    broken = {
        "empty": b"",
        "cut": path.read_bytes()[:-40],
        "flipped": bytes(content),
        "text": b"hello",
    }
    if damage == "header":
        np.savez(path, header=np.array("{"))
    else:
        path.write_bytes(broken[damage])
    with pytest.raises(CorruptPart, match="cannot be read .*run the sweep again to redo its batch"):
        store.check(plan.batches[0].id)
    aside = store.set_aside(plan.batches[0].id, "corrupt")
    assert aside.name.endswith(".corrupt") and not path.exists()


def rewrite(store, batch_id, change=lambda header: header, arrays=lambda arrays: arrays, seal=True):
    """A part with a changed header or changed arrays, and with a good checksum."""
    with np.load(store.part(batch_id)) as file:
        content = dict(file)
    header = change(json.loads(str(content.pop("header"))))
    with open(store.part(batch_id), "w+b") as file:
        (save_npz if seal else lambda f, a: np.savez(f, **a))(
            file, {"header": np.array(json.dumps(header)), **arrays(content)}
        )


def test_a_part_of_other_cells_is_refused(tmp_path):
    store, plan = fill(tmp_path / "here")
    there, other = fill(
        tmp_path / "there", sweep=Sweep(name="stored", axes={"model.num_heads": [2, 3]})
    )
    first = plan.batches[0].id
    for source in (store.part(plan.batches[1].id), there.part(other.batches[0].id)):
        store.part(first).write_bytes(source.read_bytes())
        with pytest.raises(CorruptPart, match=f"it holds batch {source.stem}"):
            store.header(first)
    assert status(tmp_path / "here").corrupt == (f"{first}.npz",)
    rewrite(
        store, first, lambda header: {**header, "batch": first}
    )  # its cells are still the other's
    with pytest.raises(CorruptPart):
        store.header(first)


def test_an_array_that_vanished_or_changed_its_shape_is_found(tmp_path):
    store, plan = fill(tmp_path)
    one, two = plan.batches[0].id, plan.batches[1].id
    rewrite(store, one, arrays=lambda arrays: {k: v for k, v in arrays.items() if k != "0/curve"})
    with pytest.raises(CorruptPart, match="its arrays are not those that it describes"):
        store.header(one)
    rewrite(store, two, arrays=lambda arrays: {**arrays, "0/curve": arrays["0/curve"][:2]})
    with pytest.raises(CorruptPart, match="the array 0/curve is not as described"):
        store.check(two)
    assert status(tmp_path).corrupt == (f"{one}.npz",)
    with pytest.warns(UserWarning, match="its cells count as missing"):
        assert export(tmp_path, tmp_path / "out.nc").is_file()


def test_a_part_of_the_version_before_checksums_is_read_and_a_newer_one_is_refused(tmp_path):
    store, plan = fill(tmp_path)
    batch = plan.batches[0]
    rewrite(store, batch.id, lambda header: {**header, "format_version": 1}, seal=False)
    assert store.check(batch.id)["format_version"] == 1
    wanted = result(plan, batch)["cells"][0]["values"]["curve"][1]
    assert np.array_equal(store.read(batch.id, ["0/curve"])["0/curve"], wanted)
    rewrite(store, batch.id, lambda header: {**header, "format_version": 2}, seal=False)
    with pytest.raises(CorruptPart, match="its checksum is missing"):
        store.check(batch.id)
    rewrite(store, batch.id, lambda header: {**header, "format_version": 3})
    with pytest.raises(
        StoreError, match="has format_version 3, newer than the 2 .* update manyheads"
    ) as caught:
        store.check(batch.id)
    assert not isinstance(caught.value, CorruptPart)


def test_a_damaged_plan_is_set_aside_and_written_anew(tmp_path):
    store, plan = fill(tmp_path)
    path = tmp_path / "sweep.json"
    whole = path.read_bytes()
    for damaged in (b"", whole[:-200], whole.replace(b"stored", b"stoned")):
        path.write_bytes(damaged)
        with pytest.raises(
            StoreError, match="cannot be read .*; run the same spec into this folder again"
        ):
            status(tmp_path)
        assert "the plan is written anew" in store.mend(plan)
        store.begin(plan, {"git": "abc", "versions": {}})
        assert path.read_bytes() == whole
    assert (tmp_path / "sweep.json.3.corrupt").is_file() and store.mend(plan) == ""
    other = make_plan(Sweep(name="other", axes={"model.num_heads": [2, 3]}))
    path.write_bytes(b"{")
    with pytest.raises(StoreError, match="are not of this spec; pass the spec of this folder"):
        store.mend(other)
    assert path.read_bytes() == b"{" and "kept as sweep.json.4.corrupt" in store.mend(
        other, extend=True
    )


def test_a_plan_that_does_not_fit_itself_is_refused(tmp_path):
    store, _ = fill(tmp_path)
    plan = store.manifest()
    first, *rest = plan["batches"]
    for change, words in (
        ({"grid": plan["grid"][1:]}, "its grid and its cells do not fit"),
        ({"cells": ["0" * 20, *plan["cells"][1:]]}, "a batch is not named after its cells"),
        ({"batches": rest}, "its batches are not all of its cells"),
        ({"spec": None}, "it has no spec"),
        ({"dims": ["x"]}, "KeyError: 'x'"),
    ):
        write_json(tmp_path / "sweep.json", {**plan, **change})
        with pytest.raises(StoreError, match=words):
            store.manifest()


def test_a_plan_of_the_version_before_checksums_gets_one(tmp_path):
    store, plan = fill(tmp_path)
    whole = (tmp_path / "sweep.json").read_bytes()
    old = {**store.manifest(), "format_version": 1}
    (tmp_path / "sweep.json").write_text(json.dumps(old, indent=1))
    with pytest.warns(
        UserWarning, match="of an older version and has no checksum; the next run here adds one"
    ):
        assert status(tmp_path).finished == 6
    with pytest.warns(UserWarning):
        assert store.mend(plan) == ""
    assert (tmp_path / "sweep.json").read_bytes() == whole


def test_pickles_are_not_loaded(tmp_path):
    store, plan = fill(tmp_path)
    header = store.header(plan.batches[0].id)
    np.savez(
        store.part(plan.batches[0].id),
        header=np.array(json.dumps(header)),
        x=np.array([object()], dtype=object),
    )
    with pytest.raises(CorruptPart):
        store.check(plan.batches[0].id)


def test_a_newer_format_is_refused(tmp_path):
    store, _ = fill(tmp_path)
    write_json(tmp_path / "sweep.json", {**store.manifest(), "format_version": 99})
    with pytest.raises(StoreError, match="format_version 99, newer than the 2"):
        store.manifest()


def test_a_folder_of_another_sweep_is_refused_and_can_be_extended(tmp_path):
    store, plan = fill(tmp_path)
    longer = make_plan(
        Sweep(name="stored", axes={"model.num_heads": [1, 4, 16, 64]}, seeds=2), batching=False
    )
    with pytest.raises(StoreError, match=r"axes.model.num_heads is \[1.0, 4.0, 16.0\] there"):
        store.begin(longer, {})
    store.begin(longer, {}, extend=True)
    kept = [batch.id for batch in longer.batches if store.part(batch.id).exists()]
    assert kept == [batch.id for batch in plan.batches]


def test_the_same_axes_in_another_order_are_named(tmp_path):
    axes = {"model.num_heads": [1, 4], "train.step_size": [0.1, 0.2]}
    Store(tmp_path).begin(make_plan(Sweep(axes=axes)), {})
    turned = Sweep(axes=dict(reversed(axes.items())))
    words = "the order of its axes is model.num_heads, train.step_size there and train.step_size, model.num_heads here"
    with pytest.raises(StoreError, match=words):
        Store(tmp_path).begin(make_plan(turned), {})


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="is not empty and holds no sweep"):
        Store(tmp_path).begin(make_plan(SWEEP), {})
    with pytest.raises(FileNotFoundError, match="holds no sweep"):
        Store(tmp_path).manifest()


def test_one_driver_at_a_time(tmp_path):
    store, _ = fill(tmp_path)
    with store.lock():
        with pytest.raises(StoreError, match="another process is working"), Store(tmp_path).lock():
            pass
    with store.lock():
        pass


def test_a_torn_journal_line_is_left_out(tmp_path):
    store, _ = fill(tmp_path)
    store.note("run", engine="Here")
    with open(tmp_path / "journal.jsonl", "a") as file:
        file.write('{"time": 1, "ev')
    assert [event["event"] for event in store.journal()] == ["run"]


@pytest.mark.parametrize(
    "line", ['{"event": "done"}', '{"event": "done", "time": "x"}', '{"event": "run", "time": NaN}']
)
def test_a_journal_line_without_a_time_is_left_out(tmp_path, line):
    store, _ = fill(tmp_path)
    store.note("run")
    with open(tmp_path / "journal.jsonl", "a") as file:
        file.write(line + "\n" + '{"event": "done", "time": 1e999, "cells": []}\n[]\n')
    assert len(store.journal()) == 1 and status(tmp_path).rate == 0
