"""Draw docs/images/film.svg: the first six seconds of the explorer, as an animated picture for the README.

Run: python docs/images/film.py. It opens today's page in Chromium and takes from it where every sequence stands; it
needs Playwright.
"""

import shutil
from math import log
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
PAGE = HERE.parent / "explorer" / "index.html"
FILM = HERE / "film.svg"
FLAGS = ["--no-sandbox", "--disable-gpu"]
LONGEST = 120_000  # milliseconds for the two runs
FRAMES, PLAY, HOLD = 30, 6.0, 2.0  # seconds
WIDTH, HEIGHT, MARGIN, TOP = 880, 470, 20, 84
BOX = (410, 250)  # of one cloud
CURVE_TOP, CURVE_HEIGHT = 372, 74
STYLE = """text { font: 15px ui-sans-serif, system-ui, sans-serif; fill: #1d2530 }
.soft { fill: #586270; font-size: 13.5px } .head { font-weight: 600; font-size: 18px } .box { fill: #f6f7f9 }
.plus { fill: #0072b2; stroke: #0072b2 } .minus { fill: #b3478a; stroke: #b3478a } .dots { stroke: none; opacity: .75 }
.line { fill: none; stroke: #1d2530; stroke-width: 2.2 } .faint { stroke-opacity: .25 } .axis { stroke: #dfe3e8 }
.cross { stroke-width: 3 } .end { fill: #1d2530 } .paper { fill: #fff }
@media (prefers-color-scheme: dark) { text { fill: #e8ecf1 } .soft { fill: #a2acb9 } .box { fill: #1a2028 }
.plus { fill: #4aa8e0; stroke: #4aa8e0 } .minus { fill: #e39cc4; stroke: #e39cc4 } .dots { stroke: none }
.line { stroke: #eef1f5 } .axis { stroke: #2c343f } .end { fill: #eef1f5 } .paper { fill: #12161c } }"""

# Where every sequence of both runs stands at some moments, evenly spaced in the logarithm of the step.
TAKE = """(frames) => {
  const { app, placeAt } = explorer, last = app.run.last.step, dot = (a, b) => a.reduce((sum, x, j) => sum + x * b[j], 0);
  const steps = Array.from({ length: frames + 1 }, (_, k) => Math.expm1(Math.log1p(last) * k / frames));
  return [app.run, app.pinned].map((run) => ({
    heads: run.settings.heads, frame: run.frame, labels: Array.from(run.train.labels),
    crosses: run.patterns.slice(0, 2).map((pattern) => run.directions.map((axis) => dot(pattern, axis))),
    places: steps.map((step) => { const { points, arrow } = placeAt(run, step); return { points: Array.from(points), arrow }; }),
    losses: steps.map((step) => { const k = run.rows.indexOf(run.recordAt(step)), [one, two] = [run.rows[k], run.rows[k + 1] || run.rows[k]];
      const part = two === one ? 0 : (step - one.step) / (two.step - one.step); return one.trainLoss ** (1 - part) * two.trainLoss ** part; }), focus: run.last.mass[0] }));
}"""


