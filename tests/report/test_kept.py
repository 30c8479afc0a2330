"""The report that is kept under docs is whole: every study has its finding, every figure its drawing and its data."""

import html
import json
from pathlib import Path

from manyheads.studies.kit.catalog import find

KEPT = Path(__file__).parent.parent.parent / "docs" / "report"


def test_every_study_of_the_kept_report_has_its_finding_on_the_page():
    run = json.loads((KEPT / "run.json").read_text())
    findings = json.loads((KEPT / "data" / "findings.json").read_text())["findings"]
    page = html.unescape((KEPT / "index.html").read_text())
    assert run["scale"] == "full" and list(findings) == run["studies"]
    assert {"heads", "generalization", "margins", "literal", "random_start"} <= set(findings)
    for name, finding in findings.items():
        assert find(name).question == finding["question"] and finding["answer"] in page and finding["sentence"] in page


def test_every_figure_of_the_kept_report_has_its_drawing_and_its_data():
    names = {path.stem for path in (KEPT / "data").glob("*.csv")}
    assert len(names) >= 12
    for suffix in ("pdf", "png"):
        assert {path.stem for path in (KEPT / "figures").glob(f"*.{suffix}")} == names
