"""The pictures of the explorer in images/.

`python docs/explorer/screenshots.py` makes them anew; it needs Playwright, Pillow and Chromium.
"""

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SIZES = {"desk": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
FLAGS = ["--no-sandbox", "--disable-lcd-text"]  # gray edges of letters, not colored ones
LONGEST = 120_000  # milliseconds for the run


def small(picture):
    """The picture with its 256 most frequent colors, which stay exactly what they are; soft edges take the nearest."""
    counts = sorted(picture.getcolors(picture.width * picture.height), reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, color in counts for part in color])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def main():
    """One picture for each size and theme, of what the page opens with."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    reduced_motion="reduce",
                )
                page = context.new_page()
                page.goto((HERE / "index.html").as_uri())
                page.locator("#hint:not(:empty)").wait_for(timeout=LONGEST)
                picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
                small(picture).save(HERE / "images" / f"{size}-{scheme}.png", optimize=True)
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
