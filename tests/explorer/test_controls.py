"""The page opened from a disk: every control changes what it says, links hold the state, nothing is fetched."""

import functools
import http.server
import threading

import pytest

pytestmark = pytest.mark.browser


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """A host of files that does not log."""

    def log_message(self, *_):
        pass


SMALL = "#T=4&d=6&M=2&relevant=2&n=20&nTest=20&nFresh=20&numSteps=30"
# control -> a new value, and what must be true of the run afterwards
CONTROLS = {
    "T": (6, "run.train.T === 6 && run.train.tokens.length === 20 * 6 * 6"),
    "d": (9, "run.train.d === 9 && run.model.d === 9"),
    "relevant": (3, "run.train.relevant.reduce((a, b) => a + b) === 60"),
    "M": (3, "Math.max(...run.train.pattern) === 4"),
    "signal": (
        3,
        "Math.abs(Math.hypot(...run.train.tokens.slice(run.train.relevant.indexOf(1) * 6, run.train.relevant.indexOf(1) * 6 + 6)) - 3) < 1e-9",
    ),
    "noise": (0.3, "run.theory.radius > before.theory.radius"),
    "noiseNorm": (2, "run.theory.radius > before.theory.radius + 0.5"),
    "n": (33, "run.train.n === 33"),
    "nTest": (50, "run.test.n === 50"),
    "heads": ("10^12", "run.model.H === 1e12 && run.model.G === 2"),
    "scaling": (
        "mean_field",
        "run.settings.scaling === 'mean_field' && run.theory.target === null",
    ),
    "decoder": ("pooled", "run.model.U.length === 2 * 6"),
    "start": ("zero", "run.model.G === 1 && run.model.U.every((x) => x === 0)"),
    "nFresh": (40, "run.fresh.n === 40"),
    "optimizer": ("adam", "run.settings.optimizer === 'adam' && run.theory.target === null"),
    "stepSize": (0.25, "run.settings.stepSize === 0.25"),
    "numSteps": (77, "run.settings.numSteps === 77"),
    "loss": ("hyperbolic", "Math.abs(run.rows[0].trainLoss - 1) < 1e-9"),
    "target": (1.5, "run.theory.target.scale === 1.5"),
    "seed": (5, "run.train.tokens[0] !== before.train.tokens[0]"),
}


def test_every_control_is_tested(desk):
    names = set(desk.ask("[...document.querySelectorAll('#controls [name]')].map((e) => e.name)"))
    others = {
        "data",
        "scale",
        "tokenNorm",
        "teacherHeads",
        "teacherScale",
        "margin",
        "positions",
    }  # in the test below
    assert names == set(CONTROLS) | others


def test_every_control_changes_what_it_says(desk):
    tab = desk
    tab.visit(SMALL)
    for name, (value, expected) in CONTROLS.items():
        tab.page.evaluate("() => { window.before = explorer.app.run; }")
        tab.set(name, value)
        tab.until("explorer.app.run !== before")
        assert tab.ask(f"((run) => {expected})(explorer.app.run)"), name
        assert f"{name}=" in tab.ask("location.hash"), name
        tab.visit(SMALL)
    assert tab.complaints == []


def test_controls_of_other_data_and_starts(desk):
    tab = desk
    tab.visit(SMALL)
    tab.set("start", "gaussian")
    tab.set("scale", 3)
    assert tab.ask("explorer.app.run.model.G") == 8 and tab.page.locator("#set-nFresh").is_hidden()
    tab.set("data", "random")
    tab.set("tokenNorm", 3)
    assert tab.ask("Math.hypot(...explorer.app.run.train.tokens.slice(0, 6))") == pytest.approx(3)
    assert tab.page.locator("#set-signal").is_hidden() and tab.text("#nowFocus") == "none"
    tab.set("data", "parity")
    tab.set("positions", "yes")
    assert tab.ask("[explorer.app.run.train.n, explorer.app.run.train.d]") == [16, 6]
    tab.set("data", "planted")
    for name, value in {"teacherHeads": 2, "teacherScale": 2, "margin": 0.2}.items():
        tab.page.evaluate("() => { window.before = explorer.app.run; }")
        tab.set(name, value)
        tab.until("explorer.app.run !== before")
        assert tab.ask(f"explorer.app.run.settings.{name}") == value
    tab.train()
    assert tab.complaints == []


def test_sliders_move_by_keyboard_and_show_their_value(desk):
    tab = desk
    tab.visit(SMALL)
    slider = tab.page.locator("#set-heads")
    slider.focus()
    tab.page.keyboard.press("End")
    tab.until("explorer.app.settings.heads === 1e12")
    assert slider.get_attribute("aria-valuetext") == "10¹² heads"
    tab.until("explorer.app.run.model.H === 1e12")


