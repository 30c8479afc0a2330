"""A folder that is not complete: what is there is reported, what is not is named, with what to do."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from manyheads.cli.main import main
from manyheads.cli.run import show_answers
from manyheads.report import verdicts
from manyheads.report.build import build
from manyheads.report.page import Chapter, render
from manyheads.studies.kit.figure import Axis, Figure, Panel, line
from manyheads.studies.kit.folder import sweep_folder, write_run
from manyheads.studies.kit.run import run_studies
from manyheads.studies.kit.study import Finding
from manyheads.studies.margins import study as margins
from manyheads.sweeps.assembly import open_sweep
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.store import Store


@pytest.fixture(scope="module")
def finished(tmp_path_factory, example_study):
    """A folder with a finished study, the one of the documentation."""
    out = tmp_path_factory.mktemp("run")
    run_studies([str(example_study)], out, workers=1)
    return out


def note_studies(folder, *sources):
    """As `manyheads run` does before any study runs."""
    folder.mkdir(exist_ok=True)
    write_run(folder, "quick", 0, list(sources))


@pytest.fixture
def partial(tmp_path, finished, example_study):
    """The finished example, `margins` with one sweep that has begun, and `heads`, which has not."""
    out = tmp_path / "partial"
    note_studies(out, "heads", "margins", str(example_study))
    shutil.copytree(finished / "studies", out / "studies")
    Store(sweep_folder(out, "margins", "time")).begin(
        make_plan(margins.sweeps("quick")["time"]), {}
    )
    return out


def test_a_folder_in_progress_is_reported_as_far_as_it_is(partial, example_study, capsys):
    assert main(["report", str(partial), str(example_study), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "Slower" in out and str(partial / "index.html") in out.replace("\n", "")
    assert err.splitlines() == [
        "no results yet for heads: first_phase has not been started",
        "no results yet for margins: 18 of 18 cells of time missing",
        f"Complete it with `manyheads run heads margins --scale quick --out {partial}`.",
    ]
    page = (partial / "index.html").read_text()
    assert "no results yet" in page and "heads (first_phase has not been started)" in page
    stored = json.loads((partial / "data" / "findings.json").read_text())
    assert set(stored["findings"]) == {"example"} and set(stored["absent"]) == {"heads", "margins"}


def test_a_study_runs_and_is_reported_in_a_folder_where_others_are_missing(
    partial, example_study, capsys
):
    assert main(["run", str(example_study), "--out", str(partial), "--quiet"]) == 0
    assert "no results yet for heads: first_phase has not been started" in capsys.readouterr().err


def test_a_folder_with_nothing_done_says_so_in_one_line(tmp_path, capsys):
    note_studies(tmp_path / "new", "heads")
    assert main(["report", str(tmp_path / "new"), "--quiet"]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path / 'new'} has no results to report yet (heads: first_phase has not been started). Complete it with "
        f"`manyheads run heads --scale quick --out {tmp_path / 'new'}`.\n"
    )


def test_cells_that_all_failed_say_why_and_can_be_tried_again(tmp_path, example_study, capsys):
    study = example_study.with_name("failing_study.py")
    text = example_study.read_text().replace(
        'runs={"train"', 'runs={"cell": "failing_study:fail", "train"'
    )
    text = text.replace('"example", "Two', '"failing", "Two')
    switch = tmp_path / "well"
    study.write_text(
        f"""{text}

def fail(cell):
    from pathlib import Path
    from manyheads.sweeps.cell import train_and_measure
    if not Path({str(switch)!r}).exists():
        raise ValueError("the lamp is out")
    return train_and_measure(cell)
