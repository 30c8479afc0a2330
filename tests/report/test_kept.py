"""The report that is kept under docs is whole and light: every finding and figure with its data, and no library."""

import html
import json
import re
from pathlib import Path

from manyheads.studies.kit.catalog import find, studies
from manyheads.studies.kit.estimate import number

NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
KEPT = Path(__file__).parent.parent.parent / "docs" / "report"


def test_every_study_of_the_kept_report_has_its_finding_on_the_page():
    run = json.loads((KEPT / "run.json").read_text())
    findings = json.loads((KEPT / "data" / "findings.json").read_text())["findings"]
    page = html.unescape((KEPT / "index.html").read_text())
    assert list(findings) == run["studies"] and set(findings) == set(studies())
    for name, finding in findings.items():
        assert (
            find(name).question == finding["question"]
            and finding["answer"] in page
            and finding["sentence"] in page
        )


def test_every_figure_of_the_kept_report_is_drawn_on_the_page_and_has_its_data():
    page = (KEPT / "index.html").read_text()
    drawn = re.split(r'<figure id="figure-([\w-]+)"[^>]*>', page)
    figures = dict(zip(drawn[1::2], drawn[2::2], strict=True))
    assert (
        set(figures) == {path.stem for path in (KEPT / "data").glob("*.csv")} and len(figures) >= 12
    )
    for name, figure in figures.items():
        charts = figure.split("</figure>")[0].split('<div class="chart"')[1:]
        assert charts and all("<svg" in chart for chart in charts), name
        assert f'href="data/{name}.csv"' in figure


def test_the_kept_report_is_one_light_page_with_its_data():
    files = {path.relative_to(KEPT) for path in KEPT.rglob("*") if path.is_file()}
    assert {path.suffix for path in files} == {".html", ".json", ".csv"}
    page = (KEPT / "index.html").read_text()
    assert len(page.encode()) < 50_000 * page.count("<figure id=")
    assert "vega" not in page.split("<footer>")[1].replace("vegaEmbed", "")


def test_the_plain_words_quote_the_kept_report():
    """Every number of the table is one that a finding says, or the value or an end of an interval of one of its numbers."""
    findings = json.loads((KEPT / "data" / "findings.json").read_text())["findings"].values()
    said = " ".join(text for f in findings for text in (f["answer"], f["sentence"], *f["details"]))
    known = set(re.findall(NUMBER, said))
    known |= {
        number(float(one[end]))
        for f in findings
        for one in f["numbers"].values()
        for end in ("value", "low", "high")
    }
    page = (KEPT.parent / "plain-words.md").read_text().replace("−", "-")
    rows = [line.split("|")[3] for line in page.splitlines() if line.startswith('| "')]
    assert len(rows) == 5
    assert [found for row in rows for found in re.findall(NUMBER, row) if found not in known] == []
