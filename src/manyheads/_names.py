"""Names that functions, sweeps and the command line share. Needs no JAX."""

OPTIMIZERS = ("gd", "normalized", "polyak", "adam")
DECODERS = ("full", "pooled", "last")