"""
    )
    command = ["run", str(study), "--out", str(tmp_path / "out"), "--workers", "1", "--quiet"]
    for _ in range(2):  # failed cells are not tried again unasked
        assert main(command) == 2
        shown = capsys.readouterr().err
        assert "failing: 6 of 6 cells of runs failed (ValueError: the lamp is out)" in shown
        assert shown.count("\n") == 1 and "--retry-failed runs failed cells again" in shown
        switch.touch()
    assert main([*command, "--retry-failed"]) == 0
    assert "Slower" in capsys.readouterr().out


def test_one_diverged_cell_and_one_failed_leave_a_chapter(tmp_path):
    """Made-up margins on the grid of the study, with a cell that ended early and one that broke."""
    steps = np.array([0, 1, 10, 100, 200, 2000])
    note_studies(tmp_path, "margins")
    for name, sweep in margins.sweeps("quick").items():
        store, plan = (
            Store(sweep_folder(tmp_path, "margins", name)),
            make_plan(sweep, batching=False),
        )
        store.begin(plan, {})
        for i, batch in enumerate(plan.batches):
            status, count = {1: ("diverged", 3), 4: ("failed", 0)}.get(i, ("finished", 6))
            values = {
                "step": (("record",), steps[:count], {"units": "steps", "coordinate": True}),
                **{
                    n: (("record",), np.linspace(0.1, 0.5, 6)[:count], {})
                    for n in ("margin", "focus", "train_loss")
                },
                **{n: ((), np.array(1.0), {}) for n in ("linear", "linear_sample", "attention")},
            }
            cell = dict(hash=plan.cells[i].hash, status=status, message="it broke", seconds=0.0)
            worker = dict(host="", process=1, device="", threads=1, versions={})
            store.write(
                batch.id, dict(cells=[{**cell, "values": values if count else {}}], worker=worker)
            )
        assert open_sweep(store.path).step.values.tolist() == steps.tolist()
    (chapter,) = build(tmp_path).chapters
    assert "after 2,000 steps" in chapter.finding.answer
    assert (
        "1 of 18 cells of time failed (it broke); 1 of 18 cells of time diverged" in chapter.missing
    )


def test_drawing_a_folder_runs_no_code_that_the_folder_names(
    tmp_path, finished, example_study, capsys
):
    """A folder from elsewhere may name any file; only one that is named on the command line is run."""
    mark, evil = tmp_path / "code-ran", tmp_path / "evil.py"
    evil.write_text(f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n")
    out = tmp_path / "out"
    note_studies(out, str(evil), str(example_study))
    shutil.copytree(finished / "studies", out / "studies")
    assert main(["report", str(out), "--quiet"]) == 2
    assert "it is your own file, which is run only if you name it" in capsys.readouterr().err
    assert main(["report", str(out), str(example_study), "--quiet"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "no results yet for evil: it is your own file, which is run only if you name it",
        f"Draw your own studies too with `manyheads report {out} {evil}`.",
    ]
    assert not mark.exists()


def test_markup_in_the_texts_of_a_study_is_text(capsys):
    """On the terminal and on the page, whose drawings are checked too."""
    mark = "[/b] <script>alert(1)</script>"
    study = replace(margins.STUDY, question=f"Why {mark}?")
    panel = Panel(
        f"title {mark}",
        Axis(f"x {mark}", "1"),
        Axis("y", "1"),
        (line("zero", f"label {mark}", [1, 2], [1, 2]),),
    )
    figure = Figure("f", f"figure {mark}", f"caption {mark}", (panel,))
    finding = Finding(f"answer {mark}", f"sentence {mark}", {}, ())
    chapter = Chapter(study, finding, (figure,), ({"name": mark, "text": mark},), mark)
    show_answers(SimpleNamespace(chapters=[chapter], num_figures=1, page="p"))
    said = capsys.readouterr().out
    assert "[/b]" in said and said.index("When attention wakes") < said.index(
        "answer"
    ) < said.index("What is open")
    ledger = verdicts.ledger_table([])
    page = render(
        [chapter],
        ledger=ledger,
        starts=[],
        reproduce={"commands": mark, "facts": []},
        scale=mark,
        static=True,
    )
    assert page.index("When attention wakes") < page.index("What is open")
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
