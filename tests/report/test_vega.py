import altair
import jsonschema
import pytest
from report.drawn import example, maps

from manyheads.report import vega
from manyheads.studies.kit.palette import look


@pytest.mark.parametrize("view", vega.views(example()) + vega.views(maps()))
def test_views_follow_the_schema_of_vega_lite(view):
    kind = altair.LayerChart if "layer" in view else altair.Chart
    kind.from_dict(view)


def test_the_marks_carry_the_colors_of_the_palette():
    figure = example()
    assert vega.colors(figure)[look("zero").light] == look("zero").dark
    assert look("zero").light in str(vega.views(figure)[0])


def test_a_broken_view_is_noticed():
    view = vega.views(maps())[0]
    with pytest.raises(jsonschema.ValidationError):
        altair.Chart.from_dict({**view, "mark": "blob"})
