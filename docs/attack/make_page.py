"""Write docs/attack/index.md, what `verify` finds and its figures: python docs/attack/make_page.py."""

import ast
import runpy
import sys
import tempfile
from pathlib import Path

import manyheads as mh

HERE = Path(__file__).parent
NAMES = (
    "softmax", "attention", "self_bounding", "log_sum_exp", "cocoercive",
    "pinsker", "triangle", "margin", "layer_norm", "normalized_step",
)  # fmt: skip

INTRODUCTION = """# Ten known inequalities under attack

Each is one file of about twenty lines in `docs/attack/`. `python docs/attack/softmax.py`, or
`manyheads verify docs/attack/softmax.py`, attacks it: thousands of random inputs over many scales, structured ones, and
many ascents on measured against bound; what is found is confirmed in 60 digits, a counterexample is made small, and
everything is tried first the next time. Some are true and tight, some have a constant that everybody copies and that can
be halved, some are false as they are commonly stated. An attack that finds nothing is no proof; it says what was tried.

How good it is: of forty lemmas of known truth, written before the search, it left the twenty true ones standing (each reached to
1%) and broke all twenty false ones, false by factors of 1.01 to 6.7. As many random inputs from the attack's own draws break 18,
from normal coordinates 10. This was seed 0, and the true and the false half were not measured in one run of the final code;
`python benchmarks/attack_lemmas.py` repeats both.

Your own: [from a TeX statement to a verdict](your-own.md). In the figures a point is an input: what was measured against
the bound, and the share of the bound along the size of the first input.
"""


def section(name: str, store: Path) -> str:
    """One inequality: its paragraph, its code, what was found, a figure."""
    path = HERE / f"{name}.py"
    print(name, file=sys.stderr)
    values = runpy.run_path(str(path))
    result = mh.verify(values["lemma"], store=store, **values["settings"])
    result.figure().savefig(HERE / f"{name}.png", dpi=70)
    text = path.read_text(encoding="utf-8")
    title, _, paragraph = ast.get_docstring(ast.parse(text)).partition("\n\n")
    code = text.partition("import manyheads as mh\n")[2].partition("settings =")[0].strip()
    shown = "\n".join(line[:160] for line in str(result).split("\n"))
    verdict = result.verdict.name
    if result.constant is not None:
        verdict += f", {result.constant[0]} = {result.constant[1]:.4f}"
    parts = [f"## {title.rstrip('.')}", f"**{verdict}.** {paragraph}", f"```python\n{code}\n```"]
    return "\n\n".join([*parts, f"```text\n{shown}\n```", f"![measured against bound]({name}.png)"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as store:
        sections = [section(name, Path(store)) for name in NAMES]
    (HERE / "index.md").write_text("\n\n".join([INTRODUCTION.rstrip(), *sections]) + "\n")
