import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from manyheads._fields import SpecError
from manyheads.cli.main import main
from manyheads.sweeps import cell as cell_module
from manyheads.sweeps import local
from manyheads.sweeps.assembly import open_sweep
from manyheads.sweeps.engine import make_engine, run
from manyheads.sweeps.environment import worker_facts
from manyheads.sweeps.local import EngineError, Processes
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.setup import set_up
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.status import status
from manyheads.sweeps.store import Store, StoreError
from manyheads.training.descent import train
from manyheads.training.rules import GD

SMALL = dict(num_examples=8, num_tokens=4, dim=4, num_patterns=2, num_test=6)
TRAINING = Sweep(
    data=SMALL,
    start={"num_examples": 20},
    train={"num_steps": 6, "dtype": "float64"},
    measures=["risk", "margins", "attention"],
    axes={"model.num_heads": [2, 1e6], "train.step_size": [0.1, 0.3]},
    seeds=2,
)
QUICK = Sweep(cell="sweep_cells:arithmetic", axes={"parameters.slope": [0.5, 2.0]}, seeds=3)


def parts(folder) -> dict[str, tuple[int, int]]:
    return {
        p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in Path(folder, "parts").glob("*.npz")
    }


def test_a_sweep_holds_what_train_gives(tmp_path):
    data = run(TRAINING, tmp_path, progress=False, batching=False)
    cell = next(
        c
        for c in make_plan(TRAINING).cells
        if (c.model.num_heads, c.train.step_size, c.seed) == (1e6, 0.3, 1)
    )
    setup = set_up(cell)
    alone = train(
        setup.start, setup.dataset, test=setup.test, rule=GD(0.3), num_steps=6, dtype="float64"
    )
    here = data.sel(num_heads=1e6, step_size=0.3, seed=1)
    assert np.array_equal(here.train_loss, alone.train_loss) and np.array_equal(
        here.test_loss, alone.test_loss
    )
    assert np.array_equal(data.step, alone.steps)
    scores = alone.final.scores(setup.dataset) * setup.dataset.labels
    assert np.array_equal(here.final_margins, scores)
    assert here.final_train_loss == pytest.approx(np.log1p(np.exp(-scores)).mean(), rel=1e-12)
    assert here.gap == pytest.approx(float(here.final_test_loss - here.final_train_loss), rel=1e-12)
    assert here.final_train_loss == pytest.approx(float(here.train_loss[-1]), rel=1e-9)
    assert here.attention_of_heads[-1] == pytest.approx(
        float(here.attention_mass[-1].mean()), rel=1e-12
    )
    assert not np.array_equal(data.train_loss.sel(seed=0), data.train_loss.sel(seed=1))


def test_batched_and_single_agree(tmp_path):
    single = run(TRAINING, tmp_path / "single", progress=False, batching=False)
    batched = run(TRAINING, tmp_path / "batched", progress=False, batching=3)
    assert len(parts(tmp_path / "batched")) == 3 and len(parts(tmp_path / "single")) == 8
    for name in single.data_vars:
        if single[name].dtype.kind == "f":
            np.testing.assert_allclose(
                batched[name], single[name], rtol=1e-10, atol=1e-13, err_msg=str(name)
            )
        else:
            assert np.array_equal(batched[name], single[name])


def test_few_and_very_many_heads_are_batched_in_their_own_precisions(tmp_path):
    sweep = Sweep(
        data=SMALL,
        start={"kind": "zero"},
        train={"num_steps": 3},
        axes={"model.num_heads": [1, 8, 1e12]},
    )
    data = run(sweep, tmp_path, progress=False, batching=16)
    assert len(parts(tmp_path)) == 1 and (data.status == "finished").all()
    assert data.sel(num_heads=8).train_loss.values == pytest.approx(
        data.sel(num_heads=1e12).train_loss.values, rel=1e-3
    )


