"""What is written on the page: axes that can be read, plain words, honest bounds, a decomposition for every target."""

import pytest

pytestmark = pytest.mark.browser

SMALL = "#T=4&d=6&M=2&relevant=2&n=20&nTest=20&nFresh=20&numSteps=30"
WRITTEN = """() => { const seen = [], plain = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
    const width = this.measureText(text).width, left = x - { left: 0, center: width / 2, right: width }[this.textAlign];
    if (this.canvas.closest('.chart')) seen.push({ chart: this.canvas.getAttribute('aria-label'), text, left, right: left + width, y });
    return plain.call(this, text, x, y, ...more); };
  explorer.app.redraw();
  CanvasRenderingContext2D.prototype.fillText = plain;
  return seen; }"""


def overlaps(texts):
    """Pairs of texts of one chart that touch."""
    found = []
    for i, one in enumerate(texts):
        for two in texts[i + 1 :]:
            if one["chart"] == two["chart"] and abs(one["y"] - two["y"]) < 9:
                if one["left"] < two["right"] + 2 and two["left"] < one["right"] + 2:
                    found.append((one["chart"], one["text"], two["text"]))
    return found


@pytest.mark.parametrize("steps", [3, 100, 300])
def test_no_two_texts_of_a_chart_touch(desk, steps):
    desk.visit(SMALL.replace("numSteps=30", f"numSteps={steps}"))
    desk.train()
    texts = desk.page.evaluate(WRITTEN)
    assert sum(one["text"] == "steps (log)" for one in texts) == 3
    assert overlaps(texts) == []


def test_axes_have_ticks_before_training_and_the_title_names_what_is_there(desk):
    desk.visit(SMALL)
    texts = desk.page.evaluate(WRITTEN)
    loss = [one["text"] for one in texts if one["chart"] == "Train loss"]
    assert {"0.1", "1"} <= set(loss)
    assert "and test loss" in desk.text("#lossChart figcaption")
    desk.visit(SMALL.replace("nTest=20", "nTest=0"))
    assert "test" not in desk.text("#lossChart figcaption")


@pytest.mark.parametrize("width", [390, 1240, 1440])
def test_the_numbers_of_a_step_do_not_touch(desk, width):
    desk.visit(SMALL)
    desk.page.set_viewport_size({"width": width, "height": 900})
    ends = desk.ask("""(() => { for (const id of ['nowTrain', 'nowTest']) document.querySelector(`#${id}`).textContent = '5.391·10⁻¹⁵³';
      return [...document.querySelectorAll('.now dd')].map((e) => { const r = document.createRange(); r.selectNodeContents(e); const b = r.getBoundingClientRect(); return [b.left, b.right, b.top]; }); })()""")
    desk.page.set_viewport_size({"width": 1440, "height": 900})
    for (_, right, top), (left, _, below) in zip(ends, ends[1:], strict=False):
        assert below > top + 5 or left > right + 2
    assert max(right for _, right, _ in ends) <= width


@pytest.mark.parametrize("link", ["&heads=1", "", "&start=gaussian&heads=3"])
def test_the_numbers_in_the_picture_do_not_touch(desk, link):
    desk.visit(SMALL + link)
    desk.train()
    boxes = desk.ask("""[...document.querySelectorAll('#picture text')].filter((e) => e.textContent).map((e) => { const b = e.getBBox();
      return { chart: 'picture', text: e.textContent, left: b.x, right: b.x + b.width - 2, y: b.y }; })""")
    assert len(boxes) > 6 and overlaps(boxes) == []
    bands = desk.ask(
        "[...document.querySelectorAll('#picture .flow')].map((e) => { const b = e.getBBox(); return [b.x, b.x + b.width]; })"
    )
    numbers = [one for one in boxes if one["text"].startswith("vote ")]
    assert numbers and all(one["right"] <= left for one in numbers for left, _ in bands)


def test_controls_speak_in_words_and_explain_themselves(desk):
    desk.visit(SMALL)
    desk.until("document.querySelector('.mark.edge')")
    texts = desk.ask(
        "[...document.querySelectorAll('#controls .term, #controls option, .mark, #verdictsBody')].map((e) => e.textContent)"
    )
    assert [text for text in texts if any(sign in text for sign in "_₂≥ηθζμν")] == []
    terms = set(
        desk.ask(
            "[...document.querySelectorAll('#controls .control')].map((e) => e.querySelector('[data-term]')?.dataset.term || '')"
        )
    )
    assert "" not in terms and terms <= set(desk.ask("Object.keys(explorer.terms)"))
    desk.page.locator(".mark.theory").hover()
    assert "theory promises" in desk.text("#tip")
    desk.page.keyboard.press("Escape")


def test_a_bound_that_says_nothing_says_so(desk):
    desk.visit(SMALL)
    desk.train()
    text = desk.page.locator("#verdictsBody article", has_text="Theorem 2").inner_text()
    assert "says nothing here either" in text and "while guessing has a loss of 0.693" in text
    desk.visit(
        "#T=4&d=6&M=2&relevant=2&signal=1&noise=0&noiseNorm=0&n=500&nTest=20&heads=1e12&stepSize=0.4&numSteps=30&target=1"
    )
    desk.train()
    text = desk.page.locator("#verdictsBody article", has_text="Theorem 2").inner_text()
    assert "would then bound the expected gap by 0." in text


