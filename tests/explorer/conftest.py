"""Chromium for the explorer: pages from a disk and from the server, watched for complaints and requests."""

import shutil
import time
from pathlib import Path

import pytest
from processes import LOOK_EVERY

PAGE = Path(__file__).parents[2] / "docs" / "explorer" / "index.html"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def pytest_collection_modifyitems(items):
    """Tests in the browser are left out, with the reason, where there is none."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(
                pytest.mark.skipif(
                    CHROMIUM is None, reason="needs Chromium, which is not installed here"
                )
            )


# All panels, and all settings: most tests look at them.
WHOLE = """() => { explorer.app.unfold(true);
  for (const group of document.querySelectorAll('details')) group.open = true; }"""


class Tab:
    """A page of the explorer, its complaints, and its requests to anything but itself."""

    def __init__(self, context, address, whole=True):
        self.context, self.page, self.complaints, self.requests = (
            context,
            context.new_page(),
            [],
            [],
        )
        self.page.on(
            "console",
            lambda message: self.complaints.append(message.text) if message.type != "log" else None,
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.until("document.documentElement.dataset.ready === 'yes'")
        if whole:
            self.page.evaluate(WHOLE)

    def visit(self, link):
        """Show what a link says, in this tab."""
        self.page.evaluate(
            """(link) => { const { app } = explorer; window.before = app.run; document.activeElement.blur();
              app.tour.go(null); app.say(""); app.open(link); app.unfold(true); }""",
            link,
        )
        self.until(
            "!explorer.app.queue && explorer.app.run !== before && explorer.app.run.settings === explorer.app.settings"
        )
        self.complaints.clear()

    def ask(self, expression):
        return self.page.evaluate(f"() => {expression}")

    def until(self, expression, limit=60, where=""):
        """Wait for an event in the page; Playwright's own way needs eval, which the page forbids."""
        deadline = time.monotonic() + limit
        while not self.page.evaluate(f"() => Boolean({expression})"):
            assert time.monotonic() < deadline, (
                f"never true: {expression} {where}; complaints: {self.complaints}"
            )
            time.sleep(LOOK_EVERY)

    def status(self, wanted):
        self.until(f"document.documentElement.dataset.status === '{wanted}'")

    def train(self):
        """Press the button and wait for the end."""
        self.page.click("#train")
        self.status("finished")

    def set(self, name, value):
        """Type a value into a control, or choose it."""
        node = self.page.locator(f"#set-{name}")
        if node.evaluate("e => e.tagName") == "SELECT":
            node.select_option(value)
        else:
            box = node.locator("xpath=ancestor::div[@class='control']//input[@type='text']")
            box.fill(str(value))
            box.blur()
        self.until("explorer.app.run && explorer.app.run.settings === explorer.app.settings")

    def text(self, selector):
        return self.page.locator(selector).inner_text()


@pytest.fixture(scope="session")
def explorer_page():
    """The page as it lies in the documents."""
    return PAGE


@pytest.fixture(scope="module")
def browser():
    """One Chromium for all tests of a file: it keeps an event loop running, which other files do not expect."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def desk(browser):
    """One tab for the tests that do not mind what was shown before: `desk.visit(link)`."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield Tab(context, PAGE.as_uri() + "#numSteps=5")
    context.close()


@pytest.fixture
def opened(browser):
    """Open the explorer: `opened("#heads=1")`, `opened(address=...)`, `opened(width=390)`."""
    contexts = []

    def open_tab(
        link="",
        address=None,
        width=1440,
        height=900,
        scheme="light",
        motion="no-preference",
        whole=True,
    ):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion=motion
        )
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        return Tab(context, (address or PAGE.as_uri()) + link, whole)

    yield open_tab
    for context in contexts:
        context.close()
