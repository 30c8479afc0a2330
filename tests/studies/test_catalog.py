"""What is asked of every study of the catalog, without running it."""

import pytest

from manyheads.studies.kit.catalog import studies


@pytest.mark.parametrize("name", studies())
def test_sweeps_are_valid_at_both_scales(name):
    study = studies()[name]
    for scale in ("quick", "full"):
        assert all(sweep.num_cells > 0 for sweep in study.plan(scale).values())
    with pytest.raises(ValueError, match="scale='slow' is not known"):
        study.plan("slow")
