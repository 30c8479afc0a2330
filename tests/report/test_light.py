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
        assert "aria-" not in drawn and not re.search(r'(?<!opacity)="[^"]*\d\.\d\d', drawn)
        assert all(color not in drawn for color in vega.colors(figure))


def test_lines_keep_their_color_and_labels_their_digits():
    curves = vega.views(example())[0]
    drawn = light.svg("c", curves, vega.colors(example()))
    assert f'stroke="var(--c{look("zero").light[1:]})"' in drawn
    assert 'opacity="0.16"' in drawn  # a band is not rounded away
    assert ">0.05<" in drawn or ">0.5<" in drawn
    style = light.style(vega.colors(example()))
    assert f"--c{look('zero').light[1:]}:{look('zero').dark};" in style.splitlines()[1]


def test_a_label_is_not_rounded():
    panel = example().panels[0]
    view = vega.views(example())[0]
    view["title"] = "margin 0.125"
    assert panel.title and ">margin 0.125<" in light.svg("c", view, {})
