import itertools
import re

import numpy as np
import pytest
from report.drawn import example, maps

from manyheads.report import matplotlib_figures as printed


@pytest.mark.parametrize("figure", [example(), maps()], ids=lambda figure: figure.name)
def test_figures_fit_one_column_and_embed_their_fonts(figure, tmp_path):
    pdf, png, slide = printed.save(figure, tmp_path)
    content = pdf.read_bytes()
    width = float(re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", content)[1]) / 72
    assert width == pytest.approx(printed.WIDTH, abs=1e-3) and width < 3.5
    assert b"/FontFile2" in content and b"/Type3" not in content
    size = np.frombuffer(png.read_bytes()[16:24], ">u4")
    assert size[0] == round(printed.WIDTH * printed.RESOLUTION)
    assert np.frombuffer(slide.read_bytes()[16:24], ">u4").tolist() == [1920, 1080]  # 16:9


@pytest.mark.parametrize("slide", [False, True])
@pytest.mark.parametrize("figure", [example(), maps()], ids=lambda figure: figure.name)
def test_no_text_leaves_the_paper_or_covers_another(figure, slide):
    import matplotlib

    with matplotlib.rc_context(printed.SLIDE_STYLE if slide else printed.STYLE):
        canvas = printed._draw(figure, slide)
        canvas.canvas.draw()
        renderer = canvas.canvas.get_renderer()
        for axes in canvas.axes:
            box = axes.get_tightbbox(renderer)  # with labels, ticks and legend
            assert (
                box.x0 >= -1
                and box.x1 <= canvas.bbox.x1 + 1
                and box.y0 >= -1
                and box.y1 <= canvas.bbox.y1 + 1
            )
            for axis in (axes.xaxis, axes.yaxis):
                label = axis.label.get_window_extent(renderer)
                assert not any(
                    label.overlaps(tick.get_window_extent(renderer)) for tick in seen_ticks(axis)
                )
        boxes = [axes.get_tightbbox(renderer) for axes in canvas.axes]
        assert not any(
            a.padded(-1).overlaps(b.padded(-1)) for a, b in itertools.combinations(boxes, 2)
        )


def seen_ticks(axis):
    """Labels of the ticks within the axis."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [label for at, label in ticks if low <= at <= high and label.get_text()]


def test_every_axis_says_its_unit():
    import matplotlib

    with matplotlib.rc_context(printed.STYLE):
        canvas = printed._draw(example())
    for axes in canvas.axes:
        assert axes.get_xlabel().endswith(")") and axes.get_ylabel().endswith(")")
