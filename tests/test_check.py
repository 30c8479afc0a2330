"""The validator: what passes, in which type, and what a mistake is told."""

import numpy as np
import pytest

from manyheads import _check
from manyheads._check import check, many, none, one_of, positive, real, text, whole


@check(num_steps=whole(0), step_size=positive, name=text | none, rule=one_of("gd", "adam"))
def descend(num_steps, *, step_size=0.1, name=None, rule="gd"):
    return num_steps, step_size, name, rule


def test_numbers_become_pythons_own():
    steps, eta, name, rule = descend(np.int64(3), step_size=np.float32(0.5))
    assert (type(steps), type(eta)) == (int, float) and (steps, eta, name, rule) == (
        3,
        0.5,
        None,
        "gd",
    )


@pytest.mark.parametrize(
    "arguments, named, message",
    [
        ((-1,), {}, "num_steps=-1 must be a whole number >= 0 and <= "),
        ((3.0,), {}, "num_steps=3.0 must be a whole number >= 0 and <= "),
        ((True,), {}, "num_steps=True must be a whole number >= 0 and <= "),
        ((3,), {"step_size": float("nan")}, "step_size=nan must be a finite number > 0."),
        ((3,), {"step_size": 10**400}, "must be a finite number > 0."),
        ((3,), {"name": 4}, "name=4 must be a text or None."),
        ((3,), {"rule": "newton"}, "rule='newton' must be 'gd' or 'adam'."),
    ],
)
def test_a_mistake_is_one_line_with_what_is_allowed(arguments, named, message):
    with pytest.raises(ValueError, match=r".") as caught:
        descend(*arguments, **named)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(TypeError, match="it takes num_steps, step_size, name, rule"):
        descend(3, learning_rate=1.0)


def test_a_call_from_a_checked_function_is_not_checked_again():
    seen = []
    watched = _check.Constraint("anything", lambda value: seen.append(value) or value)
    inner = check(x=watched)(lambda x: x)
    outer = check(x=watched)(lambda x: inner(x))
    assert outer(1) == 1 and seen == [1]
    assert inner(2) == 2 and seen == [1, 2]


def test_checks_are_back_after_an_error_inside():
    @check(x=whole())
    def fails(x):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails(1)
    with pytest.raises(ValueError, match="num_steps=-1"):
        descend(-1)


def test_lists_and_ranges():
    assert many(real(low=0, below=1)).accept([0, np.float64(0.5)]) == [0.0, 0.5]
    assert many(real(low=0, below=1)).accept([0, 1]) is _check.REFUSED
    assert many(whole()).accept("12") is _check.REFUSED
    assert real(low=0, below=1).allowed == "a finite number >= 0 and < 1"
