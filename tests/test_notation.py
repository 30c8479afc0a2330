"""The map between the paper's letters and the code names only what exists."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import manyheads as mh

PAGE = Path(__file__).parent.parent / "docs" / "notation.md"
NAMES = sorted(
    {
        name
        for row in PAGE.read_text().splitlines()
        if row.startswith("| $")
        for name in re.findall(r"`([\w.]+)`", row)
    }
)


def test_the_page_has_its_rows():
    assert len(NAMES) > 30


@pytest.mark.parametrize("name", NAMES)
def test_the_name_exists(name):
    *path, last = name.split(".")
    thing = mh
    for part in path:
        thing = getattr(thing, part)
    known = {field.name for field in fields(thing)} if is_dataclass(thing) else set()
    assert last in known or hasattr(thing, last)