def test_the_data_do_not_depend_on_the_model():
    one, many = (
        set_up(c) for c in make_plan(Sweep(data=SMALL, axes={"model.num_heads": [1, 64]})).cells
    )
    assert np.array_equal(one.dataset.tokens, many.dataset.tokens)
    assert not np.array_equal(one.dataset.tokens[:6], one.test.tokens) and one.first is not None


def test_a_cell_of_your_own(tmp_path):
    data = run(QUICK, tmp_path, progress=False)
    assert data.curve.dims == ("slope", "seed", "place")
    assert np.array_equal(data.curve.sel(slope=2.0, seed=2), 2.0 * np.arange(3) + 2)
    assert data.label.sel(slope=0.5, seed=1) == "seed 1" and data.whole.dtype == bool


def test_a_failed_cell_is_a_result_and_can_be_tried_again(tmp_path, monkeypatch):
    sweep = Sweep(cell="sweep_cells:arithmetic", axes={"parameters.fail": [False, True]}, seeds=2)
    data = run(sweep, tmp_path, progress=False)
    assert data.status.values.tolist() == [["finished"] * 2, ["failed"] * 2]
    assert data.message.values[1, 0] == "ValueError: asked to fail"
    before = parts(tmp_path)
    run(sweep, tmp_path, progress=False)
    assert parts(tmp_path) == before
    monkeypatch.setattr("sweep_cells.arithmetic", lambda cell, fail: {"total": 1.0})
    again = run(sweep, tmp_path, progress=False, retry_failed=True)
    assert (again.status == "finished").all() and len(
        list(Path(tmp_path, "parts").glob("*.failed"))
    ) == 2
    assert set(before.items()) & set(parts(tmp_path).items()) == {
        item
        for item in before.items()
        if item[0] in {f"{b.id}.npz" for b in make_plan(sweep).batches[:2]}
    }


def test_a_diverged_cell_is_a_result(tmp_path):
    sweep = Sweep(
        data={
            "kind": "random_labels",
            "num_examples": 40,
            "num_tokens": 4,
            "dim": 5,
            "num_test": 0,
        },
        start={"kind": "zero"},
        train={"num_steps": 6, "dtype": "float64"},
        axes={"train.step_size": [0.1, 1e308]},
    )
    for batching in (False, 2):
        data = run(sweep, tmp_path / str(batching), progress=False, batching=batching)
        assert data.status.values.ravel().tolist() == ["finished", "diverged"]
        assert np.isfinite(data.train_loss[0]).all() and data.last_step[1, 0] < 6


def test_values_that_cannot_be_stored_fail_their_cell_only(tmp_path, monkeypatch):
    for values, words in (
        ({"x": object()}, "the store keeps numbers"),
        ({"seed": 1.0}, "clashes with a dimension"),
        ({"x": (("a",), np.ones((2, 2)))}, "name one new dim per axis"),
        ([1], "must return a dict"),
        ({"x": 1, "status": "fine"}, "status='fine' is not known"),
    ):
        monkeypatch.setattr("sweep_cells.arithmetic", lambda cell, values=values: values)
        data = run(Sweep(cell="sweep_cells:arithmetic"), tmp_path / words[:8], progress=False)
        assert data.status.item() == "failed" and words in data.message.item()


def test_an_interrupted_sweep_goes_on(tmp_path, capsys):
    log = tmp_path / "log"
    sweep = Sweep(cell="sweep_cells:slow", parameters={"log": str(log)}, seeds=8)

    def stop(state):
        if state.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(sweep, tmp_path / "s", progress=stop)
    assert status(tmp_path / "s").missing == 5
    before = parts(tmp_path / "s")
    seen = []
    run(sweep, tmp_path / "s", progress=seen.append)
    assert [state.done for state in seen] == [4, 5, 6, 7, 8] and seen[-1].before == 3
    assert before.items() <= parts(tmp_path / "s").items()
    ran = [line.split()[1] for line in log.read_text().splitlines()]
    assert sorted(ran) == sorted(cell.hash for cell in make_plan(sweep).cells)  # each exactly once


