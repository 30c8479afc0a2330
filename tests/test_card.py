"""Cards for notebooks: they say what they are about, escape what users named, and draw a run."""

import re
from xml.etree import ElementTree

import numpy as np

import manyheads as mh
from manyheads._card import curves
from manyheads.theory.certify import Certificates
from manyheads.theory.verdict import Bound, Certificate

RNG = np.random.default_rng(0)
DATA = mh.Dataset.from_arrays(RNG.standard_normal((6, 4, 3)), ["<b>", "x"] * 3, name="a & b")


def parsed(html):
    return " ".join(ElementTree.fromstring(html).itertext())


def test_a_dataset_says_its_sizes_and_escapes_names():
    said = parsed(DATA._repr_html_())
    assert "a & b" in said and "<b> (-1)" in said and "sequences 6" in re.sub(r"\s+", " ", said)


def test_a_run_is_drawn():
    run = mh.train(mh.zero_start(1, num_tokens=4, dim=3), DATA, rule=mh.GD(0.1), num_steps=3)
    assert (
        "finished at step 3 of 3" in parsed(run._repr_html_()) and "<polyline" in run._repr_html_()
    )


def test_curves_leave_out_what_has_no_logarithm():
    drawn = curves(np.arange(4), {"loss": np.array([1.0, np.nan, 0.5, 0.0])})
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    assert len(points.split()) == 2 and "nan" not in points
    assert curves([0], {"loss": np.array([1.0])}) == ""


def test_a_certificate_says_its_verdict():
    held = Certificate("descent", "the loss falls", 1.0, (Bound("ours", 2.0),))
    assert "HOLDS" in parsed(held._repr_html_()) and "the loss falls" in parsed(held._repr_html_())


def test_the_ledger_and_several_certificates_are_tables():
    said = parsed(mh.ledger()._repr_html_())
    assert f"{len(mh.ledger())} statements" in said and mh.ledger()["thm1"].title in said
    held = Certificate("descent", "the loss falls", 1.0, (Bound("ours", 2.0),))
    both = Certificates(
        (held, Certificate("thm1", "a < b", 3.0, (Bound("ours", 2.0),))), "MultiHead: 1 head\ndata"
    )
    said = parsed(both._repr_html_())
    assert (
        "HOLDS descent" in said
        and "VIOLATED thm1" in said
        and "a < b" in said
        and "MultiHead: 1 head" in said
    )