def test_the_decomposition_is_exact_for_every_target(desk):
    desk.visit(SMALL)
    desk.train()
    shown = {}
    for name in ("paper", "attention", "end"):
        desk.page.select_option("#against", name)
        shown[name] = [
            float(x)
            for x in desk.ask(
                "[...document.querySelectorAll('#identity data')].map((e) => e.value)"
            )
        ]
        mean, *parts = shown[name]
        assert mean == pytest.approx(sum(parts), abs=1e-13)
        assert abs(float(desk.page.locator("#residual").get_attribute("data-value"))) < 1e-13
        assert ("against=" in desk.ask("location.hash")) == (name != "paper")
    assert (
        len({tuple(parts) for parts in shown.values()}) == 3
        and len({parts[0] for parts in shown.values()}) == 1
    )
    assert shown["end"][1] == desk.ask("explorer.app.run.last.trainLoss")
    desk.visit(SMALL + "&against=attention")
    desk.train()
    assert desk.page.locator("#against").input_value() == "attention"


def test_data_without_patterns_are_decomposed_against_the_end_of_the_run(desk):
    desk.visit(SMALL + "&data=random&start=zero")
    desk.train()
    assert desk.page.locator("#against").input_value() == "end"
    assert desk.page.locator("#against option:disabled").count() == 2
    assert abs(float(desk.page.locator("#residual").get_attribute("data-value"))) < 1e-13
    desk.visit(SMALL + "&optimizer=adam&stepSize=0.01")
    desk.train()
    assert "plain gradient descent" in desk.text("#identity")


def test_the_maps_follow_their_controls_and_tell_their_values(desk):
    desk.visit(SMALL)
    desk.train()
    titles = lambda: desk.page.locator(".map p").all_inner_texts()  # noqa: E731
    picture = "document.querySelector('.map canvas').toDataURL()"
    assert titles() == ["first half", "second half"]
    first = desk.ask(picture)
    desk.page.select_option("#headClass", label="second half")
    assert titles() == ["second half"]
    desk.page.select_option("#headClass", label="both halves")
    desk.page.get_by_label("Next sequence").click()
    assert desk.page.locator("#sequence").input_value() == "2" and desk.ask(picture) != first
    desk.page.fill("#sequence", "999")
    desk.page.locator("#sequence").blur()
    assert desk.page.locator("#sequence").input_value() == "20"
    desk.page.locator(".map canvas").first.click(position={"x": 60, "y": 60})
    assert "of its attention to key" in desk.text("#mapTold")


def test_the_run_can_be_saved_as_python(desk, tmp_path):
    desk.visit(SMALL)
    desk.train()
    with desk.page.expect_download() as waiting:
        desk.page.click("#download")
    waiting.value.save_as(tmp_path / "run.py")
    saved = (tmp_path / "run.py").read_text()
    assert saved == desk.ask("explorer.pythonCode(explorer.app.run)")
    desk.page.click("#python")
    desk.until("explorer.app.copied")
    assert desk.page.evaluate("() => navigator.clipboard.readText()") == saved
    compile(saved, "run.py", "exec")


def test_log_ticks_fit_the_height(desk):
    ticks = desk.ask("""(() => { const chart = explorer.app.charts.loss;
      return [60, 200].map((height) => chart.ticks({ top: 0, bottom: height, bottomValue: -12, topValue: 0 }).length); })()""")
    assert 1 <= ticks[0] <= 4 < ticks[1] <= 6


def test_a_curve_that_falls_very_deep_leaves_the_other_readable(desk):
    low = desk.ask("""(() => { const chart = explorer.app.charts.loss, series = chart.series, curve = (end) => ({ label: 'x', color: '#000', dash: [], steps: [0, 9], values: [0.7, end] });
      chart.series = [curve(1e-150), curve(0.1)];
      const both = chart.scales(300, 200).bottomValue;
      chart.series = [curve(1e-150)];
      const one = chart.scales(300, 200).bottomValue;
      chart.series = series;
      return [both, one]; })()""")
    assert -9 < low[0] < -7 and low[1] < -150


SMALLEST = """() => { const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement, svg = e.closest('svg');
    if (!text || !e.getClientRects().length || ['SCRIPT', 'STYLE', 'OPTION'].includes(e.tagName)) continue;
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    if (parseFloat(getComputedStyle(e).fontSize) * scale < 11) found.push(text);
  }
  return found; }"""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_is_smaller_than_eleven_pixels(opened, width):
    tab = opened(SMALL + "&run=1", width=width, height=720, motion="reduce")
    tab.status("finished")
    assert tab.page.evaluate(SMALLEST) == [] and tab.ask("explorer.app.charts.loss.size[0] > 200")


def test_the_button_stays_under_the_pointer_and_a_double_click_trains(desk):
    desk.visit(SMALL.replace("numSteps=30", "numSteps=3000"))
    place = "(() => { const b = document.querySelector('#train').getBoundingClientRect(); return [b.left, b.top, b.width]; })()"
    before = desk.ask(place)
    desk.page.dblclick("#train")
    assert desk.ask("explorer.app.training") or desk.ask("explorer.app.run.status") == "finished"
    desk.status("finished")
    assert desk.ask(place) == before


def test_a_loss_that_underflows_is_still_drawn(desk):
    desk.visit(SMALL + "&heads=1&start=zero&stepSize=1000&signal=4&numSteps=200")
    desk.train()
    assert desk.ask("explorer.app.run.last.trainLoss") == 0
    chart = "explorer.app.charts.loss"
    ends = desk.ask(
        f"{chart}.points({chart}.series[0], {chart}.scale).at(-1)[1] > {chart}.scale.bottom"
    )
    assert ends and "none" not in desk.text("#identity")


def test_marks_of_the_step_size_set_what_typing_allows(desk):
    desk.visit(SMALL)
    desk.page.evaluate(
        "() => { explorer.app.edge = { edge: 1024, capped: true }; explorer.app.showMarks(); }"
    )
    assert desk.text(".mark.edge") == "works up to 1,000 or more"
    desk.page.locator(".mark.edge").click()
    desk.until("explorer.app.settings.stepSize === 1000")