def test_a_corrupt_part_is_set_aside_and_run_again(tmp_path, capsys):
    good = run(QUICK, tmp_path, progress=False).load()
    name = next(iter(parts(tmp_path)))
    Path(tmp_path, "parts", name).write_bytes(b"not a zip file")
    again = run(QUICK, tmp_path, progress=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if "corrupt" in line]
    assert len(lines) == 1 and f"{name.split('.')[0]}.1.corrupt, its 1 cells run again" in lines[0]
    assert again.identical(good)
    Path(tmp_path, "parts", name).write_bytes(b"not a zip file")
    run(QUICK, tmp_path, progress=False)  # no progress is asked for, but this is worth knowing
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 1
        and lines[0].startswith("note: ")
        and f"{name.split('.')[0]}.2.corrupt" in lines[0]
    )


def test_the_device_that_was_asked_for_is_the_one_noted(monkeypatch):
    kinds = {None: "a GPU", "cpu": "a processor"}
    monkeypatch.setattr(
        jax, "devices", lambda kind=None: [SimpleNamespace(device_kind=kinds[kind])]
    )
    assert (
        worker_facts(1, "cpu")["device"] == "a processor" and worker_facts(1)["device"] == "a GPU"
    )


def test_what_runs_after_a_commit_says_so(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        "manyheads.sweeps.engine.provenance", lambda cell: {"git": made[-1], "versions": {}}
    )

    def stop(state):
        if state.done == 3:
            raise KeyboardInterrupt

    made.append("before")
    with pytest.raises(KeyboardInterrupt):
        run(QUICK, tmp_path, progress=stop)
    assert open_sweep(tmp_path).attrs["git"] == "before"
    made.append("after")
    assert run(QUICK, tmp_path, progress=False).attrs["git"] == "after; before"
    longer = replace(QUICK, seeds=(*QUICK.seeds, 77))
    made.append("last")
    assert run(longer, tmp_path, progress=False, extend=True).attrs["git"] == "after; before; last"


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    original, calls = os.fsync, []

    def filling(descriptor):
        calls.append(descriptor)
        if len(calls) > 6:  # the manifest and two parts fit
            raise OSError(28, "No space left on device")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", filling)
    with pytest.raises(
        StoreError,
        match="No space left on device; stored results are safe, free some space and rerun",
    ):
        run(QUICK, tmp_path, progress=False)
    monkeypatch.undo()
    assert len(parts(tmp_path)) == 2 and not list(Path(tmp_path, "parts").glob("*.tmp"))
    before = parts(tmp_path)
    assert (run(QUICK, tmp_path, progress=False).status == "finished").all()
    assert before.items() <= parts(tmp_path).items()


def test_a_limit_of_the_system_is_one_line(tmp_path):
    """The same with a real refusal by the kernel: files may not grow beyond 16 KiB."""
    sweep = Sweep(cell="sweep_cells:arithmetic", parameters={"size": 10_000}, seeds=2)
    sweep.save(tmp_path / "s.toml")
    limited = "ulimit -f 16; exec " + " ".join(
        [sys.executable, "-m", "manyheads.cli.main", "sweep", "s.toml", "--no-cache"]
    )
    paths = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # the limit would cut its caches
    environment = {**os.environ, **paths}
    done = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "error: cannot write in results/sweep: File too large; stored results are safe"
    )
    assert not list(Path(tmp_path, "results/sweep/parts").iterdir())


def test_a_read_only_folder_is_one_line():
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)  # the superuser may write anywhere
        with pytest.raises(
            StoreError,
            match="Permission denied; stored results are safe, choose a folder that you may write",
        ):
            run(QUICK, Path(folder) / "out", progress=False)
    finally:
        os.seteuid(user)
        os.rmdir(folder)


def test_a_path_through_a_file_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory|File exists"):
        run(QUICK, tmp_path / "file" / "out", progress=False)


