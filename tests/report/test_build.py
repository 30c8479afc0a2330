"""The report from stored results: page, figures, data; without JAX, and quickly."""

import json
import re
import sys
from dataclasses import replace

import pytest
from report.drawn import maps

from manyheads.report.build import _csv, build
from manyheads.studies.kit.figure import Axis, Figure, Panel, line
from manyheads.studies.kit.run import run_studies


@pytest.fixture(scope="session")
def folder(tmp_path_factory, example_study):
    """A folder with a finished study, the one of the documentation."""
    out = tmp_path_factory.mktemp("run")
    run_studies([str(example_study)], out, workers=1)
    return out


def test_the_example_of_the_documentation_runs_and_is_short(example_study):
    lines = [line for line in example_study.read_text().splitlines() if line.strip()]
    body = [line for line in lines if not line.startswith(("import", "from"))]
    assert len(body) <= 22


def test_the_page_holds_everything_and_names_no_outside_source(folder, example_study):
    report = build(folder, studies=[str(example_study)])
    html = report.page.read_text()
    assert [chapter.study.name for chapter in report.chapters] == ["example"]
    for chapter in report.chapters:
        assert chapter.study.question in html and chapter.finding.answer in html
    assert (
        "Every sentence below is computed" not in html
        and "notes, settings and captions are written by hand" in html
    )
    assert "stated in the paper" in html and "chosen by us" in html
    facts = dict(re.findall(r"<th scope=\"row\">(machine|time)</th><td>([^<]+)</td>", html))
    assert re.search(r", \d+ processors, \d+ GiB of memory$", facts["machine"])
    assert re.fullmatch(
        r"\d+ s wall-clock, \d+ s of computing, summed over processors", facts["time"]
    )
    head = html[: html.index("<script>")]
    assert re.findall(r"""(?:src|href)=["'](?:https?:)?//""", head) == []
    for figure in (f for chapter in report.chapters for f in chapter.figures):
        names = (f"figures/{figure.name}{end}" for end in (".pdf", ".png", "-slide.png"))
        for path in (*names, f"data/{figure.name}.csv"):
            assert (folder / path).stat().st_size > 0 and path in html
    stored = json.loads((folder / "data" / "findings.json").read_text())
    assert stored["findings"]["example"]["numbers"]["loss_ratio"]["seeds"] == 3


def test_the_csv_holds_the_points_that_are_drawn(folder):
    rows = (folder / "data" / "example.csv").read_text().splitlines()
    assert rows[0] == "panel,x_label,y_label,series,x,y,low,high"
    assert {row.split(",")[3] for row in rows[1:]} == {"2 heads", "64 heads"}


def test_the_csv_of_a_map_names_its_values_and_a_clipped_band_is_not_stored():
    heading, first, *_ = _csv(maps()).splitlines()
    row = dict(zip(heading.split(","), first.split(","), strict=True))
    assert (row["x"], row["y"], row["value"], row["low"], row["high"]) == ("1", "1", "0.2", "", "")
    step, loss = Axis("step", "steps"), Axis("loss", "nats", log=True)
    panel = Panel("", step, loss, (line("zero", "zero", [1], [1.0], [-2.0], [3.0]),))
    assert _csv(Figure("f", "F", "c", (panel,))).splitlines()[1].endswith("1,1.0,-2.0,3.0")


def test_a_text_cannot_break_out_of_its_place(folder, example_study, monkeypatch):
    evil = "</script><script>alert(1)</script>"
    module = sys.modules["example_study"]
    monkeypatch.setattr(module, "STUDY", replace(module.STUDY, claim=evil, title=evil))
    html = build(folder, studies=[str(example_study)]).page.read_text()
    assert evil not in html and "&lt;script&gt;alert(1)" in html


def test_a_folder_without_studies_says_what_to_do(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="holds no studies .* pass a folder of `manyheads run`"
    ):
        build(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        build(tmp_path)
    (tmp_path / "run.json").write_text('{"format_version": 99}')
    with pytest.raises(ValueError, match="newer than the 2 .* update manyheads"):
        build(tmp_path)
