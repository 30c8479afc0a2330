"""Verdicts: each kind is produced, nothing slips through, and what is printed says why."""

import json
import math
from dataclasses import replace

import pytest

from manyheads.theory.certify import Certificates
from manyheads.theory.verdict import (
    EXPLICIT,
    OURS,
    PRINTED,
    Bound,
    Certificate,
    Hypothesis,
    Verdict,
    ratio,
)

TRUE = Hypothesis.at_least("enough heads", 10.0, 5.0)
FALSE = Hypothesis.at_least("enough heads", 2.0, 5.0, "use 25 heads")


def certificate(measured, bound, *hypotheses, **options):
    return Certificate(
        "thm1", "the loss is small", measured, (Bound(OURS, bound, hypotheses),), **options
    )


def test_each_verdict_is_produced():
    assert certificate(1.0, 2.0, TRUE).verdict is Verdict.HOLDS
    assert certificate(3.0, 2.0, TRUE).verdict is Verdict.VIOLATED
    assert certificate(3.0, 2.0, FALSE).verdict is Verdict.SILENT
    assert certificate(1.0, 2.0, TRUE, FALSE).verdict is Verdict.SILENT


def test_a_reason_that_several_share_is_told_once():
    silent = [replace(certificate(3.0, 2.0, FALSE), statement=name) for name in ("thm1", "cor2")]
    brief = Certificates((*silent, certificate(1.0, 2.0))).brief().splitlines()
    assert "fails: enough heads (off by a factor 2.5) -> use 25 heads" in brief[0]
    assert brief[1].endswith("for the same reason as thm1") and "HOLDS" in brief[2]
    versions = Certificate(
        "thm1", "small", 3.0, (Bound(PRINTED, 2.0, (FALSE, FALSE)), Bound(OURS, 2.0, (FALSE,)))
    )
    assert str(versions).count("use 25 heads") == 1 and "SILENT, for reasons above" in str(versions)


@pytest.mark.parametrize(
    "measured, bound", [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan)]
)
def test_nan_is_violated(measured, bound):
    assert certificate(measured, bound).verdict is Verdict.VIOLATED
    assert certificate(measured, bound, sense=">=").verdict is Verdict.VIOLATED


def test_nan_noise_is_violated():
    assert certificate(1.0, 2.0, noise=math.nan).verdict is Verdict.VIOLATED


def test_a_nan_in_a_hypothesis_fails():
    assert not Hypothesis.at_least("x", math.nan, 1.0).holds
    assert not Hypothesis.at_most("x", 1.0, math.nan).holds


@pytest.mark.parametrize("bound", [1.0, 1e-30, 0.0, -1.0, 1e30])
def test_the_slack_is_relative_and_the_noise_is_stated(bound):
    assert certificate(bound + 0.9e-9 * abs(bound), bound).verdict is Verdict.HOLDS
    assert certificate(bound + 1e-8 * abs(bound) + 1e-40, bound).verdict is Verdict.VIOLATED
    assert (
        certificate(bound + 0.5 * abs(bound) + 0.1, bound, noise=0.2 + abs(bound)).verdict
        is Verdict.HOLDS
    )


def test_lower_bounds():
    assert certificate(2.0, 1.0, sense=">=").verdict is Verdict.HOLDS
    assert certificate(1.0, 2.0, sense=">=").verdict is Verdict.VIOLATED
    assert certificate(-1.0, -2.0, sense=">=").verdict is Verdict.HOLDS
    assert certificate(-3.0, -2.0, sense=">=").verdict is Verdict.VIOLATED


def test_a_bound_up_to_a_constant_is_never_violated():
    printed = Certificate("thm1", "x", 3.0, (Bound(PRINTED, 2.0, up_to_constant=True),))
    assert printed.verdict is Verdict.SILENT
    assert "constant" in printed.reason
    assert (
        Certificate("thm1", "x", 1.0, (Bound(PRINTED, 2.0, up_to_constant=True),)).verdict
        is Verdict.HOLDS
    )


def test_the_printed_version_does_not_decide_beside_ours():
    both = Certificate("cor2", "x", 3.0, (Bound(PRINTED, 2.0), Bound(OURS, 4.0)))
    assert both.verdict is Verdict.HOLDS
    assert both.verdict_of(PRINTED) is Verdict.VIOLATED
    assert both.bound().variant == OURS


