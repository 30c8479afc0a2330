"""Draw docs/images/attention.svg: tokens, heads that look at them, a score, a label.

Run: python docs/images/draw_attention.py
"""

from pathlib import Path

INK, SOFT, PALE = "#24304a", "#6b7690", "#eef1f8"
SIGNAL, NOISE, FIRST, SECOND = "#c84e00", "#9aa6c1", "#0072b2", "#00845a"
WORDS = ("the", "soup", "was", "not", "good", "at", "all", ".")
RELEVANT = (3, 4)
LOOKS = {  # how much of its attention a head gives to each token
    "head 1": (FIRST, (0.02, 0.04, 0.02, 0.46, 0.4, 0.02, 0.03, 0.01)),
    "head 2": (SECOND, (0.04, 0.34, 0.05, 0.08, 0.36, 0.04, 0.07, 0.02)),
}


def text(x, y, words, size=15, color=INK, anchor="middle", weight="normal"):
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{words}</text>"
    )


def box(x, y, width, height, fill, stroke="none", radius=8):
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} rx="{radius}" fill="{fill}" stroke="{stroke}"/>'


def picture() -> str:
    parts = [box(0, 0, 760, 380, "#ffffff", radius=14)]
    centers = [66 + 84 * k for k in range(len(WORDS))]
    parts.append(
        text(
            24,
            34,
            "1. A sequence of tokens: here words, each a short list of numbers",
            14,
            SOFT,
            "start",
        )
    )
    for k, (x, word) in enumerate(zip(centers, WORDS, strict=True)):
        color = SIGNAL if k in RELEVANT else NOISE
        parts.append(box(x - 36, 48, 72, 34, PALE, color))
        parts.append(text(x, 70, word, 16, weight="bold" if k in RELEVANT else "normal"))
    parts.append(text(24, 206, "2. Each head spreads", 14, SOFT, "start"))
    parts.append(text(24, 225, "its attention", 14, SOFT, "start"))
    for (name, (color, weights)), x in zip(LOOKS.items(), (230, 530), strict=True):
        for center, weight in zip(centers, weights, strict=True):
            parts.append(
                f'<line x1="{center}" y1="84" x2="{x}" y2="190" stroke="{color}" stroke-width="{1 + 13 * weight:.1f}" '
                f'stroke-opacity="{0.2 + 0.7 * weight:.2f}"/>'
            )
        parts.append(box(x - 52, 190, 104, 36, color))
        parts.append(text(x, 213, name, 16, "#ffffff", weight="bold"))
        parts.append(
            f'<line x1="{x}" y1="226" x2="380" y2="272" stroke="{color}" stroke-width="4"/>'
        )
    parts.append(text(24, 262, "3. Each head reports what it saw;", 14, SOFT, "start"))
    parts.append(text(24, 281, "the reports are added to one score", 14, SOFT, "start"))
    parts += [
        box(320, 272, 120, 36, INK),
        text(380, 295, "score −2.1", 16, "#ffffff", weight="bold"),
    ]
    parts.append('<line x1="440" y1="290" x2="520" y2="290" stroke="#24304a" stroke-width="3"/>')
    parts += [
        box(520, 272, 216, 36, PALE, SIGNAL),
        text(628, 295, "label: a complaint (−1)", 15, weight="bold"),
    ]
    parts.append(
        text(
            24,
            340,
            "Training turns where the heads look, and how their reports count,",
            14,
            SOFT,
            "start",
        )
    )
    parts.append(
        text(24, 359, "until the labels of the examples come out right.", 14, SOFT, "start")
    )
    title = "Eight words, two heads with lines to the words they look at, one score, one label"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 380" font-family="Helvetica, Arial, sans-serif" '
        f'role="img" aria-label="{title}">\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    (Path(__file__).parent / "attention.svg").write_text(picture())
