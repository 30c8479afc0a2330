"""The page as one file: what lies in docs/ is what the sources give."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
build = runpy.run_path(str(ROOT / "explorer" / "build.py"))


def test_the_committed_page_is_up_to_date():
    assert build["PAGE"].read_text(encoding="utf-8") == build["render"](), "run `make explorer`"


def test_every_source_is_in_the_page_and_stays_small():
    known = {*build["ENGINE"], *build["VIEWS"], "worker"}
    sources = [path for path in (ROOT / "explorer").rglob("*.*") if path.suffix != ".pyc"]
    assert {path.stem for path in sources if path.suffix == ".js"} == known
    assert {path.name for path in sources if path.read_text().count("\n") > 450} == set()


def test_nothing_is_left_to_fill_in_and_nothing_is_fetched():
    text = build["render"]()
    assert "@@" not in text and len(text.encode()) < 300_000
    fetched = r"""(?:src|href)\s*=\s*["'](?!#|data:)[^"']*["']"""
    assert re.findall(fetched, text.split("<script")[0]) == []
    assert text.count("</script>") == 3


def test_every_term_quotes_a_statement_of_the_ledger():
    facts = build["quoted"]()
    quoted = {term["ledger"] for term in facts["terms"].values()} - {None}
    assert quoted == set(facts["statements"]) and len(quoted) > 12


@pytest.mark.browser
def test_the_film_is_that_of_todays_page(browser):
    film = runpy.run_path(str(ROOT / "docs" / "images" / "film.py"))
    numbers = re.compile(r"-?\d+(?:\.\d+)?")
    page = browser.new_page(reduced_motion="reduce")
    page.goto(film["PAGE"].as_uri())
    page.locator("#hint:not(:empty)").wait_for(timeout=film["LONGEST"])
    drawn, kept = (
        film["picture"](page.evaluate(film["TAKE"], film["FRAMES"])),
        film["FILM"].read_text(),
    )
    page.close()
    assert numbers.sub("#", drawn) == numbers.sub("#", kept), "run python docs/images/film.py"
    pairs = zip(numbers.findall(drawn), numbers.findall(kept), strict=True)
    assert max(abs(float(one) - float(two)) for one, two in pairs) < 0.15
