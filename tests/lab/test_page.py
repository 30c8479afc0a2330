"""The page says what was claimed and what came out, in front; its files can be read back."""

import re

import numpy as np
import pytest

from manyheads import lab
from manyheads.data.files import read_json, read_npz


def cell(heads, kind, seeds):
    return {"loss": np.exp(0.1 * np.array(seeds)) * heads + 5 * (kind == "b")}


@pytest.fixture(scope="module")
def data():
    return lab.sweep(
        cell, lab.Grid(heads=[1, 4, 5], kind=["a", "b"], seeds=4), about={"commit": "0a1b"}
    )


def paint(results, axes):
    lab.lines(axes, results, "loss", "heads", "kind")


CLAIMS = [
    lab.Claim(
        "It grows & grows.",
        lambda r: r.ratio("loss", heads=(4, 1), kind="a"),
        above=1,
        unit="ratio",
    ),
    lab.Claim("It falls.", lambda r: r.ratio("loss", heads=(4, 1), kind="a"), below=1),
    lab.Claim("It is large.", lambda r: r.mean("loss", heads=1, kind="a"), above=1.2),
]


def chapters(data):
    picture = lab.draw(paint, lab.Results(data))
    return [
        lab.Chapter(
            "growth", "Does it grow?", "One.\n\nTwo.", lab.decide(CLAIMS, data), [picture], data
        )
    ]


def test_the_report(data, tmp_path):
    facts = {"title": "Title", "intro": "Intro.", "scale": "quick", "seconds": 60.0}
    lab.write_report(chapters(data), tmp_path, **facts)
    text = (tmp_path / "index.html").read_text()
    assert text.count("<s>It falls.</s>") == 1
    assert "It grows &amp; grows." in text and "undecided at this scale" in text
    assert "0a1b" in text and "1 minutes for the last call" in text
    assert text.index("Does it grow?") < text.index("<details>")
    assert not re.search(r"https?://(?!www.w3.org)", text)  # needs nothing from elsewhere
    report = read_json(tmp_path / "report.json", "")
    claims = report["studies"]["growth"]["claims"]
    assert [one["verdict"] for one in claims] == ["supported", "refuted", "undecided"]
    assert claims[0]["shown"] == "4"
    arrays, _ = read_npz(tmp_path / "growth.npz")
    assert np.array_equal(arrays["loss"], data.loss.values)


def test_labels_at_the_ends_of_lines_do_not_overlap(data):
    close = data.assign(loss=data.loss * 0 + 1 + 0.001 * (data.heads + (data.kind == "b")))

    def by_heads(results, axes):
        lab.lines(axes, results, "loss", "kind", "heads")

    figure = lab.draw(by_heads, lab.Results(close))
    figure.canvas.draw()
    texts = [text for text in figure.axes[0].texts]
    assert [text.get_text() for text in texts] == ["1", "4", "5"]
    boxes = [text.get_window_extent() for text in texts]
    assert all(a.y1 <= b.y0 for a, b in zip(boxes, boxes[1:], strict=False))
    colors = [text.get_color() for text in texts]
    brightness = [sum(color[:3]) for color in colors]
    assert brightness == sorted(brightness, reverse=True)  # one ramp, in order


def test_the_same_figure_is_the_same_file(data, tmp_path):
    one, two = (lab.save(lab.draw(paint, lab.Results(data))) for _ in range(2))
    assert one == two and one.startswith("<?xml")
    lab.save(lab.draw(paint, lab.Results(data)), tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
