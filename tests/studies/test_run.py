import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LIMIT, descendants, wait_for_the_end, wait_until

from manyheads.cli import main as cli
from manyheads.studies.kit import run as running
from manyheads.studies.kit.catalog import find, story, studies
from manyheads.studies.kit.study import PARTS
from manyheads.sweeps.assembly import open_sweep


def test_every_study_is_found_and_has_settings_of_both_kinds_or_says_whose():
    for name, study in studies().items():
        assert find(name) is study and study.name == name and study.settings and study.claim
    assert set(story()) < set(studies())


def test_no_study_is_forgotten():
    folder = Path(running.__file__).parent.parent
    files = [path for path in folder.rglob("*.py") if "\nSTUDY = Study(" in path.read_text()]
    assert {path.parent.name if path.stem == "study" else path.stem for path in files} == set(
        studies()
    )
    assert len({(study.part, study.order) for study in studies().values()}) == len(files)


def test_the_story_is_told_in_its_order():
    begin, end = (
        ("paper", "ledger", "attention", "sleep", "needed_heads", "heads"),
        ("generalization", "forecast", "literal"),
    )
    assert story() == begin + (() if studies()["text"].lacks("quick") else ("text",)) + end
    assert [study.part for study in studies().values()] == sorted(
        (study.part for study in studies().values()), key=list(PARTS).index
    )
    assert all(study.part for study in studies().values())


def test_an_unknown_study_names_the_nearest():
    with pytest.raises(
        ValueError, match="there is no study 'step_sizes'; did you mean 'step_size'"
    ):
        find("step_sizes")
    with pytest.raises(FileNotFoundError, match="nowhere.py does not exist"):
        find("nowhere.py")


def test_a_file_without_a_study_says_what_is_missing(tmp_path):
    (tmp_path / "empty_study.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="has no STUDY"):
        find(str(tmp_path / "empty_study.py"))
    (tmp_path / "json.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="name of another module, json; rename"):
        find(str(tmp_path / "json.py"))


def test_a_run_is_noted_resumed_and_not_mixed(tmp_path, example_study):
    heard = []
    running.run_studies(
        [str(example_study)], tmp_path, workers=1, tell=lambda job, state: heard.append(state.done)
    )
    assert heard[-1] == 6 and running.read_run(tmp_path)["studies"] == [str(example_study)]
    parts = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("parts/*.npz")}
    assert parts
    running.run_studies([str(example_study)], tmp_path, workers=1)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("parts/*.npz")} == parts
    for changed, words in (
        ({"scale": "full"}, "scale 'quick', not 'full'"),
        ({"seed": 5}, "seed 0, not 5"),
    ):
        with pytest.raises(ValueError, match=words):
            running.run_studies([str(example_study)], tmp_path, workers=1, **changed)


def test_bad_input_is_one_line(tmp_path, capsys):
    assert cli.main(["run", "nonsense", "--out", str(tmp_path / "x")]) == 2
    assert "there is no study 'nonsense'" in capsys.readouterr().err
    assert cli.main(["run", "step_size", "--workers", "0", "--out", str(tmp_path / "x")]) == 2
    assert "workers=0 must be a whole number" in capsys.readouterr().err
    assert cli.main(["run", "step_size", "--seed", "-1", "--out", str(tmp_path / "x")]) == 2
    assert "'-1' is not a seed: write a whole number" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "holds no studies" in capsys.readouterr().err


def test_a_missing_package_is_named_before_anything_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["run", "step_size", "--out", str(tmp_path / "x")]) == 2
    assert "needs vl-convert" in capsys.readouterr().err and not (tmp_path / "x").exists()


