"""Turns formulas in running text, such as `‖θ_k−θ‖ ≤ √(2 log(n/δ))`, into MathML, which browsers render natively.

Words are left alone. A formula becomes one element per run without a space, so that a long one can break over lines.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape

RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789−", strict=True)) | {"ᵀ": "⊤"}
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
PAIRS = {"(": ")", "{": "}", "[": "]"}
FUNCTIONS = "log exp min max sin cos cot diag softmax Cov sign conv loss".split()
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?:e-?\d+)?(?<!,)|\.\d+")
WORD = re.compile(r"[A-Za-z]{2,}")
PROSE = re.compile(
    r"[(“\"']*[A-Za-z][A-Za-z’'-]*[A-Za-z]\W*|[(“]*[aAI]|[EP]\d+\W*|\(?\d[\d.,]*\W*|\W*"
)
ACCENTS = {"\u0302": "^", "\u0303": "~", "\u0304": "¯"}
NEAR_MATH = re.compile(r"[=+−·≤≥<>√/^_²³⁴]")


def typeset(text: str) -> str:
    """The text as safe HTML with its formulas typeset; text without formulas is only escaped."""
    pieces = _pieces(text.replace(">=", "≥").replace("<=", "≤"))
    shown = []
    for i, piece in enumerate(pieces):
        if _is_prose(piece) and not (piece.lstrip("(") in ("a", "A") and _beside_math(pieces, i)):
            shown.append(escape(piece))
            continue
        body = piece.rstrip(",;:.") if not piece.endswith("…") else piece
        shown.append(
            f"<math>{''.join(_row(body))}</math>{escape(piece[len(body) :])}"
            if body
            else escape(piece)
        )
    return " ".join(shown)


def _pieces(text: str) -> list[str]:
    """The pieces between spaces; {...} and √(...) are not split."""
    found, start, depth = [], 0, 0
    for i, letter in enumerate(text):
        held = letter == "{" or (letter == "(" and (depth or text[i - 1 : i] == "√"))
        if held:
            depth += 1
        elif depth and letter in "})":
            depth -= 1
        elif letter == " " and not depth:
            found.append(text[start:i])
            start = i + 1
    return [*found, text[start:]]


def _is_prose(piece: str) -> bool:
    if re.fullmatch("[a-z][A-Z]", piece.strip("(),;]")):  # a product, such as rD
        return False
    return (
        bool(PROSE.fullmatch(piece))
        and not re.search(r"[≤≥=<>∨∧√Σ∞·−+|‖∂∇]", piece)
        and piece not in ("min", "max", "log")
    )


def _beside_math(pieces: list[str], i: int) -> bool:
    """Whether the letter a is a variable here, not an article."""
    before = pieces[i - 1][-1:] if i else ""
    after = pieces[i + 1][:1] if i + 1 < len(pieces) else ""
    return bool(NEAR_MATH.match(before) or NEAR_MATH.match(after))


def _row(text: str) -> list[str]:
    """The elements of a formula, with scripts attached to their base."""
    made: list[str] = []
    i = 0
    while i < len(text):
        letter = text[i]
        if letter == " ":
            i += 1
        elif letter in "_^" and made and i + 1 < len(text):
            inner, i = _argument(text, i + 1)
            made.append(_scripted(made.pop(), "msub" if letter == "_" else "msup", inner))
        elif letter in RAISED or letter in LOWERED:
            table = RAISED if letter in RAISED else LOWERED
            end = i
            while end < len(text) and text[end] in table:
                end += 1
            inner = f"<mn>{''.join(table[c] for c in text[i:end])}</mn>"
            made.append(
                _scripted(
                    made.pop() if made else "<mrow></mrow>",
                    "msup" if table is RAISED else "msub",
                    inner,
                )
            )
            i = end
        elif letter == "√":
            inner, i = _argument(text, i + 1)
            made.append(f"<msqrt>{inner}</msqrt>")
        else:
            atom, i = _atom(text, i)
            made.append(atom)
    return made


def _argument(text: str, i: int) -> tuple[str, int]:
    """The argument of a script or a root: a bracketed group (without the brackets), or one atom with its exponent."""
    while i < len(text) and text[i] == " ":
        i += 1
    if i < len(text) and text[i] in "({":
        end = _closing(text, i)
        return f"<mrow>{''.join(_row(text[i + 1 : end]))}</mrow>", end + 1
    if text[i : i + 1] in "-−" and text[i : i + 1]:
        inner, end = _atom(text, i + 1)
        return f"<mrow><mo>−</mo>{inner}</mrow>", end
    word = WORD.match(text, i)
    if word:
        return f"<mi>{word[0]}</mi>", word.end()
    return _atom(text, i)


def _closing(text: str, i: int) -> int:
    """The position that closes the bracket at i; the end of the text if none does."""
    depth = 0
    for j in range(i, len(text)):
        depth += (text[j] == text[i]) - (text[j] == PAIRS[text[i]])
        if depth == 0:
            return j
    return len(text)


def _atom(text: str, i: int) -> tuple[str, int]:
    if i >= len(text):
        return "<mrow></mrow>", i
    if found := NUMBER.match(text, i):
        return f"<mn>{found[0]}</mn>", found.end()
    if found := WORD.match(text, i):
        word = found[0]
        if word in FUNCTIONS or len(word) > 3:
            return f"<mi>{word}</mi>", found.end()
        return f"<mi>{word[0]}</mi>", i + 1  # adjacent letters are a product
    letter, end = text[i], i + 1
    while end < len(text) and unicodedata.combining(text[end]):
        letter, end = letter + text[end], end + 1
    if not letter[0].isalpha():
        symbol = {"-": "−", "∞": "<mi>∞</mi>"}.get(letter, escape(letter))
        return (symbol if symbol.startswith("<") else f'<mo stretchy="false">{symbol}</mo>'), end
    name = f"<mi>{escape(letter[0])}</mi>"
    for accent in letter[1:]:
        name = f"<mover accent='true'>{name}<mo stretchy='false'>{ACCENTS.get(accent, accent)}</mo></mover>"
    digits = re.compile("[0-9]+").match(text, end)
    if digits:  # b2 is b with index 2
        return f"<msub>{name}<mn>{digits[0]}</mn></msub>", digits.end()
    return name, end


def _scripted(base: str, kind: str, inner: str) -> str:
    """A script on a base; a second one on the other side is combined with the first."""
    other = "msup" if kind == "msub" else "msub"
    if base.startswith(f"<{other}>"):
        held = base.removeprefix(f"<{other}>").removesuffix(f"</{other}>")
        kernel, first = _two(held)
        low, high = (inner, first) if kind == "msub" else (first, inner)
        return f"<msubsup>{kernel}{low}{high}</msubsup>"
    return f"<{kind}>{base}{inner}</{kind}>"


def _two(held: str) -> tuple[str, str]:
    """The two elements side by side in a text."""
    depth = 0
    for tag in re.finditer(r"<(/?)\w+[^>]*>", held):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return held[: tag.end()], held[tag.end() :]
    return held, ""
