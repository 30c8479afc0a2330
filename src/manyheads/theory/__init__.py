"""Statements with hypotheses, bounds and verdicts: the machinery here, and the papers, one folder each.

A folder holds a `PAPER` and one file per section; its statements are found automatically.
"""

from manyheads._names import public

# its statements are called by their short ids
FIRST = "deora2023"

PUBLIC = {
    "statement": ("Statement", "Paper"),
    "kinds": (
        "inputs",
        "real",
        "signs",
        "whole",
        "probabilities",
        "orthogonal",
        "positive_definite",
        "datasets",
        "runs",
        "Inputs",
        "Kind",
    ),
    "result": ("Result", "Case", "Counterexample"),
    "verdict": ("Hypothesis", "Bound", "Certificate", "Verdict"),
    "finding": ("Effort", "Finding", "Tally"),
    "certify": ("Certificates",),
    "verify": ("Verification",),
    "manyheads2026.forecast": ("forecast", "first_forecast", "Forecast"),
    "manyheads2026.sleep": ("attention_sleep", "Sleep"),
    "manyheads2026.parity": ("parity_heads", "CountHeads"),
    "deora2023.initialization": ("good_start", "GoodStart"),
    "deora2023.regime": ("smallest_heads", "Threshold"),
    "deora2023.planner": ("plan", "Plan"),
    "tarzanagh2023.selection": ("token_selection", "Selection"),
    "decomposition": ("explain_run", "Decomposition"),
    "targets": ("mixture_direction", "combined_direction", "Direction"),
}

__getattr__, __dir__ = public(__name__, PUBLIC)
