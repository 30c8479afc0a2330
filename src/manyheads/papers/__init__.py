"""Papers, one folder each: their statements with texts, bounds and checks.

A folder holds a `PAPER` and one file per section; its statements are registered by being there.
"""

FIRST = "deora2023"  # its statements are known by their short ids