def taken() -> list[dict]:
    """The two runs that the page opens with."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(reduced_motion="reduce")
        page.goto(PAGE.as_uri())
        page.locator("#hint:not(:empty)").wait_for(timeout=LONGEST)
        found = page.evaluate(TAKE, FRAMES)
        browser.close()
    return found


def moving(attribute: str, values: list[float]) -> str:
    """An animation through values, which holds the last one for a while."""
    shown = [f"{value:.1f}" for value in values]
    if len(set(shown)) == 1:
        return ""
    share = PLAY / (PLAY + HOLD)
    times = [f"{share * k / FRAMES:.4f}" for k in range(FRAMES + 1)] + ["1"]
    every = ";".join([*shown, shown[-1]])
    return (
        f'<animate attributeName="{attribute}" dur="{PLAY + HOLD:g}s" repeatCount="3" '
        f'fill="freeze" keyTimes="{";".join(times)}" values="{every}"/>'
    )


def cloud(run: dict, frame: dict, left: float) -> list[str]:
    """One cloud: the crosses, a mark for every sequence, the readout."""
    width, height = BOX
    across = [left + width / 2, (width / 2 - 16) / frame["x"]]
    down = [TOP + height / 2, -(height / 2 - 16) / frame["y"]]

    def placed(point):
        return across[0] + across[1] * point[0], down[0] + down[1] * point[1]

    parts = [f'<rect class="box" x="{left}" y="{TOP}" width="{width}" height="{height}" rx="10"/>']
    for kind, cross in zip(("plus", "minus"), run["crosses"], strict=True):
        x, y = placed(cross)
        strokes = f"M{x - 9:.1f} {y - 9:.1f}l18 18m-18 0l18 -18"
        parts.append(f'<path class="{kind} cross" d="{strokes}"/>')
    for i, label in enumerate(run["labels"]):
        path = [placed(place["points"][2 * i : 2 * i + 2]) for place in run["places"]]
        parts.append(mark(label, [x for x, _ in path], [y for _, y in path]))
    tips = [placed(place["arrow"]) for place in run["places"]]
    x, y = placed((0, 0))
    moves = moving("x2", [tip[0] for tip in tips]) + moving("y2", [tip[1] for tip in tips])
    parts.append(
        f'<line class="line" x1="{x:.1f}" y1="{y:.1f}" x2="{tips[-1][0]:.1f}" '
        f'y2="{tips[-1][1]:.1f}" marker-end="url(#tip)">{moves}</line>'
    )
    return parts


def mark(label: float, x: list[float], y: list[float]) -> str:
    """A circle for label +1, a square for −1; without animation it stands where it ends."""
    if label > 0:
        moves = moving("cx", x) + moving("cy", y)
        return (
            f'<circle class="plus dots" cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="4.4">{moves}</circle>'
        )
    x, y = [value - 3.9 for value in x], [value - 3.9 for value in y]
    moves = moving("x", x) + moving("y", y)
    place = f'x="{x[-1]:.1f}" y="{y[-1]:.1f}"'
    return f'<rect class="minus dots" {place} width="7.8" height="7.8">{moves}</rect>'


def curve(run: dict, left: float, low: float, high: float) -> list[str]:
    """The train loss on a logarithmic axis, with a point that moves along it."""
    width = BOX[0] - 70
    x = [left + width * k / FRAMES for k in range(FRAMES + 1)]
    scale = CURVE_HEIGHT / (log(high) - log(low))
    y = [CURVE_TOP + scale * (log(high) - log(loss)) for loss in run["losses"]]
    line = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    bottom = CURVE_TOP + CURVE_HEIGHT + 6
    moves = moving("cx", x) + moving("cy", y)
    return [
        f'<line class="axis" x1="{left}" x2="{left + width}" y1="{bottom}" y2="{bottom}"/>',
        f'<path class="line faint" d="{line}"/>',
        f'<circle class="end" cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="5">{moves}</circle>',
        text(left + width + 12, y[-1] + 5, f"{run['losses'][-1]:.2g}"),
    ]


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:.1f}" class="{kind}">{words}</text>'


def picture(runs: list[dict]) -> str:
    """The whole film."""
    frame = {axis: max(run["frame"][axis] for run in runs) for axis in "xy"}
    losses = [loss for run in runs for loss in run["losses"]]
    parts = [f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>']
    parts.append(
        text(MARGIN, 30, "Each mark is a sequence, at the average of what its heads look at.")
    )
    for run, left in zip(runs, (MARGIN, WIDTH - MARGIN - BOX[0]), strict=True):
        name = "One head" if run["heads"] == 1 else f"{run['heads']:,} heads, the paper's scaling"
        share = f"{run['focus']:.0%} of attention on what carries the label"
        parts.append(text(left, 60, name, "head"))
        parts.append(text(left, 78, f"At the end: {share}", "soft"))
        parts += cloud(run, frame, left)
        parts.append(text(left, CURVE_TOP - 14, "train loss, from .69 (guessing)", "soft"))
        parts += curve(run, left, min(losses), max(losses))
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="5" markerHeight="5" '
    tip += 'orient="auto"><path class="end" d="M0 0L8 4L0 8z"/></marker>'
    label = "One head learns to look at the tokens that carry the label; a million heads do not"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
    head += f'width="{WIDTH}" height="{HEIGHT}" aria-label="{label}">'
    return "\n".join([head, f"<style>{STYLE}</style><defs>{tip}</defs>", *parts, "</svg>\n"])


if __name__ == "__main__":
    FILM.write_text(picture(taken()), encoding="utf-8")
    print(f"{FILM.relative_to(HERE.parents[1])}: {FILM.stat().st_size / 1024:.0f} KB")
