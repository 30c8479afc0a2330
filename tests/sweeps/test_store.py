import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sweeps.stored import SWEEP, fill, result

from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.store import CorruptPart, Store, StoreError


def test_a_part_is_read_back_equal(tmp_path):
    store, plan = fill(tmp_path)
    batch = plan.batches[3]
    wanted = result(plan, batch)["cells"][0]
    header = store.check(batch.id)
    assert (header["cells"][0]["hash"], header["cells"][0]["status"]) == (wanted["hash"], "finished")
    assert np.array_equal(store.read(batch.id, ["0/curve"])["0/curve"], wanted["values"]["curve"][1])
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
    with pytest.raises(StoreError, match="No space left on device; stored results are safe, free some space and rerun"):
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
    broken = {"empty": b"", "cut": path.read_bytes()[:-40], "flipped": bytes(content), "text": b"hello"}
    if damage == "header":
        np.savez(path, header=np.array("{"))
    else:
        path.write_bytes(broken[damage])
    with pytest.raises(CorruptPart, match="cannot be read .*run the sweep again to redo its batch"):
        store.check(plan.batches[0].id)
    aside = store.set_aside(plan.batches[0].id, "corrupt")
    assert aside.name.endswith(".corrupt") and not path.exists()


def test_pickles_are_not_loaded(tmp_path):
    store, plan = fill(tmp_path)
    header = store.header(plan.batches[0].id)
    np.savez(store.part(plan.batches[0].id), header=np.array(json.dumps(header)), x=np.array([object()], dtype=object))
    with pytest.raises(CorruptPart):
        store.check(plan.batches[0].id)


def test_a_newer_format_is_refused(tmp_path):
    store, _ = fill(tmp_path)
    manifest = {**store.manifest(), "format_version": 99}
    (tmp_path / "sweep.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match="format_version 99, newer than the 1"):
        store.manifest()


def test_a_folder_of_another_sweep_is_refused_and_can_be_extended(tmp_path):
    store, plan = fill(tmp_path)
    longer = make_plan(Sweep(name="stored", axes={"model.num_heads": [1, 4, 16, 64]}, seeds=2), batching=False)
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


def test_reading_results_needs_no_jax(tmp_path):
    fill(tmp_path)
    code = (
        "import sys; from manyheads.sweeps import open_sweep, status; "
        "d = open_sweep(sys.argv[1]); d.load(); print(status(sys.argv[1])); sys.exit('jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True)
