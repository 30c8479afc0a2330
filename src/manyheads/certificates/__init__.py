"""Claims: hypotheses, bounds and verdicts, one per statement of the theory."""
