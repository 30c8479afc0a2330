"""Numbers of heads as people write them."""

import pytest

from manyheads.cli.options import read_heads, write_heads


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("64", 64),
        ("1_000_000", 10**6),
        ("1e12", 10**12),
        ("10^12", 10**12),
        ("2**20", 2**20),
        ("1.5e3", 1500),
        ("9e15", 9 * 10**15),
    ],
)
def test_numbers_of_heads_are_read(text, number):
    assert read_heads(text) == number
    assert read_heads(write_heads(number)) == number


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "0.5", "1e16", "10^99999999999", "nan", "inf", "x", "", "1e-3", "10^x", "^2"],
)
def test_others_are_refused(text):
    with pytest.raises(ValueError, match="is not a number of heads: write a whole number"):
        read_heads(text)
