"""The page in Chromium: nothing fetched, nothing complained about, every chart drawn, in every width and color."""

import shutil
import subprocess
import sys

import pytest

from manyheads.report.build import build
from manyheads.studies.kit.catalog import story
from manyheads.studies.kit.run import run_studies

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
SIZES = {"desk": (1440, 900), "phone": (390, 844)}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_path(tmp_path_factory, example_study):
    folder = tmp_path_factory.mktemp("page")
    run_studies([str(example_study), "literal"], folder, workers=1)
    return build(folder, studies=[str(example_study)]).page


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    assert path, "these tests need Chromium: install it, or leave them out with -m 'not browser'"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser, page_path):
    """Open the page and watch it: (page, complaints, requests to elsewhere)."""
    contexts = []

    def open_page(size="desk", scheme="light", path=page_path):
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        complaints, elsewhere = [], []
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type != "log" else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith(("file:", "data:", "blob:")) else elsewhere.append(r.url)
            ),
        )
        page.goto(path.as_uri())
        page.wait_for_function("document.documentElement.dataset.ready")
        return page, complaints, elsewhere

    yield open_page
    for context in contexts:
        context.close()


def check_page(page, complaints, elsewhere, least):
    """Every chart has marks, nothing was fetched, nothing was complained about, nothing sticks out sideways."""
    charts = page.locator(".chart")
    assert charts.count() >= least
    kinds = ", ".join(f"svg .mark-{kind} path" for kind in ("line", "symbol", "rect", "area"))
    for i in range(charts.count()):
        assert charts.nth(i).locator(kinds).count() > 0, charts.nth(i).get_attribute("data-view")
        assert charts.nth(i).bounding_box()["height"] > 150
    assert (complaints, elsewhere) == ([], [])
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
        "the page scrolls sideways"
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_and_nothing_is_fetched(opened, size, scheme):
    page, complaints, elsewhere = opened(size, scheme)
    check_page(page, complaints, elsewhere, least=3)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme


def test_the_light_page_is_drawn_without_a_library_in_both_themes(
    opened, page_path, example_study, tmp_path
):
    light = build(page_path.parent, studies=[str(example_study)], light=tmp_path / "light").page
    assert (
        not (light.parent / "figures").exists()
        and light.stat().st_size < page_path.stat().st_size / 3
    )
    page, complaints, elsewhere = opened(path=light)
    charts = page.locator(".chart")
    assert charts.count() >= 3 and (complaints, elsewhere) == ([], [])
    assert all(charts.nth(i).locator("svg path").count() > 3 for i in range(charts.count()))
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    text = charts.first.locator("svg text").first

    def color():
        return text.evaluate("e => getComputedStyle(e).fill")

    before = color()
    page.locator(".theme").click()
    page.wait_for_function("document.documentElement.dataset.ready === 'dark'")
    assert color() != before  # the drawing follows the theme


def test_every_id_is_there_once_and_every_link_leads_somewhere(opened):
    page, *_ = opened()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))
    targets = page.evaluate(
        "[...document.querySelectorAll('main a, nav a, .hero a')].map((e) => e.getAttribute('href'))"
    )
    targets = {
        name[1:] for name in targets if name.startswith("#") and name != "#"
    }  # Vega's menu has empty ones
    assert targets <= set(ids) and {"the-ledger", "literal", "how-to-reproduce"} <= targets


def test_the_first_screen_names_the_paper_and_shows_formula_figure_and_conclusion(opened):
    page, *_ = opened()
    for part in (".paper cite", ".formula math", ".first-figure .chart svg", ".lead"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] < 900 and box["height"] > 15, part


@pytest.mark.parametrize("light", [False, True])
def test_a_name_of_a_legend_hides_its_curve_and_a_tap_shows_values(
    browser, page_path, example_study, tmp_path, light
):
    path = (
        build(page_path.parent, studies=[str(example_study)], light=tmp_path).page
        if light
        else page_path
    )
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_function("document.documentElement.dataset.ready")
    figure = page.locator("#figure-example")
    groups = figure.locator('g[data-s="1"]' if light else 'g[class*=" s1x"]')
    assert groups.count() > 0 and groups.last.evaluate("e => getComputedStyle(e).display") != "none"
    point = figure.locator("g[data-tips]").last if light else figure.locator("g.mark-symbol").last
    figure.locator(".chart").scroll_into_view_if_needed()
    x, y = point.evaluate(
        "(g) => { const m = g.getScreenCTM(); const [x, y] = g.dataset.tips ? g.dataset.tips.split(';').at(-1).split(',')"
        " : g.lastElementChild.getAttribute('transform').match(/-?[\\d.]+/g);"
        " return [m.a * x + m.e, m.d * y + m.f]; }"
    )
    page.touchscreen.tap(x, y)
    tip = page.locator("#page-tip")
    page.wait_for_function("document.querySelector('#page-tip.visible')")
    assert "heads" in tip.inner_text() and "train loss" in tip.inner_text()
    figure.locator(".legend button").nth(1).tap()
    assert groups.last.evaluate("e => getComputedStyle(e).display") == "none"
    figure.locator(".legend button").nth(1).tap()
    assert groups.last.evaluate("e => getComputedStyle(e).display") != "none"
    menu = page.locator(".contents a", has_text="Reproduce")
    menu.tap()
    page.wait_for_function("location.hash === '#how-to-reproduce'")
    context.close()


@pytest.mark.full
def test_the_story_runs_from_the_command_line_to_the_page(opened, tmp_path):
    command = [sys.executable, "-m", "manyheads.cli.main", "run", "--out", str(tmp_path / "story")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        all(name in done.stdout for name in story())
        and str(tmp_path / "story" / "index.html") in done.stdout
    )
    for size in SIZES:
        check_page(*opened(size, path=tmp_path / "story" / "index.html"), least=30)


def test_hovering_shows_values(opened):
    page, *_ = opened()
    page.locator("#figure-literal-heads .mark-rect path").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "heads" in page.locator("#vg-tooltip-element").inner_text()


def test_the_theme_can_be_switched_and_is_redrawn(opened):
    page, complaints, _ = opened()
    page.locator(".theme").click()
    page.wait_for_function("document.documentElement.dataset.ready === 'dark'")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(18, 22, 28)" and complaints == []


def test_charts_can_be_exported(opened):
    page, *_ = opened()
    chart = page.locator("#figure-literal-heads .chart")
    chart.locator("summary").click()
    with page.expect_download() as download:
        chart.get_by_text("Save as SVG").click()
    assert download.value.suggested_filename == "literal-heads.svg"


def test_ctrl_and_wheel_zoom_while_the_wheel_alone_scrolls(opened):
    page, complaints, _ = opened()
    chart = page.locator("#figure-example .chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def labels():
        return chart.locator(".role-axis-label text").all_text_contents()

    before, place = labels(), page.evaluate("scrollY")
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(500)
    assert labels() == before and page.evaluate("scrollY") != place
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.wait_for_timeout(500)
    assert labels() != before and complaints == []


def test_the_page_prints(opened, tmp_path):
    page, *_ = opened()
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 50_000
