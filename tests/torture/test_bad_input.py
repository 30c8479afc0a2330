"""A short run of each part that passes bad input; `make torture` makes the long ones."""

import pytest

from torture import bad_arrays, bad_commands, bad_specs, harness


@pytest.mark.full
@pytest.mark.parametrize(
    "part", [bad_arrays, bad_specs, bad_commands], ids=lambda part: part.__name__.split(".")[-1]
)
def test_bad_input_gets_one_line(part, tmp_path):
    counts = harness.run(part, 60, seed=11, out=tmp_path)
    assert harness.faults(part, counts) == 0, (
        tmp_path / f"{part.__name__.split('.')[-1]}-11.jsonl"
    ).read_text()
