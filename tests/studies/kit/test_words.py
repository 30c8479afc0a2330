"""What is said of an estimate is where its interval lies, and nothing that it does not decide."""

import math

import pytest

from manyheads.studies.kit.estimate import NONE, Estimate
from manyheads.studies.kit.words import capital, choose, choose_all, heads, listed, once

SAID = {"above": "grows", "below": "falls", "undecided": "unclear"}


def between(low, high):
    return Estimate((low + high) / 2, low, high, 4)


ONE_SEED = Estimate(5.0, -math.inf, math.inf, 1)


@pytest.mark.parametrize(
    ("estimate", "options", "text"),
    [
        (between(0.1, 0.3), {}, "grows"),
        (between(-0.3, -0.1), {}, "falls"),
        (between(-0.1, 0.3), {}, "unclear"),
        (between(0.0, 0.3), {}, "unclear"),  # an interval that touches decides nothing
        (ONE_SEED, {}, "unclear"),
        (NONE, {}, "not measured"),
        (NONE, {"missing": "no runs"}, "no runs"),
        (between(1.1, 1.3), {"at": 1}, "grows"),
        (between(0.1, 0.3), {"at": 1}, "falls"),
        (between(0.1, 0.3), {"at": (-0.2, 0.2)}, "unclear"),
        (between(0.3, 0.4), {"at": (-0.2, 0.2)}, "grows"),
        (between(-0.4, -0.3), {"at": (-0.2, 0.2)}, "falls"),
        (between(0.01, 0.1), {"at": (-0.2, 0.2), "inside": "flat"}, "flat"),
        (between(0.01, 0.04), {"within": (-0.05, 0.05), "inside": "flat"}, "flat"),
        (between(0.01, 0.06), {"within": (-0.05, 0.05), "inside": "flat"}, "grows"),
    ],
)
def test_the_text_is_that_of_the_place_of_the_interval(estimate, options, text):
    assert choose(estimate, **SAID, **options) == text


def test_all_must_agree():
    up, down, vague = between(1, 2), between(-2, -1), between(-1, 1)
    assert choose_all([up, up], **SAID) == "grows" and choose_all([down, down], **SAID) == "falls"
    assert (
        choose_all([up, down], **SAID) == "unclear"
        and choose_all([up, down], mixed="both", **SAID) == "both"
    )
    assert choose_all([up, vague], mixed="both", **SAID) == choose_all([vague], **SAID) == "unclear"
    assert choose_all([up, NONE], mixed="both", **SAID) == "unclear"
    assert choose_all([NONE, NONE], **SAID) == "Not measured"
    assert choose_all([up, up], at=3, **SAID) == "falls"


def test_what_is_the_same_of_all_is_said_once():
    assert once({"A": "slower", "B": "slower"}, "on") == "slower"
    assert once({"A": "slower", "B": "faster"}, "on") == "slower on A and faster on B"
    assert (
        once({"A": "slower", "B": "slower", "C": "faster"}, "on")
        == "slower on A and B, faster on C"
    )


def test_small_words():
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert capital("on the mixture") == "On the mixture" and capital("") == ""
    assert heads(1) == "1 head" and heads(1e6) == "10⁶ heads"
