"""What documents quote from the stored report is what it says: a number or a verdict, linked to its claim."""

import re
from pathlib import Path

import pytest

from manyheads.data.files import read_json

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUOTE = re.compile(r"\[([^\]\[]+)\]\((?:docs/)?report/index\.html#(\w+)-(\d+)\)")
REPORT = ROOT / "docs" / "report" / "report.json"


def quotes(text):
    """(text of the link, study, number of the claim), outside of code."""
    return QUOTE.findall(re.sub(r"`[^`\n]*`", "", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_numbers_and_verdicts_are_those_of_the_report(page):
    found = quotes(page.read_text())
    if not found:
        return
    studies = read_json(REPORT, "run make report")["studies"]
    for text, name, place in found:
        if name not in studies:
            assert text == "…", f"{page.name} quotes {name}-{place}, which the report does not have"
            continue
        claim = studies[name]["claims"][int(place) - 1]
        allowed = {claim["shown"], claim["text"], claim["verdict"]}
        assert text in allowed, f"{page.name} says {text!r} of {name}-{place}; {allowed}"


def test_quotes_are_recognized():
    text = "a [1.4](report/index.html#scaling-2), `[2](report/index.html#scaling-3)` [x](y.md)"
    assert quotes(text) == [("1.4", "scaling", "2")]