def test_a_violated_explicit_version_is_not_hidden_by_ours():
    both = Certificate("thm1", "x", 3.0, (Bound(EXPLICIT, 2.0), Bound(OURS, 4.0)))
    assert both.verdict is Verdict.VIOLATED
    assert both.bound().variant == EXPLICIT


def test_reason_names_the_hypothesis_and_the_factor():
    silent = certificate(1.0, 2.0, FALSE)
    assert "enough heads" in silent.reason and "2.5" in silent.reason
    assert "use 25 heads" in str(silent)
    assert silent.line().endswith("fails: enough heads (off by a factor 2.5) -> use 25 heads")
    twice = certificate(1.0, 2.0, FALSE, Hypothesis("logistic loss", False, "use 25 heads"))
    assert twice.reason.count("use 25 heads") == 1 and "logistic loss" in twice.reason
    steps = [Hypothesis.at_most(f"eta <= {x}", 1.0, x, f"use {x}") for x in (0.5, 0.1, 0.2)]
    both = certificate(1.0, 2.0, FALSE, *steps).reason
    assert both.endswith(" -> use 25 heads; use 0.1") and both.count("fails:") == 1
    assert FALSE.factor == 2.5


def test_slack_and_tightness():
    assert certificate(1.0, 4.0).slack == 3.0
    assert certificate(1.0, 4.0).tightness == 0.25
    assert certificate(4.0, 1.0, sense=">=").slack == 3.0
    assert certificate(4.0, 1.0, sense=">=").tightness == 0.25


@pytest.mark.parametrize(
    "measured, bound, sense, expected",
    [
        (1.0, 2.0, "<=", 0.5),
        (3.0, 2.0, "<=", 1.5),
        (-1.0, 2.0, "<=", 0.0),
        (0.0, 0.0, "<=", 0.0),
        (1.0, 0.0, "<=", math.inf),
        (4.0, 2.0, ">=", 0.5),
        (1.0, 2.0, ">=", 2.0),
        (-1.0, -4.0, ">=", 0.25),
        (5.0, -4.0, ">=", 0.0),
        (5.0, 0.0, ">=", 0.0),
        (-1.0, 2.0, ">=", math.inf),
    ],
)
def test_shares(measured, bound, sense, expected):
    assert ratio(measured, bound, sense) == expected


def test_json_round_trip_keeps_everything_and_is_strict():
    original = Certificate(
        "thm1",
        "x",
        math.nan,
        (Bound(PRINTED, math.inf, (FALSE,), True), Bound(OURS, 2.0, (TRUE,))),
        "<=",
        0.5,
        "residual",
        {"distance": 1.5, "name": "a"},
    )
    text = original.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = Certificate.from_dict(json.loads(text))
    assert again.to_json() == text
    assert again.verdict is original.verdict


def test_text_shows_every_version():
    text = str(
        Certificate(
            "cor2",
            "the loss",
            3.0,
            (Bound(PRINTED, 2.0, up_to_constant=True), Bound(OURS, 4.0)),
            noise=0.1,
        )
    )
    for piece in (
        "HOLDS",
        "cor2",
        "as printed in the paper",
        "constant read as 1",
        "ours",
        "75% of it used",
        "noise 0.1",
    ):
        assert piece in text


def test_bad_construction():
    with pytest.raises(ValueError, match="sense"):
        certificate(1.0, 2.0, sense="<")
    with pytest.raises(ValueError, match="no bound"):
        Certificate("thm1", "x", 1.0, ())
    with pytest.raises(ValueError, match="there are: ours"):
        certificate(1.0, 2.0).bound("printed")


@pytest.mark.parametrize(
    "verdicts, answer",
    [
        ("SILENT HOLDS VIOLATED", "VIOLATED"),
        ("SILENT HOLDS", "HOLDS"),
        ("HOLDS", "HOLDS"),
        ("SILENT", "SILENT"),
        ("", "SILENT"),
    ],
)
def test_one_rule_combines_verdicts(verdicts, answer):
    assert Verdict.of(Verdict[name] for name in verdicts.split()) is Verdict[answer]
