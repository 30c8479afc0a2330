"""The attention probe: fitted without a seed, with its error bar, and what the theory says about it."""
