"""The pictures of the explorer in images/: `python docs/explorer/screenshots.py` (needs Playwright and Chromium)."""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SIZES = {"desk": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
SHOWN = "#n=80&heads=8&numSteps=300&stepSize=0.5&signal=1.5&d=10&noiseNorm=0.4&run=1"
LONGEST = 120_000  # milliseconds for the run


def main():
    """One picture for each size and theme, of the same finished run."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
                )
                page = context.new_page()
                page.goto((HERE / "index.html").as_uri() + SHOWN)
                page.locator("html[data-status=finished]").wait_for(timeout=LONGEST)
                page.screenshot(path=HERE / "images" / f"{size}-{scheme}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
