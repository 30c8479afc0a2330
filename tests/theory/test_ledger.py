"""The ledger covers every statement, every entry is complete, and it needs no JAX."""

import re
from pathlib import Path

import pytest

from manyheads.theory.ledger import entry, errata_entries, ledger, ledger_page, statements
from manyheads.theory.statement import WEIGHTS

ROOT = Path(__file__).parents[2]

# Every statement that must be there, by any of its names.
LISTED = """
eq1 eq2 lemma1 prop1.gradient prop1.hessian asm1 cor1.1 cor1.2 cor1.3
thm1 eq3 eq4 thm2 eq5 asm2 def1.p1 def1.p2 def1.p3 prop7 cor2 cor3 cor4
dm1 asm3 lemma2 eq6 prop2 eq7 eq8 prop3 eq10 eq11 linear-margin sec5.3 eq12
descent eq13 eq14 eq15 eq16 eq17 prop4 glqc eq18 iterates lemma3 eq19 eq20 eq21 eq22 stability
""".split()

REAL = {2, 7, 11, 12, 15}  # five corrections of 37 statements: what README and docs say
LOOSE = {4, 14, 25}
TYPOGRAPHIC = {1, 3, 5, 8, 9, 10, 18, 20, 21, 22}
DEBATABLE = {6, 16, 17, 19, 23, 24, 26}
REPEATED = {13}


@pytest.mark.parametrize("name", LISTED)
def test_every_listed_statement_has_an_entry(name):
    assert not entry(name).is_erratum


def test_all_errata_are_there_with_their_weight():
    weights = {item.id: item.weight for item in errata_entries()}
    expected = {}
    for numbers, weight in (
        (REAL, "real"),
        (LOOSE, "loose"),
        (TYPOGRAPHIC, "typographic"),
        (DEBATABLE, "debatable"),
        (REPEATED, "repeated"),
    ):
        expected |= {f"E{n}": weight for n in numbers}
    assert weights == expected
    assert len(weights) == 26


@pytest.mark.parametrize("item", ledger().values(), ids=lambda item: item.id)
def test_entry_is_complete(item):
    for text in (
        item.place,
        item.title,
        item.printed,
        item.corrected,
        item.proof,
        item.checker,
        item.remark,
    ):
        assert text.strip()
    assert callable(item.check) and (item.about is None or callable(item.about))
    assert item.weight in ("", *WEIGHTS)
    file, anchor = item.proof.split("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.M)
    assert anchor in {_anchor(heading) for heading in headings}, f"{item.proof}: no such heading"
    for other in item.errata:
        assert entry(other).is_erratum and item.id in entry(other).used_by
    for user in item.used_by:
        assert user in ("plan", "certify") or entry(user)


def _anchor(heading: str) -> str:
    """The anchor that the documentation's generator gives a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_appendix_statements_say_that_they_are_ours():
    for name in ("prop7", "cor3", "cor4"):
        assert "ours" in entry(name).place


def test_every_erratum_is_named_by_the_statements_it_touches():
    for item in errata_entries():
        assert all(item.id in entry(user).errata for user in item.used_by), item.id


def test_names_are_found_in_any_case_and_misspellings_get_a_hint():
    assert entry("THM1") is entry("eq4") is entry("thm1")
    with pytest.raises(ValueError, match="did you mean"):
        entry("thm11")
    with pytest.raises(ValueError, match="unknown statement 'zzzz'"):
        entry("zzzz")


def test_text_teaches():
    text = str(entry("thm1"))
    for word in (
        "printed",
        "corrected",
        "ours",
        "errata",
        "proof",
        "checker",
        "used by",
        "tightness",
    ):
        assert re.search(rf"^{word}", text, re.M), word
    assert "weight" in str(entry("E7"))


def test_no_two_checkers_are_the_same():
    names = [item.checker for item in ledger().values()]
    assert len(set(names)) == len(names)
    assert len(statements()) + len(errata_entries()) == len(names)


BLOCKED = ("jax", "jaxlib", "equinox", "optax", "scipy", "piqp")


def test_the_page_of_statements_is_what_the_ledger_says():
    page = (ROOT / "docs" / "theory" / "statements.md").read_text(encoding="utf-8")
    assert page == ledger_page() + "\n", (
        "run `manyheads explain --markdown > docs/theory/statements.md`"
    )


def test_the_paper_has_thirty_seven_statements_in_its_main_text():
    paper = [s for s in statements() if s.paper == "deora2023"]
    printed = [s for s in paper if not s.printed.startswith("not in the paper")]
    assert len([s for s in printed if "which we do not have" not in s.place]) == 37
    assert "the published version was not compared" in str(entry("thm1"))
