"""Formulas of the ledger: well formed, words left alone, nothing lost, nothing breaks out."""

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from manyheads.report.mathml import typeset
from manyheads.theory.ledger import ledger


def letters(text):
    """What is read, without spaces and signs that are drawn otherwise."""
    return re.sub(r"[\s_^{}()√−-]|accent", "", text)


@pytest.mark.parametrize("field", ["printed", "corrected", "ours"])
def test_every_formula_of_the_ledger_is_set_and_reads_the_same(field):
    raised = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵀ₀₁₂₃₄₅₆₇₈₉", "0123456789−⊤0123456789")
    hats = str.maketrans("\u0302\u0303\u0304", "^~¯")
    for entry in ledger().values():
        made = typeset(getattr(entry, field))
        ElementTree.fromstring(f"<p>{made}</p>")
        wanted = getattr(entry, field).translate(raised).translate(hats)
        read = unescape(re.sub("<[^>]*>", "", made))
        assert sorted(letters(read)) == sorted(letters(wanted)), entry.name


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("b2", "<math><msub><mi>b</mi><mn>2</mn></msub></math>"),
        ("√H", "<math><msqrt><mi>H</mi></msqrt></math>"),
        ("‖θ‖²_{2,∞}", "<msubsup>"),
        ("L̂", "<math><mover accent='true'><mi>L</mi><mo stretchy='false'>^</mo></mover></math>"),
        ("H^(-1/2)", "<msup><mi>H</mi><mrow>"),
        ("as printed (Corollary 1); E2, P1.", "as printed (Corollary 1); E2, P1."),
        ("a gap", "a gap"),
    ],
)
def test_a_formula_becomes_elements_and_a_sentence_stays(text, wanted):
    assert wanted in typeset(text)


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", 'x_<b> & "y" ≤ \'', "√(", "^", "_", "{", "a_{", "√", ""]
)
def test_no_text_breaks_out_or_breaks_it(text):
    made = typeset(text)
    ElementTree.fromstring(f"<p>{made}</p>")
    assert "<script" not in made and "<b>" not in made