class Frail(local._Worker):
    """A worker process that gets a signal before it can begin; the first `count` ones do."""

    signal, count, born = signal.SIGKILL, 0, 0

    def __init__(self, threads):
        super().__init__(threads)
        type(self).born += 1
        if self.born <= self.count:
            os.kill(self.process.pid, self.signal)


def frail(monkeypatch, **fields):
    kind = type("Frail", (Frail,), fields)
    monkeypatch.setattr(local, "_Worker", kind)
    return kind


def test_a_worker_that_dies_is_replaced_also_before_it_begins(tmp_path, monkeypatch):
    kind = frail(monkeypatch, count=2)
    sweep = Sweep(
        cell="sweep_cells:deadly", parameters={"marker": str(tmp_path / "marker")}, seeds=3
    )
    data = run(sweep, tmp_path / "s", engine=Processes(1), progress=False)
    assert (tmp_path / "marker").exists() and kind.born == 4
    assert np.array_equal(data.value, [0, 1, 2]) and (data.status == "finished").all()


def test_workers_that_cannot_begin_are_an_error_in_the_end(tmp_path, monkeypatch):
    kind = frail(monkeypatch, count=1000)
    with pytest.raises(
        EngineError,
        match=r"10 worker processes ended before they could begin \(exit code -9\); run the",
    ):
        run(QUICK, tmp_path, engine="processes", workers=2, progress=False)
    assert kind.born == 12 and status(tmp_path).missing == 6


def test_a_stopped_worker_is_named(tmp_path, monkeypatch):
    frail(monkeypatch, count=1, signal=signal.SIGSTOP)
    monkeypatch.setattr(local, "NOTE_SECONDS", 0.01)
    with contextlib.closing(Processes(1).work([dict(id="1", threads=1)])) as results:
        said = next(result["note"] for batch, result in results if batch == "" and result["note"])
    assert re.search(r"worker process (\d+), which is stopped; `kill -CONT \1`", said)


