"""Names that functions, sweeps and the command line share. Needs no JAX."""

OPTIMIZERS = ("gd", "normalized", "polyak", "adam")
DECODERS = ("full", "pooled", "last")  # of self-attention: tokens look at tokens
ALL_DECODERS = (*DECODERS, "query")  # "query": each head has a query of its own
