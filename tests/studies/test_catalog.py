"""What is asked of every study of the catalog, without running it."""

import pytest
from studies.test_attention import attention_results
from studies.test_margins import margins_results

from manyheads.studies.kit.catalog import studies


@pytest.mark.parametrize("name", studies())
def test_sweeps_are_valid_at_both_scales(name):
    study = studies()[name]
    for scale in ("quick", "full"):
        assert all(sweep.num_cells > 0 for sweep in study.plan(scale).values())
    with pytest.raises(ValueError, match="scale='slow' is not known"):
        study.plan("slow")


TITLES_THAT_ANSWER = (
    "more",
    "fewer",
    "few",
    "moves",
    "grows",
    "falls",
    "give up",
    "do not",
    "better",
    "worse",
)


def test_titles_say_what_is_shown_and_not_what_comes_out():
    shown = [
        *studies()["margins"].figures(margins_results(0.7, 0.8)),
        *studies()["attention"].figures(attention_results(0.5, 0.2)),
    ]
    for figure in shown:
        assert not any(word in figure.title.lower().split() for word in TITLES_THAT_ANSWER), (
            figure.title
        )
