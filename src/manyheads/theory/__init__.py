"""Statements with hypotheses, bounds and verdicts: the machinery here, and the papers, one folder each.

A folder holds a `PAPER` and one file per section; its statements are found automatically.
"""

FIRST = "deora2023"  # its statements are called by their short ids
