from dataclasses import replace

import pytest

from manyheads.studies.kit.catalog import studies
from manyheads.studies.kit.story import OPEN, told
from manyheads.studies.kit.study import PARTS


def test_things_are_told_in_the_order_of_the_story_under_their_headings():
    every = studies()
    pairs = [
        (every[name], name) for name in ("literal", "heads", "paper", "needed_heads", "forecast")
    ]
    own = replace(every["heads"], name="own", part="")
    assert told([(own, "own"), *pairs]) == [
        ("What the paper claims", ["paper"]),
        ("What heads are for", ["needed_heads", "heads"]),
        ("Where theory applies at your number of heads", ["forecast", "literal"]),
        ("Further questions", ["own"]),
    ]
    assert list(PARTS)[-1] == "" and len(OPEN) <= 7


def test_a_part_that_does_not_exist_is_refused():
    with pytest.raises(
        ValueError, match="part='middle' of study 'heads': choose one of claims, truth, attention"
    ):
        replace(studies()["heads"], part="middle")
