"""The page as one file: what lies in docs/ is what the sources give."""

import re
from pathlib import Path

from manyheads.explorer import page

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "manyheads" / "explorer" / "static"


def test_the_committed_page_is_up_to_date():
    stored = (ROOT / "docs" / "explorer" / "index.html").read_text(encoding="utf-8")
    assert stored == page.render(), "run `python -m manyheads.explorer.page`"


def test_every_source_is_in_the_page_and_stays_small():
    known = {*page.ENGINE, *page.VIEWS, "worker"}
    assert {path.stem for path in STATIC.glob("*.js")} == known
    assert {path.name for path in STATIC.iterdir() if path.read_text().count("\n") > 450} == set()


def test_nothing_is_left_to_fill_in_and_nothing_is_fetched():
    text = page.render()
    assert "@@" not in text
    assert (
        re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)[^"']*["']""", text.split("<script")[0])
        == []
    )
    assert text.count("</script>") == 3


def test_every_term_quotes_a_statement_of_the_ledger():
    facts = page._ledger()
    quoted = {term["ledger"] for term in facts["terms"].values()} - {None}
    assert quoted <= set(facts["statements"]) and len(quoted) > 12
