import inspect

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from manyheads.cli.numbers import MOST_HEADS, Heads, heads, write_heads


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (" 64 ", 64),
        ("1_000_000", 10**6),
        ("1e12", 10**12),
        ("1E+12", 10**12),
        ("2.5e3", 2500),
        ("10^12", 10**12),
        ("2**50", 2**50),
        ("9e15", 9 * 10**15),
        ("8999999999999999", 8_999_999_999_999_999),
    ],
)
def test_a_number_of_heads_reads_as_people_write_it(text, number):
    assert heads(text) == number and isinstance(heads(text), float)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "many",
            "0",
            "-4",
            "1.5",
            "1e-3",
            "nan",
            "inf",
            "0^0",
            "10^",
            "^12",
            "1e",
            "2^-1",
            "3*10^4",
            "٣",
        ),
        *(
            "9000000000000001",
            "9.1e15",
            "10^16",
            "10^999999999999",
            "7^999999999",
            "1e999999999999999999",
        ),
        "0.99999999999999999999999999999999999999999999999999999999999999",
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(text):
    with pytest.raises(
        ValueError,
        match=r"is not a number of heads: .* whole number from 1 to 9e15, such as 64, 1e12",
    ):
        heads(text)


@given(st.integers(1, MOST_HEADS))
def test_writing_and_reading_are_inverse(number):
    assert heads(write_heads(number)) == number


def test_round_numbers_are_written_short():
    assert [write_heads(n) for n in (8, 1000, 10**12, 9 * 10**15, 1024)] == [
        "8",
        "1000",
        "1e12",
        "9e15",
        "1024",
    ]


def test_a_verb_takes_heads_as_an_option(capsys):
    def command(heads: Heads = 8) -> float:
        """Echo."""
        return heads

    assert inspect.signature(command).parameters["heads"].default == tyro.cli(command, args=[])
    assert tyro.cli(command, args=["--heads", "10^12"]) == 1e12
    with pytest.raises(SystemExit) as stop:
        tyro.cli(command, args=["--heads", "1.5"])
    assert stop.value.code == 2
    assert "is not a number of heads" in " ".join(capsys.readouterr().err.split())
