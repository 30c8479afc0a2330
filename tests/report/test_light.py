"""The light page: the same drawings and data without a library that draws, small enough to be kept."""

import re

import pytest
from report.drawn import example, maps

from manyheads.report import light, vega
from manyheads.studies.kit.palette import look

FIGURES = [example(), maps()]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_panel_is_a_small_drawing_in_colors_of_the_theme(figure):
    for view in vega.views(figure):
        drawn = light.svg("first", view, vega.colors(figure))
        assert set(re.findall(r'id="(\w+)-', drawn)) <= {"first"} and "url(#clip" not in drawn
        assert drawn.startswith("<svg") and len(drawn) < 20_000
        assert "aria-" not in drawn
        drawn = re.sub(' data-tips="[^"]*"', "", drawn)
        assert not re.search(r'(?<!opacity)="[^"]*\d\.\d\d', drawn)
        assert all(color not in drawn for color in vega.colors(figure))


def test_lines_keep_their_color_and_labels_their_digits():
    curves = vega.views(example())[0]
    drawn = light.svg("c", curves, vega.colors(example()))
    assert f'stroke="var(--c{look("zero").light[1:]})"' in drawn
    assert 'opacity="0.16"' in drawn  # a band is not rounded away
    assert ">0.05<" in drawn or ">0.5<" in drawn
    style = light.style(vega.colors(example()))
    assert f"--c{look('zero').light[1:]}:{look('zero').dark};" in style.splitlines()[1]


def test_a_series_has_its_place_in_the_legend_and_its_marks_have_values():
    curves, upright, *_ = vega.views(example())
    drawn = light.svg("c", curves, {})
    assert set(re.findall(r'data-s="(\d)"', drawn)) == {
        "0",
        "1",
    }  # the curve with its band, and the rule
    names, tips = re.search(r'data-names="([^"]*)" data-tips="([^"]*)"', drawn).groups()
    assert names == "zero|step|train loss" and tips.split(";")[1].endswith("10|0.5|0.4 to 0.6")
    assert 'data-tips="A|1|0.5 to 2;B|20|10 to 30"' in light.svg("c", upright, {})
    assert 'data-tips="1|1|0.2;' in light.svg("c", vega.views(maps())[0], {})


def test_a_label_is_not_rounded():
    panel = example().panels[0]
    view = vega.views(example())[0]
    view["title"] = "margin 0.125"
    assert panel.title and ">margin 0.125<" in light.svg("c", view, {})