def test_a_batch_whose_workers_are_lost_stays_missing_until_a_later_run(tmp_path, capsys):
    gate = tmp_path / "gate"
    gate.touch()
    parameters = {"marker": str(tmp_path / "marker"), "gate": str(gate)}
    Sweep(cell="sweep_cells:deadly", parameters=parameters, seeds=3).save(tmp_path / "s.toml")
    command = ["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "s"), "--quiet"]
    assert main([*command, "--engine", "processes", "--workers", "1"]) == 1
    said = capsys.readouterr()
    assert "(2 finished, 0 diverged, 0 failed), 1 missing" in said.out
    lines = said.err.splitlines()
    assert (
        len(lines) == 2
        and "is left out of this run: 3 worker processes ended in it (exit code -9)" in lines[0]
    )
    assert "1 of 3 batches lost their workers again and again; their cells stay missing" in lines[1]
    assert open_sweep(tmp_path / "s").status.values.tolist() == ["finished", "missing", "finished"]
    gate.unlink()
    before = parts(tmp_path / "s")
    assert main(command) == 0 and before.items() <= parts(tmp_path / "s").items()


def test_a_run_whose_batches_are_all_lost_ends(tmp_path, capsys):
    class Hopeless:
        def work(self, jobs):
            yield from ((job["id"], local.lost("out of memory")) for job in jobs)

    data = run(
        Sweep(cell="sweep_cells:arithmetic", seeds=30), tmp_path, engine=Hopeless(), progress=False
    )
    assert (data.status == "missing").all()
    lines = capsys.readouterr().err.splitlines()
    assert (
        len(lines) == 4
        and "10 of 30 batches lost their workers again and again, and the run ends here" in lines[3]
    )


def test_the_compilation_cache_is_used_and_can_be_turned_off(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = jax.config.jax_compilation_cache_dir
    sweep = Sweep(data={**SMALL, "dim": 7}, train={"num_steps": 2})
    for cache, expected in ((False, False), (True, True)):
        jax.clear_caches()
        run(sweep, tmp_path / f"out{cache}", progress=False, cache=cache)
        assert bool(list(Path(tmp_path).glob("manyheads/compiled/*/*"))) is expected
        assert jax.config.jax_compilation_cache_dir == before


def test_the_spec_may_be_a_path_and_the_folder_belongs_to_it(tmp_path):
    QUICK.save(tmp_path / "quick.toml")
    data = run(tmp_path / "quick.toml", tmp_path / "s", progress=False)
    assert Store(tmp_path / "s").sweep() == QUICK and data.attrs["name"] == "sweep"
    other = Sweep(
        cell="sweep_cells:arithmetic", axes={"parameters.slope": [0.5, 2.0, 3.0]}, seeds=3
    )
    with pytest.raises(StoreError, match="holds another sweep"):
        run(other, tmp_path / "s", progress=False)
    before = parts(tmp_path / "s")
    run(other, tmp_path / "s", progress=False, extend=True)
    assert before.items() <= parts(tmp_path / "s").items() and len(parts(tmp_path / "s")) == 9


def test_a_stored_plan_outlives_another_planner(tmp_path, monkeypatch):
    first = run(TRAINING, tmp_path, progress=False, batching=False).load()
    before = parts(tmp_path)
    again = run(TRAINING, tmp_path, progress=False, batching=4)
    assert parts(tmp_path) == before and again.identical(first)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(engine="proceses"), "did you mean 'processes'?"),
        (dict(workers=3), "pass engine 'processes'"),
        (dict(engine="processes", workers=0), "workers=0 must be a whole number"),
        (dict(engine="processes", scheduler="tcp://x"), "is for engine 'dask'"),
        (dict(threads=0), "threads=0 must be"),
        (dict(batching=-1), "batching=-1 must be"),
        (
            dict(engine="dask", scheduler="tcp://127.0.0.1:9"),
            "no Dask scheduler answers at tcp://127.0.0.1:9",
        ),
    ],
)
def test_a_wrong_option_is_named(tmp_path, options, words, monkeypatch):
    monkeypatch.setattr("manyheads.sweeps.cluster.CONNECT_SECONDS", 1)
    with pytest.raises(ValueError) as caught:
        run(QUICK, tmp_path, progress=False, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_engines_by_name():
    assert make_engine("processes", 3).workers == 3
    assert make_engine("dask", 2, "tcp://a:1").address == "tcp://a:1"


def test_a_changed_data_file_fails_its_cells(tmp_path):
    from manyheads.data.dataset import Dataset

    rng = np.random.default_rng(0)
    path = tmp_path / "data.npz"
    tokens, labels = rng.normal(size=(60, 4, 4)), rng.integers(0, 2, 60)
    Dataset.from_arrays(tokens, labels).save(path)
    sweep = Sweep(
        data={"kind": "file", "path": str(path), "num_examples": 8, "num_test": 6},
        start={"num_examples": 20},
        train={"num_steps": 6, "dtype": "float64"},
    )
    cell = make_plan(sweep).cells[0]
    setup = set_up(cell)
    rows = [
        tuple(map(tuple, x)) for d in (setup.dataset, setup.test, setup.first) for x in d.tokens
    ]
    assert len(set(rows)) == 34  # disjoint
    Dataset.from_arrays(tokens + 1, labels).save(path)
    with pytest.raises(ValueError, match="has changed since the sweep was planned"):
        set_up(cell)
    big = Sweep.from_dict(
        {**sweep.to_dict(), "data": {**sweep.to_dict()["data"], "num_examples": 50}}
    )
    with pytest.raises(ValueError, match="has 60 sequences"):
        set_up(make_plan(big).cells[0])


def test_parameters_are_checked_before_the_folder_is_made(tmp_path):
    with pytest.raises(SpecError, match="takes no parameter"):
        run(
            Sweep(cell="sweep_cells:arithmetic", parameters={"slo": 1}),
            tmp_path / "s",
            progress=False,
        )
    assert not (tmp_path / "s").exists()
    assert cell_module.check_function(make_plan(QUICK).cells[0]) is None