def test_the_list_of_studies_shows_questions_and_settings(capsys):
    assert cli.main(["studies"]) == 0
    shown = capsys.readouterr().out
    assert all(study.question in shown for study in studies().values())
    assert cli.main(["studies", "step_size"]) == 0
    shown = capsys.readouterr().out
    assert "[chosen by us]" in shown and "[stated in the paper]" in shown and "quick:" in shown
    assert cli.main(["studies", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == set(studies())
    assert cli.main(["studies", "step_size", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["grids"]) == {"quick", "full"}


def test_a_worker_that_dies_is_reported_and_what_was_done_stays(tmp_path, example_study):
    study = example_study.with_name("dying_study.py")
    dying = example_study.read_text().replace(
        'runs={"train"', 'runs={"cell": "dying_study:die", "train"'
    )
    study.write_text(
        dying.replace('"example", "Two', '"dying", "Two')
        + "\n\ndef die(cell):\n    import os\n    os._exit(9)\n"
    )
    with pytest.raises(
        ValueError, match="a worker process died .* with .*dying / .* not finished; .* run the same"
    ):
        running.run_studies([str(study), str(example_study)], tmp_path, workers=2)


SLOW_STUDY = """
import os, time
from pathlib import Path
from manyheads.studies.kit.study import Finding, Study, grids

def slow(cell, *, log, sweep):
    Path(log, f"{sweep}-{cell.seed}").touch()
    time.sleep(10_000 if Path(log, "slow").exists() else 0)
    return {"value": float(cell.seed)}

def sweeps(scale):
    common = {"cell": "NAME:slow", "seeds": 2}
    return grids("slow", scale, **{f"s{i}": {"parameters": {"log": LOG, "sweep": i}, **common} for i in range(6)})

STUDY = Study("slow", "Slow", "How long?", "nothing", (), sweeps, lambda r: Finding("Long", "Long."), lambda r: [])
"""


def slow_run(tmp_path, start, cells, name):
    """A run whose cells do not end, when its two workers are there and have begun that many cells."""
    log, out = tmp_path / "log", tmp_path / "out"
    log.mkdir()
    (log / "slow").touch()
    study = tmp_path / f"{name}.py"
    study.write_text(SLOW_STUDY.replace("LOG,", f"{str(log)!r},").replace("NAME", name))
    command = [
        sys.executable,
        "-m",
        "manyheads.cli.main",
        "run",
        str(study),
        "--workers",
        "2",
        "--out",
        str(out),
    ]
    process = start(command, stderr=subprocess.PIPE, text=True)
    wait_until((out / "run.json").exists, process, "the note of the run")
    wait_until(lambda: len(descendants(process)) >= 3, process, "the workers")
    wait_until(lambda: len(list(log.iterdir())) >= 1 + cells, process, "the first cells")
    return study, log, out, process


@pytest.mark.parametrize(
    ("cells", "name"), [(0, "slow_start"), pytest.param(2, "slow_cells", marks=pytest.mark.full)]
)
def test_ctrl_c_ends_the_workers_at_once_and_the_same_command_goes_on(tmp_path, start, cells, name):
    """As a terminal does it: the signal goes to the command and to all that it has started, while these start or work.

    A cell takes far longer than this test waits, so a worker that finished its cell first would be noticed.
    """
    study, log, out, process = slow_run(tmp_path, start, cells, name)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(
        timeout=LIMIT
    )  # all have ended: the workers hold its standard error
    assert process.returncode == 130
    assert (
        err
        == f"finished cells are stored in {out}; run the same command again to resume\nerror: interrupted\n"
    )
    assert (
        cells <= len(list(log.iterdir())) - 1 <= 2
    )  # at most one for each worker: nothing that was queued began
    assert not list(out.rglob("*.npz"))
    (log / "slow").unlink()
    running.run_studies([str(study)], out, workers=1)
    for folder in (out / "studies" / "slow").iterdir():
        assert open_sweep(folder).value.values.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_no_process_behind(tmp_path, start, number):
    _, _, _, process = slow_run(tmp_path, start, 2, f"slow_{number.name.lower()}")
    os.kill(process.pid, number)
    wait_for_the_end(process)


def test_a_study_named_twice_runs_once_and_two_of_one_name_are_refused(tmp_path, example_study):
    once = running.plan_jobs(["heads"], tmp_path, "quick")
    assert running.plan_jobs(["heads", "heads"], tmp_path, "quick") == once
    other = tmp_path / "my_heads.py"
    other.write_text(example_study.read_text().replace('"example", "Two', '"heads", "Two'))
    with pytest.raises(ValueError, match="two studies are called 'heads'; give yours another name"):
        running.plan_jobs(["heads", str(other)], tmp_path, "quick")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (1,\n", "SyntaxError: '(' was never closed"),
        ("x = 1\ny = undefined\n", "NameError: name 'undefined' is not defined, line 2"),
        (
            "import no_such_module\n",
            "ModuleNotFoundError: No module named 'no_such_module', line 1",
        ),
    ],
)
def test_a_study_of_ones_own_that_cannot_be_imported_says_why_in_one_line(
    tmp_path, capsys, text, words
):
    path = tmp_path / f"broken_{abs(hash(text))}.py"
    path.write_text(text)
    assert cli.main(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert words in shown and "fix it and run again" in shown and shown.count("\n") == 1