def test_the_step_size_slider_has_the_marks_of_theory_and_of_the_edge(desk):
    tab = desk
    tab.visit(SMALL)
    tab.until("document.querySelector('.mark.edge')")
    theory, edge = (
        float(tab.page.locator(f".mark.{kind}").get_attribute("data-value"))
        for kind in ("theory", "edge")
    )
    assert theory < edge and theory == tab.ask("explorer.app.run.theory.admissible")
    tab.page.locator(".mark.theory").click()
    tab.until("explorer.app.run.settings === explorer.app.settings")
    assert 0.99 * theory <= tab.ask("explorer.app.settings.stepSize") <= theory
    tab.train()
    assert (
        tab.page.locator(
            "#verdictsBody [data-verdict=HOLDS]", has_text="Every step descends"
        ).count()
        == 1
    )


@pytest.mark.parametrize(
    "link, words",
    [
        ("#heads=-3", "heads=-3; it must be a whole number from 1 to 10¹²"),
        ("#heads=1e400&T=abc", "T=abc; it must be a whole number from 2 to 24"),
        ("#data=../../secret", "it must be one of mixture, parity, random, planted, own"),
        (
            "#start=gaussian&heads=1000000&n=4&nTest=0&T=2&d=2&data=random",
            "Gaussian heads all differ",
        ),
        ("#T=4&relevant=9", "fewer than the 4 tokens must be relevant"),
        ("#M=16&d=4", "orthogonal patterns need that width"),
        ("#noise=1&noiseNorm=0", "at least its part along the patterns"),
        ("#data=own", "which it does not contain; the mixture is shown"),
        ("#<script>alert(1)</script>=1", "is not a setting"),
        ("#__proto__=1&constructor=2", "is not a setting"),
    ],
)
def test_a_link_with_impossible_values_says_so_and_works(desk, link, words):
    tab = desk
    tab.visit(link)
    assert words in tab.text("#message")
    tab.page.click("#step")
    tab.until("explorer.app.run.step >= 1")
    assert tab.complaints == []


def test_a_typed_value_that_is_not_possible_is_refused_in_words(desk):
    tab = desk
    tab.visit(SMALL)
    tab.set("stepSize", "many")
    assert "“many” is not possible; it must be a number from 10⁻⁵ to 1,000" in tab.text(
        "#problem-stepSize"
    )
    box = tab.page.get_by_label("Step size, exact value")
    assert box.get_attribute("aria-invalid") == "true"
    assert tab.ask("explorer.app.settings.stepSize") == 0.5 and box.input_value() == "0.5"
    tab.set("stepSize", "0.25")
    assert box.get_attribute("aria-invalid") is None


def test_every_preset_trains(desk):
    tab = desk
    tab.visit(SMALL)
    names = tab.ask(
        "[...document.querySelector('#preset').options].map((o) => o.value).filter(Boolean)"
    )
    assert len(names) >= 9
    for name in names:
        tab.page.evaluate("() => { window.before = explorer.app.run; }")
        tab.page.select_option("#preset", name)
        tab.until("explorer.app.run !== before")
        assert tab.page.locator("#message").is_hidden(), tab.text("#message")
        assert tab.text("#hint") == tab.ask(f"explorer.presets['{name}'].says")
        tab.until("!explorer.app.queue && explorer.app.run.last.step > 3")  # it starts by itself
        tab.page.click("#reset")  # what was seen is enough
    assert tab.complaints == []


def test_a_link_is_read_when_the_page_opens(opened):
    tab = opened("#heads=-3&T=5&stepSize=0.25&n=8&nTest=0&numSteps=3")
    assert "heads=-3; it must be a whole number" in tab.text("#message")
    assert tab.ask(
        "[explorer.app.run.train.T, explorer.app.run.settings.stepSize, explorer.app.run.model.H]"
    ) == [
        5,
        0.25,
        8,
    ]


def test_nothing_is_requested_from_a_disk(opened):
    tab = opened(SMALL)
    tab.train()
    assert [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert sum(url.startswith("file:") for url in tab.requests) == 1
    assert tab.complaints == []


def test_a_static_host_serves_one_file_and_nothing_else(opened, explorer_page):
    handler = functools.partial(QuietHandler, directory=str(explorer_page.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/index.html"
        tab = opened(SMALL, address=address)
        tab.train()
        assert [url.split("#")[0] for url in tab.requests if url.startswith("http")] == [address]
        assert tab.complaints == []
        server.shutdown()
