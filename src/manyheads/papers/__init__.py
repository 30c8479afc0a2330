"""Papers, one folder each: their statements with texts, bounds and checks.

A folder holds a `PAPER` and one file per section; its statements are found automatically.
"""

FIRST = "deora2023"  # its statements are called by their short ids
