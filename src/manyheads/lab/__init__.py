"""Many runs, what they say, and the page that shows it: what a study is made of.

def cell(heads, seeds): ...  # -> {"steps": an array over the seeds} data = lab.sweep(cell,
lab.Grid(heads=[4, 16, 64], seeds=10), out="results") claim = lab.Claim("Steps grow like the root of
H.", lambda r: r.exponent("steps", "heads"), near=0.5) lab.decide([claim], data)  # supported,
refuted or undecided, by the interval alone
"""

from manyheads.lab.cells import Grid, sweep
from manyheads.lab.claim import Claim, Decided, decide
from manyheads.lab.estimate import Estimate, cover, exact, largest, number, smallest
from manyheads.lab.figure import draw, lines, save
from manyheads.lab.html import Chapter, page, write_report
from manyheads.lab.results import Results

__all__ = [
    "Chapter",
    "Claim",
    "Decided",
    "Estimate",
    "Grid",
    "Results",
    "cover",
    "decide",
    "draw",
    "exact",
    "largest",
    "lines",
    "number",
    "page",
    "save",
    "smallest",
    "sweep",
    "write_report",
]
