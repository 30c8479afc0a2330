"""The guard of public functions: what it reads off a signature, and that no public function is without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import jax
import numpy as np
import pytest

import manyheads as mh
from manyheads.data.dataset import Dataset
from manyheads.data.door import guarded


@guarded(share={"low": 0, "high": 1})
def example(
    dataset: Dataset,
    num_items: int = 3,
    *,
    share: float = 0.5,
    flag: bool = False,
    steps: Sequence[int] | None = None,
    path: str | Path | None = None,
    tell: Callable[[str], None] | None = None,
    key: jax.Array | None = None,
    **others,
):
    return num_items, share, flag, steps, path, others


DATA = mh.Dataset.from_arrays(np.ones((2, 1, 1)), [0, 1])


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        ({"num_items": np.int64(4)}, 4),
        ({"num_items": np.array(4)}, 4),
        ({"share": 1}, 1.0),
        ({"share": Fraction(1, 2)}, 0.5),
        ({"share": np.float16(0.5)}, 0.5),
        ({"steps": np.array([0, 2])}, [0, 2]),
        ({"steps": (0, np.int8(2))}, [0, 2]),
        ({"steps": range(2)}, [0, 1]),
        ({"path": Path("x")}, Path("x")),
    ],
)
def test_numbers_arrive_as_those_of_python(given, arrives):
    (name,) = given
    found = dict(
        zip(("num_items", "share", "flag", "steps", "path"), example(DATA, **given), strict=False)
    )[name]
    assert found == arrives and type(found) is type(arrives)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"num_items": True}, "num_items=True must be a whole number >= 1"),
        ({"num_items": 3.0}, "num_items=3.0 must be a whole number >= 1"),
        ({"num_items": 10**400}, "must be a whole number >= 1 and <= 2147483646"),
        ({"num_items": 10**5000}, "num_items=a value of type int must be"),
        ({"num_items": np.ma.masked}, "num_items=masked must be"),
        ({"share": 1.5}, "share=1.5 must be a finite number >= 0 and <= 1"),
        ({"share": "1"}, "share='1' must be a finite number"),
        ({"flag": 1}, "flag=1 must be True or False"),
        ({"flag": "no"}, "flag='no' must be True or False"),
        ({"steps": "12"}, "steps='12' must be a list, each entry a whole number >= 0"),
        ({"steps": [1, -1]}, "must be a list"),
        ({"steps": np.ma.masked_array([1, 2], [0, 1])}, "must be a list"),
        ({"path": ""}, "path='' must be a path"),
        ({"path": "a\0b"}, "must be a path"),
        ({"path": b"x"}, "must be a path"),
        ({"tell": 3}, "tell=3 must be a function or None"),
        ({"key": 0.5}, "key=0.5 must be a JAX random key"),
        ({"dataset": None}, "dataset=None must be a Dataset"),
        ({"dataset": Dataset}, "dataset=<class .* must be a Dataset"),
    ],
)
def test_what_is_not_allowed_is_refused_in_one_line(given, words):
    with pytest.raises(ValueError, match=words) as caught:
        example(**{"dataset": DATA, **given})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: mh.TokenizedMixture(num_tokens=4, dim=6, key=key).sample(6, key=1).tokens,
        lambda key: (
            mh.TokenizedMixture(num_tokens=4, dim=6, frame="axis").sample(6, key=key).tokens
        ),
        lambda key: mh.data.RandomLabels(dim=3).sample(6, key=key).tokens,
        lambda key: mh.gaussian_start(2, num_tokens=4, dim=3, key=key).readout,
        lambda key: (
            mh.Dataset.from_arrays(np.arange(24.0).reshape(8, 3, 1), [0, 1] * 4)
            .split(0.5, key=key)[0]
            .tokens
        ),
    ],
)
def test_a_whole_number_is_the_seed_of_a_key(draw):
    assert np.array_equal(draw(0), draw(jax.random.key(0))) and not np.array_equal(draw(0), draw(7))


def test_a_call_that_does_not_fit_says_what_the_function_takes():
    with pytest.raises(
        TypeError,
        match="example: missing a required argument: 'dataset'; it takes dataset, num_items",
    ):
        example()
    assert example(DATA, other=3)[-1] == {
        "other": 3
    }  # further options are the function's own affair
