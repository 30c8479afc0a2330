"""What axe-core finds on the page: nothing. `npm install --no-save axe-core` brings it; without it this is left out."""

from pathlib import Path

import pytest

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not AXE.is_file(), reason="needs axe-core: npm install --no-save axe-core"),
]
FOUND = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
  .flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target}`))"""
STATES = {
    "three panels": "explorer.app.unfold(false)",
    "all panels": "explorer.app.unfold(true)",
    "a refused value": "(() => { const box = document.querySelector('#set-heads').closest('.control').querySelector('.value'); box.value = 'x'; box.dispatchEvent(new Event('change')); })()",
    "the tour": "explorer.app.tour.go(0)",
    "a wall": "(explorer.app.tour.go(null), explorer.app.present())",
}


@pytest.mark.parametrize(
    "width, height, scheme", [(1440, 900, "light"), (1280, 720, "dark"), (390, 844, "light")]
)
def test_axe_finds_nothing(opened, width, height, scheme):
    tab = opened(
        "#n=20&nTest=20&numSteps=20&run=1",
        width=width,
        height=height,
        scheme=scheme,
        motion="reduce",
    )
    tab.status("finished")
    tab.page.evaluate(AXE.read_text())
    for name, act in STATES.items():
        tab.page.evaluate(f"() => {{ {act}; }}")
        tab.until("explorer.app.run.settings === explorer.app.settings")
        assert tab.page.evaluate(FOUND) == [], name
