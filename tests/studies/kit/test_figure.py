import numpy as np
import pytest

from manyheads.studies.kit import palette
from manyheads.studies.kit.figure import (
    Axis,
    Figure,
    MapPanel,
    Mark,
    Panel,
    line,
    over_seeds,
    place,
    rule,
)

STEP, LOSS = Axis("step", "steps"), Axis("train loss", "nats", log=True)


def test_an_axis_needs_a_unit():
    with pytest.raises(ValueError, match="label and a unit"):
        Axis("loss", "")


def test_two_normalizations_never_share_an_axis():
    margin = Axis("margin", "per unit readout norm", scale="readout")
    Panel("margin", STEP, margin, (rule("attention", "best attention", 3.0, scale="readout"),))
    with pytest.raises(ValueError, match="two normalizations"):
        Panel("margin", STEP, margin, (rule("ours", "kernel margin", 1.0, scale="kernel"),))


def test_a_logarithmic_axis_refuses_what_it_cannot_show():
    with pytest.raises(ValueError, match="<= 0 on the logarithmic axis"):
        Panel("loss", STEP, LOSS, (line("zero", "zero", [0, 1], [1.0, 0.0]),))


def test_a_mark_takes_its_color_from_the_palette_only():
    with pytest.raises(ValueError, match="role='mauve' has no look"):
        line("mauve", "x", [0], [1.0])


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="lengths"):
        Mark("line", "zero", "zero", (0, 1), (1.0,))


def test_rows_leave_out_what_is_not_a_number():
    rows = line("zero", "zero", [1, 2], [0.5, np.nan], [0.4, 0.1], [0.6, 0.2]).rows()
    assert rows == [{"x": 1, "y": 0.5, "series": "zero", "low": 0.4, "high": 0.6}]


def test_one_seed_gives_a_line_without_a_band():
    assert over_seeds("zero", "zero", [1, 2], [[0.5], [0.7]]).rows()[0] == {
        "x": 1,
        "y": 0.5,
        "series": "zero",
    }


def test_the_legend_names_each_series_once():
    panel = Panel(
        "loss",
        STEP,
        LOSS,
        (line("zero", "zero", [1], [1.0]), line("gaussian", "Gaussian", [1], [2.0])),
    )
    assert [label for _, label, _ in panel.legend()] == ["zero", "Gaussian"]
    assert len(Figure("f", "F", "c", (panel, panel)).legends()) == 1
    assert (
        Figure("f", "F", "c", (panel, MapPanel("m", STEP, STEP, STEP, ((0.0, 1.0),)))).legends()[1]
        == []
    )


def test_bands_are_clipped_for_drawing_only():
    panel = Panel("loss", STEP, LOSS, (line("zero", "zero", [1], [1.0], [-2.0], [3.0]),))
    assert panel.marks[0].low == (0.1,) and panel.given[0].low == (-2.0,)


def test_a_share_leaves_out_seeds_without_an_answer():
    mark = over_seeds("zero", "zero", [1, 2], [[1, 1, np.nan], [np.nan] * 3], truth=True)
    assert mark.y[0] == 1 and len(mark.rows()) == 1


def test_a_map_leaves_out_what_is_not_a_number():
    assert MapPanel("m", STEP, STEP, STEP, ((0.5, np.nan),)).rows() == [
        {"x": "1", "y": "1", "value": 0.5}
    ]


def contrast(a: str, b: str) -> float:
    """WCAG contrast ratio of two colors."""

    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_neighboring_numbers_of_heads_differ_in_color_and_marker():
    """For every grid of the studies, and for decades and doublings."""
    grids = [
        [2**k for k in range(12)],
        [1, 4, 16, 64, 256, 1024],
        [1, 16, 256, 4096, 1e6, 1e9, 1e12],
        [2, 256, 1e6],
    ]
    grids += [
        [10**k for k in range(13)],
        [1, 8, 64, 1024],
        [2, 64, 1024],
        [2, 16, 1024],
        [1, 4, 12],
        [1, 2, 4, 16, 64, 256, 4096, 1e6, 1e9],
    ]
    for grid in grids:
        looks = [palette.look(palette.heads(h)) for h in grid]
        for i, (one, other) in enumerate(zip(looks, looks[1:], strict=False)):
            assert (
                one.light != other.light and one.dark != other.dark and one.marker != other.marker
            ), grid[i : i + 2]


def test_a_panel_is_where_it_is_drawn():
    row = [place(i, 3, across=True) for i in (1, 2, 3)]
    assert row == ["left", "middle", "right"] and place(2, 2, across=True) == "right"
    assert [place(i, 3, across=False) for i in (1, 2, 3)] == ["top", "middle", "bottom"]
    assert place(1, 2, across=False, first=True) == "Top"


@pytest.mark.parametrize("role", [*palette.ROLES, *(palette.heads(10**k) for k in range(8))])
def test_every_color_can_be_seen_on_its_paper(role):
    look = palette.look(role)
    assert contrast(look.light, "#ffffff") >= 3 and contrast(look.dark, "#12161c") >= 4.5


def test_roles_that_share_a_color_differ_in_marker_or_dash():
    seen = {}
    groups = (
        ("zero", "first phase", "gaussian"),
        ("measured", "ours", "explicit", "printed", "reference"),
        ("gd", "normalized", "polyak", "adam"),
        ("mixture", "random labels", "planted", "construction"),
    )
    for group in groups:
        looks = [palette.look(role) for role in group]
        assert len({look.light for look in looks}) == len(group)
        assert len({(look.marker, look.dash) for look in looks}) == len(group)
        seen |= dict.fromkeys(group)
    assert set(seen) <= set(palette.ROLES)
