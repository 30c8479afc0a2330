import pytest

from manyheads.training.problem import choose_dtype, choose_steps
from manyheads.training.start import zero_start


def test_record_choices():
    def steps(record, num_steps=100):
        return choose_steps(record, num_steps, "record").tolist()

    assert (
        steps("all", 5) == [0, 1, 2, 3, 4, 5]
        and steps(40) == [0, 40, 80, 100]
        and steps([3]) == [0, 3, 100]
    )
    assert (
        steps("log", 0) == [0]
        and steps("log", 10**6)[-1] == 10**6
        and 50 < len(steps("log", 10**6)) < 63
    )


@pytest.mark.parametrize(
    ("heads", "name"), [(1, "float32"), (10**6 - 1, "float32"), (10**6, "float64")]
)
def test_a_million_heads_and_more_are_float64_unless_told_otherwise(heads, name):
    model = zero_start(heads, num_tokens=2, dim=3)
    assert choose_dtype(None, model) == name and choose_dtype("float32", model) == "float32"
